"""The requests of a fetcher and the answers as values: the same bytes and values as those of the compiled codec."""

from __future__ import annotations

import contextlib
import struct
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.api.request.fetch_sessions import FetchSessions
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.header import decode_request_header, request_frame, response_frame
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
from kafkalite.replication.leader_requests import (
    FETCH_VERSION,
    INITIAL_EPOCH,
    FetchSession,
    Key,
    SessionRequest,
    fetch_frame,
)
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


TOPICS = [uuid.UUID(int=number).bytes for number in (1, 2)]
KEYS: list[Key] = [(topic, index) for topic in TOPICS for index in (0, 1)]


def at(offset: int) -> Fetch:
    return Fetch(leader_epoch=3, fetch_offset=offset, last_fetched_epoch=2, log_start_offset=0)


def test_a_request_names_what_has_changed() -> None:
    session = FetchSession()
    first, second = KEYS[:2]
    session.want(first, at(1))
    session.want(second, at(5))
    full = session.next_request()
    assert (full.session_epoch, dict(full.named), full.forgotten) == (INITIAL_EPOCH, {first: at(1), second: at(5)}, [])
    session.on_answer(session_id=77)
    assert session.next_request() == (77, 1, {}, [])
    session.on_answer(77)
    session.want(first, at(2))
    session.want(second, at(5))
    assert session.next_request() == (77, 2, {first: at(2)}, [])
    session.on_answer(77)
    session.forget(second)
    assert session.sent(second) == at(5)  # the answer to the latest request may be under way
    assert session.next_request() == (77, 3, {}, [second])
    assert session.sent(second) is None


def test_a_partition_that_is_forgotten_and_wanted_again_before_the_next_request_stays() -> None:
    session = FetchSession()
    session.want(KEYS[0], at(1))
    session.next_request()
    session.on_answer(7)
    session.forget(KEYS[0])
    session.want(KEYS[0], at(1))
    assert session.next_request() == (7, 1, {}, [])


def test_the_partition_that_changed_last_is_named_last() -> None:
    session = FetchSession()
    for key in KEYS:
        session.want(key, at(1))
    session.want(KEYS[0], at(2))
    assert list(session.next_request().named) == [*KEYS[1:], KEYS[0]]


def test_without_a_session_every_request_names_all() -> None:
    session = FetchSession()
    session.want(KEYS[0], at(1))
    for _ in range(3):
        assert session.next_request() == (0, INITIAL_EPOCH, {KEYS[0]: at(1)}, [])
        session.on_answer(session_id=0)


def test_an_epoch_after_the_last_one_is_1() -> None:
    session = FetchSession()
    session.want(KEYS[0], at(1))
    session.next_request()
    session.on_answer(7)
    session._epoch = 0x7FFFFFFF
    assert session.next_request().session_epoch == 0x7FFFFFFF
    session.on_answer(7)
    assert session.next_request().session_epoch == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from(KEYS), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(
            st.sampled_from(["ask", "ask", "answer lost", "request lost", "leader restarts"]), st.none(), st.none()
        ),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps=STEPS, slots=st.integers(0, 1))
def test_the_leader_fetches_what_the_follower_believes_whatever_gets_lost(
    steps: list[tuple[str, Key, int]], slots: int
) -> None:
    ours, theirs = FetchSession(), FetchSessions(slots)
    config = BrokerConfig()
    wanted: dict[Key, Fetch] = {}
    for what, key, offset in steps:
        if what == "want":
            wanted[key] = at(offset)
            ours.want(key, at(offset))
        elif what == "forget":
            wanted.pop(key, None)
            ours.forget(key)
        elif what == "leader restarts":
            theirs = FetchSessions(slots)
        elif len(ours):
            frame = memoryview(fetch_frame(ours.next_request(), config, 1, 5, 9, b"f"))[4:]
            request: FetchRequest = decode(FetchRequest, FETCH_VERSION, frame, decode_request_header(frame)[1])[0]
            if what == "request lost":
                ours.restart()
                continue
            try:
                context = theirs.context(request, FETCH_VERSION, 0)
            except KafkaError as error:
                assert error.code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
                ours.restart(closes=error.code is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                continue
            held = {
                (each[0].bytes, each[1]): (at.current_leader_epoch, at.fetch_offset, at.last_fetched_epoch)
                for each, at in context.partitions.items()
            }
            assert held == {each: fetch[:3] for each, fetch in wanted.items()}
            assert all(ours.sent(each) == fetch for each, fetch in wanted.items())
            assert len(theirs) == slots
            if what == "answer lost":
                ours.restart()
            else:
                ours.on_answer(context.session_id)
