"""The requests of a fetcher and the answers as values: the same bytes and values as those of the compiled codec."""

from __future__ import annotations

import contextlib
import struct
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.protocol.header import request_frame, response_frame
from kafkalite.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kafkalite.replication import leader_requests as wire
from kafkalite.replication.leader_requests import Key, SessionRequest
from kafkalite.replication.replica import epoch_divergence
from kafkalite.replication.replica.follower_replica import Fetch

INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TOPIC_ID = st.uuids().map(lambda each: each.bytes)
KEYS = st.tuples(st.one_of(TOPIC_ID, st.just(bytes(16))), INT32)
FETCHES = st.builds(Fetch, INT32, INT64, INT32, INT64)


@settings(deadline=None)
@given(
    named=st.dictionaries(KEYS, FETCHES, max_size=8),
    forgotten=st.lists(KEYS, max_size=5, unique=True),
    session=st.tuples(INT32, INT32),
    registration=INT64,
    name=st.text(max_size=30).map(str.encode),
)
def test_a_fetch_has_the_bytes_of_its_declaration(
    named: dict[Key, Fetch], forgotten: list[Key], session: tuple[int, int], registration: int, name: bytes
) -> None:
    config = BrokerConfig(replica_fetch_max_bytes=123_456, replica_fetch_wait_max_ms=77)
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, index), fetch in named.items():
        topic = topics.setdefault(topic_id, FetchTopic(topic_id=uuid.UUID(bytes=topic_id), partitions=[]))
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=fetch.leader_epoch,
                fetch_offset=fetch.fetch_offset,
                last_fetched_epoch=fetch.last_fetched_epoch,
                log_start_offset=fetch.log_start_offset,
                partition_max_bytes=123_456,
            )
        )
    gone: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in forgotten:
        forgot = gone.setdefault(topic_id, ForgottenTopic(topic_id=uuid.UUID(bytes=topic_id), partitions=[]))
        forgot.partitions.append(index)
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=9, replica_epoch=registration),
        max_wait_ms=77,
        min_bytes=1,
        max_bytes=10 << 20,
        isolation_level=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=list(topics.values()),
        forgotten_topics_data=list(gone.values()),
        rack_id="",
    )
    asked = SessionRequest(*session, named, forgotten)
    frame = wire.fetch_frame(asked, config, 9, registration, 5, name)
    assert frame == request_frame(request, wire.FETCH_VERSION, 5, name.decode())


RECORDS = st.one_of(st.none(), st.binary(max_size=20), st.just(bytes(300)), st.just(b"\1" * 20_000))
PARTITIONS = st.builds(
    PartitionData,
    partition_index=INT32,
    error_code=st.sampled_from([0, 0, 0, 1, 6, 75, 999]),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    diverging_epoch=st.one_of(
        st.none(), st.none(), st.builds(EpochEndOffset, epoch=st.integers(-1, 9), end_offset=st.integers(-1, 9))
    ),
    aborted_transactions=st.sampled_from([None, None, [], [AbortedTransaction(producer_id=1, first_offset=2)]]),
    preferred_read_replica=INT32,
    records=RECORDS,
)
RESPONSES = st.builds(
    FetchResponse,
    throttle_time_ms=INT32,
    error_code=st.sampled_from([0, 0, 70, 71, 999]),
    session_id=INT32,
    responses=st.lists(
        st.builds(FetchableTopicResponse, topic_id=st.uuids(), partitions=st.lists(PARTITIONS, max_size=4)), max_size=3
    ),
)


def frame_of(response: FetchResponse) -> memoryview:
    return memoryview(b"".join(map(bytes, response_frame(response, wire.FETCH_VERSION, 3))))[4:]  # type: ignore[arg-type]


@settings(deadline=None)
@given(RESPONSES)
def test_an_answer_has_the_values_of_its_declaration(response: FetchResponse) -> None:
    answer = wire.fetched(frame_of(response))
    assert (answer.error, answer.session_id) == (ErrorCode.of(response.error_code), response.session_id)
    every = [(topic.topic_id.bytes, data) for topic in response.responses for data in topic.partitions]
    assert len(answer.partitions) == len(every)
    for (key, found, records, is_more), (topic_id, data) in zip(answer.partitions, every, strict=True):
        assert key == (topic_id, data.partition_index) and not is_more
        assert found.error == ErrorCode.of(data.error_code)
        assert (found.high_watermark, found.log_start_offset) == (data.high_watermark, data.log_start_offset)
        diverging = data.diverging_epoch
        if diverging is None or diverging.epoch < 0:
            assert found.diverging_epoch is None
        else:
            assert found.diverging_epoch == epoch_divergence.EpochEndOffset(diverging.epoch, diverging.end_offset)
        given_records = data.records or b""
        if len(given_records) < 12:  # less than the head of a batch
            assert records is None and found.first_offset is None
        else:
            assert records == given_records
            assert found.first_offset == int.from_bytes(given_records[:8], "big", signed=True)


@settings(deadline=None)
@given(RESPONSES, st.data())
def test_an_answer_that_is_cut_or_goes_on_is_malformed(response: FetchResponse, data: st.DataObject) -> None:
    frame = frame_of(response)
    at = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(Malformed):
        wire.fetched(frame[:at])
    with pytest.raises(Malformed):
        wire.fetched(memoryview(bytes(frame) + b"\0"))


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_an_answer_or_malformed(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        wire.fetched(memoryview(data))


def batches(*sizes: int) -> bytes:
    return b"".join(struct.pack(">qi", offset, size - 12) + bytes(size - 12) for offset, size in enumerate(sizes))


@pytest.mark.parametrize(
    ("sizes", "cut", "expected"),
    [
        ((600_000, 600_000, 600_000), 0, [600_000, 600_000, 600_000]),
        ((400_000,) * 6, 0, [800_000, 800_000, 800_000]),
        ((3_000_000, 100, 100), 0, [3_000_000, 200]),
        ((100, 3_000_000, 100), 0, [100, 3_000_000, 100]),
        ((600_000, 600_000, 600_000), 5, [600_000, 600_000]),
        ((3_000_000,), 1, [2_999_999]),  # no whole batch
        ((1 << 20, 26), 0, [1 << 20, 26]),
    ],
)
def test_many_batches_come_in_pieces(sizes: tuple[int, ...], cut: int, expected: list[int]) -> None:
    data = batches(*sizes)
    found = list(wire.pieces(memoryview(data[: len(data) - cut])))
    assert [len(each) for each in found] == expected
    assert data.startswith(b"".join(found))


def test_batches_of_no_length_are_left_to_the_log() -> None:
    data = memoryview(batches(2_000_000)[:12] + bytes(2_000_000))
    nonsense = memoryview(struct.pack(">qi", 0, -5) + bytes(2_000_000))
    assert list(wire.pieces(nonsense)) == [nonsense]
    assert [len(each) for each in wire.pieces(data)] == [2_000_000]
