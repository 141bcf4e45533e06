"""Every reason to refuse a batch, by Kafka's code and in Kafka's order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import product

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.record.batch import BatchHeader, NewRecord, build_batch, compute_crc, parse_header
from kafkalite.record.compression import CODECS
from kafkalite.record.record import read_records
from kafkalite.record.validation.batch_validation import InvalidRecords, Rules, faults, rewrite, validate

NOW_MS = 1_700_000_000_000
Change = Callable[[bytearray], bytearray]


def batch(count: int = 2, **options: int) -> bytearray:
    return build_batch([NewRecord(b"k", b"v%d" % i, (), NOW_MS) for i in range(count)], **options)


def patch(form: str, at: int, value: int, *, crc: bool = True) -> Change:
    """Overwrite one header field, and make the checksum right again."""

    def change(data: bytearray) -> bytearray:
        struct.pack_into(form, data, at, value)
        if crc:
            struct.pack_into(">I", data, 17, compute_crc(data))
        return data

    return change


def verdict(data: bytes | bytearray, version: int = 9, **settings: object) -> ErrorCode:
    try:
        validate(memoryview(bytearray(data)), Rules(TopicConfig(**settings)), NOW_MS, version)
    except KafkaError as error:
        assert error.message
        return error.code
    return ErrorCode.NONE


def test_what_stock_clients_send_is_taken() -> None:
    assert verdict(batch()) == ErrorCode.NONE
    assert verdict(batch(producer_id=5, producer_epoch=0, base_sequence=0)) == ErrorCode.NONE
    for codec in range(5):
        assert verdict(batch(codec=codec)) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d[:60], ErrorCode.INVALID_RECORD),
        (lambda d: bytearray(), ErrorCode.INVALID_RECORD),
        (lambda d: d[:-1], ErrorCode.INVALID_RECORD),
        (patch(">i", 8, -1), ErrorCode.CORRUPT_MESSAGE),
        (patch(">i", 8, 2**31 - 1), ErrorCode.INVALID_RECORD),
        (patch(">I", 17, 0, crc=False), ErrorCode.CORRUPT_MESSAGE),
        (patch(">b", 65, 1, crc=False), ErrorCode.CORRUPT_MESSAGE),
        (patch(">b", 16, 1), ErrorCode.INVALID_RECORD),
        (lambda d: d + d, ErrorCode.INVALID_RECORD),
        (lambda d: d + b"\0", ErrorCode.INVALID_RECORD),
        (patch(">q", 0, 5), ErrorCode.INVALID_RECORD),
        (patch(">i", 57, 1), ErrorCode.INVALID_RECORD),
        (patch(">i", 57, 0), ErrorCode.INVALID_RECORD),
        (patch(">i", 57, -2), ErrorCode.INVALID_RECORD),
        (lambda d: patch(">i", 23, -1)(patch(">i", 57, 0)(d)), ErrorCode.INVALID_RECORD),
        (patch(">i", 23, -1), ErrorCode.INVALID_RECORD),
        (patch(">h", 21, 0x20), ErrorCode.INVALID_RECORD),
        (patch(">q", 43, 7), ErrorCode.INVALID_RECORD),
        (patch(">h", 21, 0x08), ErrorCode.INVALID_TIMESTAMP),
        (patch(">h", 21, 0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (patch(">h", 21, 0x05), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_what_is_refused(change: Change, code: ErrorCode) -> None:
    assert verdict(change(batch())) == code


HEADER_FIELDS = [(">q", 0), (">b", 16), (">h", 21), (">i", 23), (">q", 43), (">h", 51), (">i", 53), (">i", 57)]
HEADER_CHANGES = [
    *((form, at, value) for (form, at), value in product(HEADER_FIELDS, range(-3, 40))),
    *((">q", 35, NOW_MS + ahead_ms) for ahead_ms in (499, 500, 501)),
]


@pytest.mark.parametrize(("limit", "version"), [(1 << 20, 9), (1 << 20, 6), (80, 9)])
def test_a_batch_is_refused_if_and_only_if_it_has_a_fault(limit: int, version: int) -> None:
    rules = Rules(TopicConfig(max_message_bytes=limit, message_timestamp_after_max_ms=500), "none")
    for (form, at, value), crc in product(HEADER_CHANGES, (True, False)):
        data = memoryview(patch(form, at, value, crc=crc)(batch()))
        found = list(faults(data, parse_header(data), rules, NOW_MS, version, False))
        try:
            validate(data, rules, NOW_MS, version)
        except KafkaError as error:
            assert found, (form, at, value)
            assert (error.code, error.message) == found[0] or not 0 <= data[16] <= 2
        else:
            assert not found, (form, at, value)


def test_zstd_needs_a_client_that_knows_it() -> None:
    assert verdict(batch(codec=CODECS["zstd"]), version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert verdict(batch(codec=CODECS["zstd"]), version=7) == ErrorCode.NONE


def test_sizes_are_limited() -> None:
    size = len(batch())
    assert verdict(batch(), max_message_bytes=size) == ErrorCode.NONE
    assert verdict(batch(), max_message_bytes=size - 1) == ErrorCode.MESSAGE_TOO_LARGE
    assert verdict(batch(), segment_bytes=size) == ErrorCode.NONE
    assert verdict(batch(), segment_bytes=size - 1) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_compacted_topic_needs_keys_and_names_the_records_without() -> None:
    for codec in (0, CODECS["lz4"]):
        data = build_batch([NewRecord(b"k", b"v"), NewRecord(None, b"v"), NewRecord(b"k", None)], codec=codec)
        assert verdict(data) == ErrorCode.NONE
        with pytest.raises(InvalidRecords) as raised:
            validate(memoryview(data), Rules(TopicConfig(cleanup_policy=("compact",))), NOW_MS, 9)
        assert raised.value.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in raised.value.record_errors] == [1]


def test_times_are_bounded_where_the_topic_says_so() -> None:
    def at(timestamp: int) -> bytearray:
        return build_batch([NewRecord(b"k", b"v", (), NOW_MS), NewRecord(b"k", b"v", (), timestamp)])

    bounds = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
    verdicts = {d: verdict(at(NOW_MS + d), **bounds) for d in (-1001, -1000, 0, 500, 501)}
    assert verdicts == {
        -1001: ErrorCode.INVALID_TIMESTAMP, -1000: ErrorCode.NONE, 0: ErrorCode.NONE, 500: ErrorCode.NONE,
        501: ErrorCode.INVALID_TIMESTAMP,
    }  # fmt: skip
    assert verdict(at(NOW_MS + 501), message_timestamp_type="LogAppendTime", **bounds) == ErrorCode.NONE
    assert verdict(at(-1), **bounds) == ErrorCode.NONE, "no timestamp is never too old"


def test_the_topics_codec_replaces_another_and_leaves_its_own() -> None:
    rules = Rules(TopicConfig(compression_type="zstd"))
    for codec in range(5):
        data = memoryview(batch(3, codec=codec, producer_id=7, producer_epoch=1, base_sequence=9))
        out, header = rewrite(data, parse_header(data), rules, NOW_MS)
        assert header.codec == CODECS["zstd"]
        assert header.crc == compute_crc(out)
        assert read_records(out) == read_records(data)
        assert header[9:] == parse_header(data)[9:]
        assert (out is data) == (codec == CODECS["zstd"])
    plain = memoryview(batch(codec=1))
    out, header = rewrite(plain, parse_header(plain), Rules(TopicConfig(compression_type="uncompressed")), NOW_MS)
    assert header.codec == 0


def test_recompressed_batches_are_measured_again() -> None:
    data = memoryview(build_batch([NewRecord(b"k", bytes(10_000))], codec=CODECS["gzip"]))
    for limits, code in (
        ({"max_message_bytes": 5000}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"segment_bytes": 5000}, ErrorCode.RECORD_LIST_TOO_LARGE),
    ):
        with pytest.raises(KafkaError) as raised:
            rewrite(data, parse_header(data), Rules(TopicConfig(compression_type="uncompressed", **limits)), NOW_MS)
        assert raised.value.code == code


def test_compressed_rubbish_is_an_invalid_record() -> None:
    data = batch(codec=CODECS["zstd"])
    data[70] ^= 0xFF
    struct.pack_into(">I", data, 17, compute_crc(data))
    assert verdict(data) == ErrorCode.INVALID_RECORD
    assert verdict(data, cleanup_policy=("compact",)) == ErrorCode.INVALID_RECORD


def test_the_brokers_time_is_stamped() -> None:
    data = memoryview(batch())
    _, header = rewrite(
        data, parse_header(data), Rules(TopicConfig(message_timestamp_type="LogAppendTime")), NOW_MS + 9
    )
    assert (header.timestamp_type, header.max_timestamp, header.crc) == (1, NOW_MS + 9, compute_crc(data))
    assert {record.timestamp for record in read_records(data)} == {NOW_MS + 9}


def test_bytes_behind_a_batch_are_another_batch_a_broken_one_or_too_few() -> None:
    good = batch()
    assert verdict(good + good) == ErrorCode.INVALID_RECORD
    assert verdict(good + good[:-1]) == ErrorCode.INVALID_RECORD
    assert verdict(good + b"x") == ErrorCode.INVALID_RECORD
    assert verdict(good + bytes(12)) == ErrorCode.CORRUPT_MESSAGE, "it has a length of 0"
    assert verdict(good + bytes(8) + b"\0\0\1\0" + b"\xff" * 5) == ErrorCode.CORRUPT_MESSAGE, "it has magic -1"
    assert verdict(patch(">i", 8, 20)(batch())[:40]) == ErrorCode.CORRUPT_MESSAGE, "32 bytes are no header"


def test_a_checksum_is_asked_for_before_the_codec() -> None:
    unknown = patch(">h", 21, 5)(batch())
    assert verdict(unknown) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert verdict(patch(">I", 17, 1, crc=False)(unknown)) == ErrorCode.CORRUPT_MESSAGE
    assert verdict(unknown, max_message_bytes=50) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("count", [2, 1500])
def test_where_records_are_read_their_own_times_decide(count: int) -> None:
    def times(last: int, **settings: int) -> ErrorCode:
        records = [NewRecord(b"k", b"v", (), NOW_MS)] * (count - 1) + [NewRecord(b"k", b"v", (), last)]
        data = patch(">q", 35, NOW_MS)(build_batch(records))
        return verdict(data, message_timestamp_before_max_ms=1000, **settings)

    assert times(NOW_MS + 5, message_timestamp_after_max_ms=5) == ErrorCode.NONE
    assert times(NOW_MS + 6, message_timestamp_after_max_ms=5) == ErrorCode.INVALID_TIMESTAMP
    assert times(NOW_MS - 1001) == ErrorCode.INVALID_TIMESTAMP
    assert times(-2) == ErrorCode.INVALID_TIMESTAMP
    assert times(-1) == ErrorCode.NONE


@pytest.mark.parametrize("count", [1, 1500])
def test_a_compacted_topic_takes_no_length_below_minus_one_either(count: int) -> None:
    data = build_batch([NewRecord(b"k", None)] * count)
    data[-2] = 0x03
    for settings in ({}, {"cleanup_policy": ("compact",)}):
        assert verdict(patch(">i", 0, 0)(data), **settings) == ErrorCode.INVALID_RECORD


def test_a_segment_has_room_for_what_the_topics_codec_makes_of_a_batch() -> None:
    rules = Rules(TopicConfig(compression_type="gzip", segment_bytes=300))
    for codec in (CODECS["none"], CODECS["gzip"]):
        data = memoryview(build_batch([NewRecord(b"k", bytes(1000), (), NOW_MS)], codec=codec))
        taken, _ = rewrite(data, BatchHeader._make(validate(data, rules, NOW_MS, 9)), rules, NOW_MS)
        assert len(taken) < 300
    large = memoryview(build_batch([NewRecord(b"k", bytes(200_000), (), NOW_MS)], codec=CODECS["gzip"]))
    with pytest.raises(KafkaError) as refusal:
        rewrite(large, BatchHeader._make(validate(large, rules, NOW_MS, 9)), rules, NOW_MS)
    assert refusal.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
