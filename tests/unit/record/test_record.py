"""The plain reader keeps Kafka's rules for records."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import HEADER_BYTES, NewRecord, append_varint, build_batch, stamp
from kafkalite.record.record import Record, read_records, read_varint, record_times


@settings(deadline=None)
@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_varints_come_back(value: int) -> None:
    out = bytearray(b"..")
    append_varint(out, value)
    assert read_varint(bytes(out), 2) == (value, len(out))
    assert len(out) <= 7


@settings(deadline=None)
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varlongs_come_back(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varint(bytes(out), 0, 64) == (value, len(out))


def test_varints_that_do_not_end_are_malformed() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0) == (-(1 << 31), 5)
    with pytest.raises(Malformed):
        read_varint(b"\xff" * 5, 0)
    with pytest.raises(Malformed):
        read_varint(b"\xff" * 10, 0, 64)


def test_records_carry_what_was_written() -> None:
    batch = build_batch(
        [NewRecord(b"k", None, (("é", b"1"), (b"raw", None)), 50), NewRecord(None, b"v", (), 40)], codec=3
    )
    stamp(batch, 1000, 1)
    assert read_records(batch) == [
        Record(1000, 50, b"k", None, (("é", b"1"), ("raw", None))),
        Record(1001, 40, None, b"v", ()),
    ]


def test_header_names_need_not_be_utf_8() -> None:
    assert read_records(build_batch([NewRecord(None, None, ((b"\xff", None),))]))[0].headers == (("�", None),)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (bytes.fromhex("0e 00 00 00 01 01 00 00"), "ends"),  # a body of 7 bytes whose fields have 6
        (bytes.fromhex("0c 00 00 00 01 01 01"), "-1 headers"),
        (bytes.fromhex("10 00 00 00 01 01 02 01 00"), "without a key"),
        (bytes.fromhex("0c 00 00 00 40 01 00"), "field of 32"),
        (bytes.fromhex("0b 00 00 00 01 01 00"), "record of -6"),
        (bytes.fromhex("7e 00 00 00 01 01 00"), "record of 63"),
        (bytes.fromhex("0c 00 00 00 01 01 00 ff"), "1 bytes after"),
        (bytes.fromhex("0c 00 ff ff ff ff ff"), "inside a record"),
    ],
)
def test_records_that_break_a_rule_are_malformed(body: bytes, why: str) -> None:
    batch = bytearray(build_batch([NewRecord(None, None)])[:HEADER_BYTES] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    with pytest.raises(Malformed, match=f"offset 0 .*{why}"):
        read_records(batch)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_times_are_read_without_the_rest(codec: int, timestamp_type: int) -> None:
    new = [NewRecord(b"k" * i, b"v" * 100, (("h", b"x"),), 1000 + i * (-1) ** i * 90) for i in range(70)]
    batch = build_batch(new, base_offset=500, codec=codec, timestamp_type=timestamp_type)
    assert list(record_times(batch)) == [(record.offset, record.timestamp) for record in read_records(batch)]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("0b 00 00 00 01 01 00", "record of -6"),
        ("7e 00 00 00 01 01 00", "record of 63"),
        ("02 00 00 00 01 01 00", "record of 1"),
        ("0c 00 ff ff ff ff ff", "inside a record"),
        ("0c 00", "cannot hold"),
    ],
)
def test_times_that_are_not_there_are_malformed(body: str, why: str) -> None:
    batch = bytearray(build_batch([NewRecord(None, None)])[:HEADER_BYTES] + bytes.fromhex(body))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    with pytest.raises(Malformed, match=f"offset 0 .*{why}"):
        list(record_times(batch))


def test_a_batch_may_not_unpack_to_more_than_allowed() -> None:
    batch = build_batch([NewRecord(None, bytes(10_000))], codec=4)
    assert read_records(batch, 20_000)
    with pytest.raises(Malformed, match="more than 5000"):
        read_records(batch, 5_000)
    with pytest.raises(Malformed, match="more than 5000"):
        list(record_times(batch, 5_000))


def test_a_packed_batch_may_not_hold_more_records_than_allowed() -> None:
    new = [NewRecord(b"", None)] * 20
    assert len(read_records(build_batch(new, codec=4), max_records=20)) == 20
    with pytest.raises(Malformed, match="20 records, more than 19"):
        read_records(build_batch(new, codec=4), max_records=19)
    assert len(read_records(build_batch(new), max_records=19)) == 20  # what is not packed is as long as it is
