"""Any message survives the wire, other people's codecs agree on every byte, and nothing but a message or `Malformed`
comes out of a decoder."""

from __future__ import annotations

import importlib
import random
import re
import tracemalloc
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from io import BytesIO
from typing import Any

import kafka.protocol.admin as kafka_admin
import kafka.protocol.consumer as kafka_consumer
import kafka.protocol.metadata as kafka_metadata
import kafka.protocol.producer as kafka_producer
import kafka.protocol.sasl as kafka_sasl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue

from kafkalite.common.errors import Malformed
from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.apis import APIS, Api
from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.decoder_source import ELEMENTS_MAX
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.cleaner import (
    CleanerPass,
    RunCleanerPartition,
    RunCleanerRequest,
    RunCleanerResponse,
)
from kafkalite.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafkalite.protocol.messages.group_offsets import OffsetFetchRequest
from kafkalite.protocol.messages.groups import HeartbeatRequest, JoinGroupResponse
from kafkalite.protocol.messages.log_dirs import (
    CLEANING_REPORTED,
    CLEANING_TAG,
    COUNTS_OF_SEGMENTS,
    OWN_TAG,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    LogCleaning,
    PartitionRecordCounts,
    SegmentRecordCounts,
)
from kafkalite.protocol.messages.metadata import (
    AUTHORIZED_OPERATIONS_OMITTED,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
)
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.sasl import SaslAuthenticateResponse

CASES = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]
moderate = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def encoded(message: Message, version: int) -> bytes:
    parts: list[Any] = []
    encoder(type(message), version)(message, parts)
    return b"".join(parts)


def frame(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


def kafka_python_class(name: str) -> Any:
    """kafka-python's class of this message, or None: it has no delegation tokens, groups of today and telemetry."""
    for module in (kafka_admin, kafka_consumer, kafka_metadata, kafka_producer, kafka_sasl):
        if hasattr(module, name):
            return getattr(module, name)
    others = ("DelegationToken", "ConsumerGroup", "Share", "StreamsGroup", "Telemetry")
    assert any(other in name for other in others), f"kafka-python has no {name}"
    return None


def kio_codec(api: Api, version: int, name: str) -> Any:
    """kio's reader and writer of this version, or None: kio has no versions that Kafka 4 removed."""
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
    kind = "request" if name.endswith("Request") else "response"
    try:
        module = importlib.import_module(f"kio.schema.{snake}.v{version}.{kind}")
    except ModuleNotFoundError:
        return None
    return entity_reader(getattr(module, name)), entity_writer(getattr(module, name))


def their_name(theirs: Any, name: str) -> str:
    """kio leaves units out, kafka-python what the authorized operations belong to."""
    names = (name, name.removesuffix("_ms"), "authorized_operations")
    return next(candidate for candidate in names if hasattr(theirs, candidate))


def assert_same_values(ours: Any, theirs: Any, version: int) -> None:
    """Field by field, through kio's richer types."""
    if isinstance(ours, Message):
        for name, field in ours.__fields__.items():
            if version in field.versions and field.tag not in (OWN_TAG, CLEANING_TAG):
                value, other = getattr(ours, name), getattr(theirs, their_name(theirs, name))
                if value is None and field.tag is not None:
                    continue  # absent here, an object of defaults there
                if not isinstance(other, set):  # the names of a bit field's bits
                    assert_same_values(value, other, version)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs or ())
        for one, other in zip(ours, theirs or (), strict=True):
            assert_same_values(one, other, version)
    elif isinstance(theirs, timedelta):
        assert ours == round(theirs.total_seconds() * 1000)
    elif isinstance(theirs, datetime):
        assert ours == round(theirs.timestamp() * 1000)
    elif isinstance(theirs, Enum):
        assert ours == theirs.value
    elif theirs is None:
        # Richer types have None for "no time", "no id" and "operations not asked for" too.
        assert ours in (None, -1, ZERO_UUID, AUTHORIZED_OPERATIONS_OMITTED)
    else:
        assert ours == theirs


@pytest.mark.thorough
@pytest.mark.parametrize(("api", "version"), CASES)
def test_a_message_survives_the_wire_and_nothing_else_does(messages: Any, api: Api, version: int) -> None:
    kinds = (api.request, api.response)
    oracles = {kind: (kafka_python_class(kind.__name__), kio_codec(api, version, kind.__name__)) for kind in kinds}

    @moderate
    @given(st.one_of([messages(kind, version) for kind in kinds]), st.integers(0, 2**32))
    def check(message: Message, seed: int) -> None:
        kind = type(message)
        if kind is ApiVersionsResponse:
            message.error_code = 0  # with an error kafka-python reads version 0
        if kind is SaslAuthenticateResponse:
            message.session_lifetime_ms %= 10**12  # kio has a timedelta for it
        data = encoded(message, version)
        assert decode(kind, version, frame(data)) == (message, len(data))

        kafka_python, kio = oracles[kind]
        if kafka_python is not None:
            theirs = kafka_python.decode(data, version=version)
            assert_same_values(message, theirs, version)
            theirs._header = None  # its decoder leaves this unset, its encoder asks for it
            assert theirs.encode(version=version) == data

        if kio is not None:
            read, write = kio
            with suppress(OutOfBoundValue):  # a time before 1970, which its richer types do not have
                theirs, _ = read(data, 0)
                assert_same_values(message, theirs, version)
                out = BytesIO()
                write(out, theirs)
                assert out.getvalue() == data

        check_damage(kind, version, data, random.Random(seed))

    check()


def check_damage(kind: type[Message], version: int, data: bytes, dice: random.Random) -> None:
    """Every truncation is Malformed; a few flipped bits give Malformed, in our words, or a message to be said again."""
    whole = frame(data)
    for end in range(len(data)):
        try:
            decode(kind, version, whole[:end])
        except Malformed as fault:
            assert in_our_words(fault)
            continue
        raise AssertionError(f"{end} of {len(data)} bytes were taken for a message")
    for _ in range(min(len(data), 50)):
        damaged = bytearray(data)
        for _ in range(dice.randint(1, 3)):
            damaged[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        try:
            message, end = decode(kind, version, memoryview(damaged))
        except Malformed:
            continue
        assert end <= len(damaged)
        again = encoded(message, version)
        assert decode(kind, version, frame(again))[1] == len(again)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([case.values for case in CASES]), st.booleans(), st.binary(max_size=120))
def test_noise_ends_in_a_message_or_malformed(case: Any, is_request: bool, noise: bytes) -> None:
    api, version = case
    try:
        decode(api.request if is_request else api.response, version, frame(noise))
    except Malformed as fault:
        assert in_our_words(fault)


def in_our_words(fault: Malformed) -> bool:
    """None of Python's: they mean nothing to those who read a log."""
    return not any(word in str(fault) for word in ("unpack", "buffer", "codec can", "out of range", "out of bounds"))


@pytest.mark.parametrize("version", range(2, 5))
def test_fields_of_our_own_travel_and_others_pass_over_them(version: int) -> None:
    segments = [SegmentRecordCounts(base_offset=1, size_bytes=2, live_records=-1, control_records=4)]
    counts = PartitionRecordCounts(leader_epoch=5, start_offset=6, end_offset=1 << 40, segments=segments, elr=[3, 1])
    cleaning = LogCleaning(state="idle", dirty_bytes=1 << 50, why_not=None, last=CleanerPass(bytes_read=9))
    partition = DescribeLogDirsPartition(partition_index=7, partition_size=8, counts=counts, cleaning=cleaning)
    topic = DescribeLogDirsTopic(name="t", partitions=[partition])
    results = [DescribeLogDirsResult(topics=[topic])]
    response = DescribeLogDirsResponse(results=results, counts_records=True, cleaning=CLEANING_REPORTED)
    request = DescribeLogDirsRequest(topics=None, count_records=COUNTS_OF_SEGMENTS, describe_cleaning=True)
    for message in (request, response):
        data = encoded(message, version)
        assert decode(type(message), version, frame(data)) == (message, len(data))
        theirs = kafka_python_class(type(message).__name__).decode(data, version=version)
        assert_same_values(message, theirs, version)


def test_an_api_of_our_own_survives_the_wire() -> None:
    done = RunCleanerPartition(partition_index=1, done=CleanerPass(records_kept=1 << 40))
    for message in (
        RunCleanerRequest(topic="t", partitions=[3, 1], rolls=True, waits=True, timeout_ms=9),
        RunCleanerRequest(topic="t", partitions=None),
        RunCleanerResponse(partitions=[done, RunCleanerPartition(error_code=-1, message="why")]),
    ):
        data = encoded(message, 0)
        assert decode(type(message), 0, frame(data)) == (message, len(data))


def test_a_produce_request_is_these_bytes() -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=frame(b"batch"))])
        ],
    )
    assert encoded(request, 7).hex(" ") == (
        "ff ff ff ff 00 00 75 30 00 00 00 01 00 01 74 00 00 00 01 00 00 00 02 00 00 00 05 62 61 74 63 68"
    )
    assert encoded(request, 9).hex(" ") == ("00 ff ff 00 00 75 30 02 02 74 02 00 00 00 02 06 62 61 74 63 68 00 00 00")


def test_records_are_a_window_into_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=frame(b"batch"))])]
    )
    received = frame(encoded(request, 9))
    decoded, _ = decode(ProduceRequest, 9, received)
    records = decoded.topic_data[0].partition_data[0].records
    assert records is not None
    records[0:1] = b"B"
    assert b"Batch" in received.tobytes()


@pytest.mark.parametrize("version", range(4, 13))
def test_no_records_are_fetched_as_length_zero_and_null_is_understood(version: int) -> None:
    def response(records: Any) -> FetchResponse:
        partition = PartitionData(aborted_transactions=None, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    data = encoded(response(None), version)
    assert data == encoded(response(b""), version)
    # The records' length is the last thing before the tag counts of partition, topic and response, or the very last.
    null = data[:-4] + b"\0\0\0\0" if version == 12 else data[:-4] + b"\xff\xff\xff\xff"
    assert decode(FetchResponse, version, frame(null)) == (response(None), len(data))


def test_records_may_come_in_several_parts() -> None:
    def response(records: Any) -> FetchResponse:
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])

    for version in (11, 12):
        assert encoded(response([b"ab", frame(b"c")]), version) == encoded(response(b"abc"), version)


def test_null_travels_as_empty_where_a_version_has_no_null() -> None:
    assert encoded(JoinGroupResponse(protocol_name=None), 6) == encoded(JoinGroupResponse(protocol_name=""), 6)
    assert encoded(JoinGroupResponse(protocol_name=None), 7) != encoded(JoinGroupResponse(protocol_name=""), 7)
    assert encoded(MetadataRequest(topics=None), 0) == bytes(4)


def test_null_where_it_is_not_allowed_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"HeartbeatRequest\.group_id: null"):
        decode(HeartbeatRequest, 0, frame(b"\xff\xff" + bytes(10)))
    with pytest.raises(Malformed, match=r"ProduceRequest\.topic_data: null"):
        decode(ProduceRequest, 9, frame(bytes(20)))


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_made() -> None:
    with pytest.raises(Malformed, match="2147483647 where 6 bytes are left"):
        decode(MetadataRequest, 1, frame(b"\x7f\xff\xff\xff" + bytes(6)))
    with pytest.raises(Malformed, match="4294967294 where 6 bytes are left"):
        decode(MetadataRequest, 9, frame(b"\xff\xff\xff\xff\x0f" + bytes(6)))
    with pytest.raises(Malformed, match="32 bits"):
        decode(MetadataRequest, 9, frame(b"\xff\xff\xff\xff\x1f" + bytes(6)))


def test_a_message_of_too_many_elements_is_refused_before_they_take_memory() -> None:
    """All arrays count together, whatever room the frame has."""
    fits = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * ELEMENTS_MAX)
    data = encoded(fits, 9)
    assert len(decode(MetadataRequest, 9, frame(data))[0].topics) == ELEMENTS_MAX

    partitions = [PartitionProduceData(index=0, records=None)] * (ELEMENTS_MAX // 2)
    two = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)] * 2)
    for version in (8, 9):
        received = frame(encoded(two, version))
        tracemalloc.start()
        try:
            with pytest.raises(Malformed, match="more than 131072 elements"):
                decode(ProduceRequest, version, received)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 << 20

    many = frame(b"\0\0\0\1" + b"\0\1t" + b"\0\2\0\0" + bytes(4 * (ELEMENTS_MAX + 1)))  # integers count too
    with pytest.raises(Malformed, match="elements"):
        decode(OffsetFetchRequest, 1, frame(b"\0\1g" + bytes(many)))


def test_a_frame_that_is_large_for_its_records_is_decoded_like_any_other() -> None:
    records = frame(bytes(ELEMENTS_MAX * 2))
    data = [PartitionProduceData(index=i, records=records) for i in range(3)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
    for version in (3, 9):
        received = encoded(request, version)
        assert decode(ProduceRequest, version, frame(received)) == (request, len(received))


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(Malformed, match="HeartbeatRequest v0: a text that is not UTF-8"):
        decode(HeartbeatRequest, 0, frame(b"\0\1\xff" + bytes(6)))


def test_any_byte_but_zero_is_true() -> None:
    request, _ = decode(MetadataRequest, 4, frame(b"\xff\xff\xff\xff\x02"))
    assert request.allow_auto_topic_creation is True


def test_unknown_tagged_fields_are_skipped_and_must_fit() -> None:
    heartbeat = encoded(HeartbeatRequest(group_id="g"), 4)[:-1]
    extended = heartbeat + b"\x02" + b"\x05\x03abc" + b"\x81\x01\x00"
    assert decode(HeartbeatRequest, 4, frame(extended)) == (HeartbeatRequest(group_id="g"), len(extended))
    for tags in (b"\x01\x05\x04abc", b"\x03\x05\x00", b"\xff\xff\xff\xff\x0f", b"\x01\x05"):
        with pytest.raises(Malformed):
            decode(HeartbeatRequest, 4, frame(heartbeat + tags))


def test_a_known_tagged_field_must_fill_its_size() -> None:
    request = FetchRequest(cluster_id="abc")
    data = encoded(request, 12)
    assert data.endswith(b"\x01" + b"\x00\x04" + b"\x04abc")
    for damaged in (b"\x01" + b"\x00\x05" + b"\x04abc\0", b"\x01" + b"\x00\x03" + b"\x04abc"):
        with pytest.raises(Malformed, match="cluster_id"):
            decode(FetchRequest, 12, frame(data[:-7] + damaged))
