"""Columns say what the plain reader says, whatever the shape; and never read what is not theirs."""

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import (
    HEADER_BYTES,
    NewRecord,
    assemble,
    build_batch,
    compute_crc,
    encode_records,
    parse_header,
    stamp_log_append_time,
)
from kafkalite.record.columns import header_columns, varint_columns
from kafkalite.record.columns.batch_columns import scan
from kafkalite.record.columns.record_columns import Columns, CorruptBatch, Fields, decode, decode_rows
from kafkalite.record.compression import compress
from kafkalite.record.record import Record, read_records

COLUMNS_OF_FIELDS = (
    ("timestamp",),
    ("offset",),
    ("key_start", "key_end"),
    ("value_start", "value_end"),
    ("header_start", "header_count"),
)
SIZES = st.sampled_from([0, 1, 5, 63, 64, 70, 200, 8191, 8192, 20_000])
blobs = st.none() | SIZES.map(bytes) | st.binary(max_size=5)
some_headers = st.lists(st.tuples(st.sampled_from(["", "a", "trace-id", "é" * 40]), blobs), max_size=3).map(tuple)
records = st.builds(
    NewRecord, blobs, blobs, st.just(()) | some_headers, st.sampled_from([0, 5, -1]) | st.integers(0, 1 << 50)
)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Batches as they may follow one another in a segment."""
    out = []
    offset = draw(st.sampled_from([0, 7, 1 << 40]))
    for _ in range(draw(st.integers(0, 8))):
        rows = draw(st.lists(records, max_size=12))
        control = draw(st.integers(0, 9)) == 0
        steps = draw(st.lists(st.sampled_from([1, 1, 1, 100, 70_000]), min_size=len(rows), max_size=len(rows)))
        deltas = list(itertools.accumulate(steps, initial=-1))[1:]
        codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
        batch = build_batch(
            rows, base_offset=offset, codec=codec, control=control, offset_deltas=deltas, last_offset_delta=sum(steps)
        )
        if draw(st.integers(0, 3)) == 0:
            stamp_log_append_time(batch, 12345)
        out.append(bytes(batch))
        offset += sum(steps) + 1
    return out


def rows_of(columns: Columns) -> list[Record]:
    """The columns as the plain reader's records."""
    data = columns.data.tobytes()
    headers = columns.headers
    assert headers is not None

    def piece(start: int, end: int) -> bytes | None:
        assert 0 <= start <= len(data) and end <= len(data)
        return None if end < start else data[start:end]

    rows = []
    for i in range(len(columns)):
        slots = range(headers.first[i], headers.first[i + 1])
        assert len(slots) == columns.header_count[i]
        found = tuple(
            (
                data[headers.key_start[s] : headers.key_end[s]].decode(),
                piece(headers.value_start[s], headers.value_end[s]),
            )
            for s in slots
        )
        key = piece(columns.key_start[i], columns.key_end[i])
        value = piece(columns.value_start[i], columns.value_end[i])
        rows.append(Record(int(columns.offset[i]), int(columns.timestamp[i]), key, value, found))
    return rows


def plainly(parts: list[bytes]) -> list[Record]:
    return [record for part in parts if not part[22] & 0x20 for record in read_records(part)]


@pytest.mark.parametrize("lanes_min", [1, 4, 1000], ids=["lanes", "both", "hops"])
@settings(max_examples=50, deadline=None)
@given(parts=batches(), tail=st.binary(max_size=20))
def test_columns_say_what_the_plain_reader_says(lanes_min: int, parts: list[bytes], tail: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varint_columns, "LANES_MIN", lanes_min)
        patch.setattr(header_columns, "_LANES_MIN", lanes_min)
        data = b"".join(parts)
        columns = decode(data + tail[:12], headers=True, check_crc=True)
    assert columns.batches.consumed_bytes == len(data)
    assert len(columns.batches) == len(parts)
    assert rows_of(columns) == plainly(parts)
    assert columns.key_is_null.tolist() == [row.key is None for row in plainly(parts)]
    assert columns.value_is_null.tolist() == [row.value is None for row in plainly(parts)]
    of = columns.batch.tolist()
    assert columns.timestamp_type.tolist() == [parts[i][22] >> 3 & 1 for i in of]
    assert columns.batches.is_control.tolist() == [bool(part[22] & 0x20) for part in parts]
    assert columns.batches.is_empty.tolist() == [len(part) == HEADER_BYTES for part in parts]


def test_many_blocks_of_every_shape() -> None:
    rows = [NewRecord(b"%d" % i, b"v" * (i % 90), (("h", b"%d" % i),) * (i % 3), i) for i in range(20_000)]
    one = bytes(build_batch(rows))
    parts = [bytes(build_batch([row], base_offset=i)) for i, row in enumerate(rows)]
    mixed = [bytes(build_batch(rows[i : i + 50], base_offset=i, codec=i // 50 % 5)) for i in range(0, 20_000, 50)]
    expected = read_records(one)
    for data in (one, b"".join(parts), b"".join(mixed)):
        assert rows_of(decode(data, headers=True)) == expected
    found = scan(b"".join(mixed))
    every = np.arange(len(found))
    for limit in ({"group_bytes": 100_000}, {"group_records": 700}, {"group_records": 33}):
        groups = list(decode_rows(b"".join(mixed), found, every, headers=True, **limit))
        assert len(groups) > 5
        assert max(map(len, groups)) <= limit.get("group_records", 20_000)
        assert [row for group in groups for row in rows_of(group)] == expected


@settings(max_examples=60, deadline=None)
@given(parts=batches(), chosen=st.lists(st.booleans(), min_size=5, max_size=5), dense=st.booleans())
def test_fields_that_nobody_wants_change_nothing_in_the_others(
    parts: list[bytes], chosen: list[bool], dense: bool
) -> None:
    data = b"".join(parts)
    whole = decode(data)
    found = whole.batches
    rows = np.flatnonzero((found.record_count > 0) & ~found.is_control)
    fields = Fields(*chosen)
    groups = list(decode_rows(data, found, rows, fields=fields, dense_offsets=dense))
    assert sum(map(len, groups)) == len(whole)
    for group in groups:
        assert group.batch.tolist() == whole.batch.tolist()
        for wanted, names in zip(fields, COLUMNS_OF_FIELDS, strict=True):
            for name in names if wanted else ():
                assert getattr(group, name).tolist() == getattr(whole, name).tolist(), name


def test_without_headers_asked_for_they_are_checked_all_the_same() -> None:
    batch = build_batch([NewRecord(None, None, (("name", b"value"),))] * 3)
    columns = decode(batch)
    assert columns.headers is None
    assert columns.header_count.tolist() == [1, 1, 1]
    assert batch[columns.header_start[0] + 1 :].startswith(b"name")
    batch[columns.header_start[1]] = 0x40
    with pytest.raises(Malformed, match="offset 0"):
        decode(batch)


def test_uncompressed_data_is_not_copied() -> None:
    batch = build_batch([NewRecord(b"key", b"value")])
    columns = decode(memoryview(batch))
    assert np.shares_memory(columns.data, np.frombuffer(batch, np.uint8))


@settings(max_examples=80, deadline=None)
@given(parts=batches(), data=st.data())
def test_whatever_is_broken_both_readers_say_the_same(parts: list[bytes], data: st.DataObject) -> None:
    """Outside the header: there, lengths and counts are what both begin with."""
    parts = [part for part in parts if len(part) > HEADER_BYTES and not part[22] & 0x27]
    if not parts:
        return
    index = data.draw(st.integers(0, len(parts) - 1))
    broken = bytearray(parts[index])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(HEADER_BYTES, min(len(broken) - 1, HEADER_BYTES + 60)))
        broken[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    parts[index] = bytes(broken)
    try:
        expected = plainly(parts)
    except Malformed:
        offset = struct.unpack_from(">q", broken)[0]
        with pytest.raises(Malformed, match=f"offset {offset} is corrupt"):
            decode(b"".join(parts), headers=True)
    else:
        columns = decode(b"".join(parts), headers=True)
        assert columns.offset.tolist() == [row.offset for row in expected]
        assert columns.timestamp.tolist() == [row.timestamp for row in expected]
        lengths = np.where(columns.key_is_null, -1, columns.key_end - columns.key_start)
        assert lengths.tolist() == [-1 if row.key is None else len(row.key) for row in expected]


@pytest.mark.parametrize("lanes_min", [1, 2, 1000], ids=["lanes", "both", "hops"])
@pytest.mark.parametrize("size_bytes", [10, 500, 20_000])
def test_a_record_of_negative_size_is_malformed_wherever_it_stands(lanes_min: int, size_bytes: int) -> None:
    rows = [NewRecord(b"k", bytes(size_bytes))] * 4
    good = bytes(build_batch(rows))
    begins = varint_columns.find_records(np.frombuffer(good, np.uint8), np.array([HEADER_BYTES]), np.array([4]))
    for begin in begins.tolist():
        broken = bytearray(good)
        broken[begin] |= 1
        struct.pack_into(">q", broken, 0, 7)
        parts = [good, bytes(build_batch(rows[:2])), bytes(broken), good]
        with pytest.raises(Malformed, match="offset 7 is corrupt"):
            plainly(parts)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Malformed, match="offset 7 is corrupt"):
            patch.setattr(varint_columns, "LANES_MIN", lanes_min)
            decode(b"".join(parts))


@settings(max_examples=50, deadline=None)
@given(parts=batches(), data=st.data())
def test_any_bytes_end_in_columns_or_malformed(parts: list[bytes], data: st.DataObject) -> None:
    buffer = bytearray(b"".join(parts) or bytes(80))
    for _ in range(data.draw(st.integers(1, 6))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(buffer)))
    try:
        columns = decode(buffer[:cut], headers=True, max_bytes=1 << 20)
    except Malformed:
        return
    assert columns.batches.consumed_bytes <= cut
    for column in (columns.key_end, columns.value_end, columns.record_end):
        assert not len(column) or (column.min() + 1 >= 0 and column.max() <= len(columns.data))


def test_a_wrong_checksum_names_the_batch() -> None:
    first, second = build_batch([NewRecord(b"a", b"b")]), build_batch([NewRecord(b"a", b"b")], base_offset=1)
    second[-2] ^= 1
    decode(first + second)
    with pytest.raises(Malformed, match="offset 1 is corrupt: its checksum"):
        decode(first + second, check_crc=True)
    struct.pack_into(">I", second, 17, compute_crc(second))
    scan(first + second, check_crc=True)


def test_other_formats_are_named() -> None:
    batch = build_batch([NewRecord(b"a", b"b")])
    batch[16] = 1
    with pytest.raises(Malformed, match="magic 1: only format v2"):
        decode(batch)
    message = struct.pack(">qiIbbi", 0, 14, 0, 0, 0, -1) + struct.pack(">i", -1)
    with pytest.raises(Malformed, match="magic 0: only format v2"):
        decode(message * 3)


def test_nothing_is_nothing() -> None:
    for data in (b"", b"\0" * 11, bytes(build_batch([])), bytes(build_batch([NewRecord(b"k", b"v")], control=True))):
        columns = decode(data, headers=True)
        assert (len(columns), rows_of(columns)) == (0, [])


def test_a_record_of_very_many_headers_is_walked_alone() -> None:
    rows = [NewRecord(None, b"v", tuple((f"h{i}", b"x") for i in range(5_000))), NewRecord(None, b"w", (("a", None),))]
    batch = build_batch(rows)
    assert rows_of(decode(batch, headers=True)) == read_records(batch)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("dense", [True, False])
def test_a_batch_that_unpacks_to_more_than_a_group_comes_in_parts(codec: int, dense: bool) -> None:
    rows = [NewRecord(b"%d" % i, bytes(i % 3000), (("h", b"%d" % i),) * (i % 3), i) for i in range(700)]
    deltas = None if dense else range(0, 1400, 2)
    parts = [bytes(build_batch(rows, codec=codec, offset_deltas=deltas)),
             bytes(build_batch(rows[:3], base_offset=2000, codec=codec))]  # fmt: skip
    data = b"".join(parts)
    found = scan(data)
    how = {"headers": True, "dense_offsets": dense}
    groups = list(decode_rows(data, found, np.arange(2), group_bytes=100_000, **how))
    assert len(groups) > 4
    assert max(len(group.data) for group in groups) < 200_000
    assert [row for group in groups for row in rows_of(group)] == plainly(parts)
    with pytest.raises(Malformed, match=r"offset 0 is corrupt: .* more than 200000 bytes"):
        list(decode_rows(data, found, np.arange(2), group_bytes=100_000, max_bytes=200_000, **how))


@pytest.mark.parametrize("surplus", [b"\0", bytes(5000)], ids=["a byte", "too much"])
@pytest.mark.parametrize("group_bytes", [None, 100])
def test_bytes_behind_the_last_record_are_seen_in_a_block_of_their_own(surplus: bytes, group_bytes: int | None) -> None:
    rows = [NewRecord(b"k", b"some value")] * 20
    head = parse_header(build_batch(rows, codec=2))
    batch = bytes(assemble(head, compress(2, encode_records(rows, range(20), -1)) + compress(2, surplus)))
    with pytest.raises(Malformed, match="offset 0 is corrupt"):
        list(decode_rows(batch, scan(batch), np.arange(1), group_bytes=group_bytes, max_bytes=1000))
    with pytest.raises(Malformed, match="offset 0 is corrupt"):
        decode(batch, max_bytes=1000)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_broken_batch_in_parts_is_malformed_as_it_is_whole(data: st.DataObject) -> None:
    rows = [NewRecord(b"%d" % i, bytes(50)) for i in range(100)]
    body = bytearray(encode_records(rows, range(100), -1))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    header = parse_header(build_batch(rows))._replace(attributes=4)
    batch = bytes(assemble(header, compress(4, bytes(body))))
    found = scan(batch)

    def outcome(**how: int) -> list[Record] | None:
        try:
            groups = list(decode_rows(batch, found, np.arange(1), headers=True, **how))
        except CorruptBatch as error:
            assert error.row == 0
            return None
        return [row for group in groups for row in rows_of(group)]

    assert outcome(group_bytes=1000) == outcome()
