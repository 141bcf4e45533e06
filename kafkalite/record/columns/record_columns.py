"""The records of many v2 batches at once, as numpy columns: for Spark, the cleaner, exact counts and checks.

`record_starts` finds where each record begins; then all fields of all records are decoded, a block of records at a
time, field by field, varints as gathered bytes. Keys, values and headers are not copied: their columns are positions in
`Columns.data`, which is the caller's buffer, or a new one where batches are compressed.
Nothing outside the buffer is read, even if lengths are wrong: positions are clipped while reading, can only grow, and
must finally equal the end that the batch declares.
`record.read_records` is the plain version, with which tests/unit/record/columns/test_record_columns.py compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import HEADER_BYTES, Buffer
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.columns.batch_columns import Array, Batches, Flags, scan
from kafkalite.record.columns.header_columns import HeaderColumns, join_headers, walk_headers
from kafkalite.record.columns.record_starts import find_records_of
from kafkalite.record.columns.varint_columns import (
    Bytes,
    Corrupt,
    read_fields,
    read_varints,
    refuse,
    skip_varints,
    whole_records,
)
from kafkalite.record.compression import UNPACKED_BYTES_MAX, UnpackedTooLarge, decompress_pieces
from kafkalite.record.record import RECORD_BYTES_MIN

# a block's columns stay in the second-level cache
_BLOCK_RECORDS = 16384


@dataclass(slots=True)
class Columns:
    """Records, one row each, in the order of the log. Starts and ends are positions in `data`.

    A key or value whose end lies before its start is null.
    """

    data: Bytes
    batches: Batches
    batch: npt.NDArray[np.int32]  # the row of `batches` that the record is in
    offset: Array
    timestamp: Array  # milliseconds; -1 is none
    record_start: Array  # the record's body, behind its length
    record_end: Array
    key_start: Array
    key_end: Array
    value_start: Array
    value_end: Array
    header_start: Array  # its first header, behind their count
    header_count: Array
    headers: HeaderColumns | None = field(default=None, init=False)  # on request

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def timestamp_type(self) -> npt.NDArray[np.int32]:
        """0 CreateTime, 1 LogAppendTime."""
        return self.batches.is_log_append_time.astype(np.int32).take(self.batch)

    @property
    def key_is_null(self) -> Flags:
        return self.key_end < self.key_start

    @property
    def value_is_null(self) -> Flags:
        return self.value_end < self.value_start


class Fields(NamedTuple):
    """The fields of a record to decode. Those behind the last of them are neither read nor checked, and the columns
    of the others stay empty, but for a key's or value's in front of it. `headers` are their counts and a check."""

    timestamp: bool = True
    offset: bool = True
    key: bool = True
    value: bool = True
    headers: bool = True


ALL_FIELDS = Fields()


class CorruptBatch(Malformed):
    """The records of the batch in `row` of the caller's batches contradict its header."""

    def __init__(self, row: int, base_offset: int, why: str) -> None:
        super().__init__(f"the batch at offset {base_offset} is corrupt: {why}")
        self.row = row
        self.why = why


def decode(
    data: Buffer, *, headers: bool = False, check_crc: bool = False, max_bytes: int = UNPACKED_BYTES_MAX
) -> Columns:
    """All records of the whole batches in `data`, except control batches.

    `headers`: decode their columns too, not only check them. `max_bytes` limits what any one batch unpacks to.
    Raises Malformed with the batch's base offset when its records contradict its header.
    """
    batches = scan(data, check_crc=check_crc)
    _refuse_impossible(batches)
    rows = np.flatnonzero((batches.record_count > 0) & ~batches.is_control)
    groups = decode_rows(data, batches, rows, headers=headers, max_bytes=max_bytes)
    return next(groups, None) or _no_records(np.frombuffer(data, np.uint8), batches, headers)


def _refuse_impossible(batches: Batches) -> None:
    """Raises CorruptBatch for a header that contradicts itself."""
    counts = batches.record_count
    if (counts < 0).any():
        raise _corrupt(batches, int(np.argmax(counts < 0)), "it has a negative number of records")
    full = batches.is_empty & (batches.size_bytes != HEADER_BYTES)
    if full.any():
        raise _corrupt(batches, int(np.argmax(full)), "it has bytes and no records")


def decode_rows(
    data: Buffer,
    batches: Batches,
    rows: Array,
    *,
    fields: Fields = ALL_FIELDS,
    headers: bool = False,
    dense_offsets: bool = False,
    group_bytes: int | None = None,
    group_records: int | None = None,
    max_bytes: int = UNPACKED_BYTES_MAX,
    codecs: Codecs | None = None,
) -> Iterator[Columns]:
    """The records of the batches `rows` of `data`, each with one record at least, in groups.

    A group is of about `group_bytes` of decompressed batches, with `headers` an eighth of it, since their columns may
    take far more, and of at most `group_records`; without these limits there is one. `dense_offsets`: where a batch's
    header shows that its offsets have no gap, they are not read. Raises CorruptBatch.
    """
    if not len(rows):
        return
    starts = batches.position[rows] + HEADER_BYTES
    ends = batches.position[rows] + batches.size_bytes[rows]
    how = _How(fields, headers, dense_offsets, group_records, group_bytes)
    if not batches.codec[rows].any():
        yield from _decode(np.frombuffer(data, np.uint8), batches, rows, starts, ends, how)
        return
    yield from _unpack(memoryview(data), batches, rows, how, codecs or Codecs(), max_bytes)


def _unpack(
    view: memoryview, batches: Batches, rows: Array, how: _How, codecs: Codecs, max_bytes: int
) -> Iterator[Columns]:
    """The records of batches of which some are compressed."""
    limit = max_bytes if how.group_bytes is None else min(max_bytes, how.group_bytes)
    starts = batches.position[rows] + HEADER_BYTES
    ends = batches.position[rows] + batches.size_bytes[rows]
    records = np.cumsum(batches.record_count[rows]).tolist()
    pieces: list[Buffer] = []
    first = size = done = 0
    for i, (codec, start, end) in enumerate(
        zip(batches.codec[rows].tolist(), starts.tolist(), ends.tolist(), strict=True)
    ):
        try:
            pieces.append(codecs.decompress(codec, view[start:end], limit) if codec else view[start:end])
        except UnpackedTooLarge as error:
            if limit == max_bytes:
                raise _corrupt(batches, int(rows[i]), str(error)) from None
            yield from _decode_pieces(pieces, batches, rows[first:i], how)
            unpacked = decompress_pieces(codec, view[start:end], max_bytes, limit >> 2)
            yield from _decode_stream(unpacked, batches, int(rows[i]), how)
            first, size, done = i + 1, 0, records[i]
            continue
        except Malformed as error:
            raise _corrupt(batches, int(rows[i]), str(error)) from None
        size += len(pieces[-1])
        is_large = how.group_bytes is not None and size >= how.group_bytes
        if is_large or (how.group_records is not None and records[i] - done >= how.group_records):
            yield from _decode_pieces(pieces, batches, rows[first : i + 1], how)
            first, size, done = i + 1, 0, records[i]
    yield from _decode_pieces(pieces, batches, rows[first:], how)


class _How(NamedTuple):
    fields: Fields
    headers: bool
    dense_offsets: bool
    group_records: int | None
    group_bytes: int | None


def _decode_pieces(pieces: list[Buffer], batches: Batches, rows: Array, how: _How) -> Iterator[Columns]:
    if not pieces:
        return
    ends = np.cumsum([len(piece) for piece in pieces])
    data = np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), np.uint8)
    pieces.clear()  # not beside the copy
    yield from _decode(data, batches, rows, ends - np.diff(ends, prepend=0), ends, how)


def _decode(data: Bytes, batches: Batches, rows: Array, starts: Array, ends: Array, how: _How) -> Iterator[Columns]:
    """The records of the batches `rows`, whose bodies are from `starts` to `ends`."""
    counts = batches.record_count[rows]
    too_many = counts * RECORD_BYTES_MIN > ends - starts
    if too_many.any():
        row = int(np.argmax(too_many))
        raise _corrupt(batches, int(rows[row]), f"{ends[row] - starts[row]} bytes cannot hold {counts[row]} records")
    is_dense = batches.column("last_offset_delta")[rows] + 1 == counts
    try:
        begins, record_ends = find_records_of(data, starts, ends, counts, is_dense)
    except Corrupt as error:
        raise _corrupt(batches, int(rows[error.row]), error.why) from None
    offset: Array | None = None
    if how.fields.offset and how.dense_offsets and is_dense.all():
        # the delta of a record in a batch without gaps: its number in the group, less that of the batch's first
        offset = np.repeat(batches.base_offset[rows] - np.cumsum(counts) + counts, counts)
        offset += np.arange(len(offset))
    yield from _decode_found(data, batches, np.repeat(rows.astype(np.int32), counts), begins, record_ends, offset, how)


def _decode_found(
    data: Bytes,
    batches: Batches,
    batch: npt.NDArray[np.int32],
    begins: Array,
    record_ends: Array,
    offset: Array | None,
    how: _How,
) -> Iterator[Columns]:
    """The records from `begins` to `record_ends`, in parts. Their offsets are decoded if there is no `offset`."""
    for part in _parts(begins, record_ends, how):
        out = _empty(data, batches, batch[part], record_ends[part], how.fields)
        found: list[HeaderColumns] = []
        _decode_blocks(out, begins[part], found if how.headers else None, how.fields, offset is None)
        if offset is not None:
            out.offset = offset[part]
        if how.headers:
            out.headers = join_headers(out.header_count, found)
        yield out


def _decode_stream(pieces: Iterator[bytes], batches: Batches, row: int, how: _How) -> Iterator[Columns]:
    """The records of one batch that unpacks to more than a group, some pieces at a time."""
    count = int(batches.record_count[row])
    is_dense = int(batches.heads["last_offset_delta"][row]) + 1 == count
    base_offset = int(batches.heads["base_offset"][row])
    done = 0
    rest = b""
    for piece in _corrupt_pieces(pieces, batches, row):
        rest += piece
        if done == count and rest:
            break
        begins, end = whole_records(rest, count - done)
        if not len(begins):
            continue
        batch = np.full(len(begins), row, np.int32)
        ends = np.append(begins[1:], end)
        offset = None
        if how.fields.offset and how.dense_offsets and is_dense:
            offset = np.arange(base_offset + done, base_offset + done + len(begins))
        yield from _decode_found(np.frombuffer(rest, np.uint8), batches, batch, begins, ends, offset, how)
        done += len(begins)
        rest = rest[end:]
    if done < count or rest:
        raise _corrupt(batches, row, "its records do not end where it ends")


def _corrupt_pieces(pieces: Iterator[bytes], batches: Batches, row: int) -> Iterator[bytes]:
    try:
        yield from pieces
    except Malformed as error:
        raise _corrupt(batches, row, str(error)) from None


def _parts(begins: Array, ends: Array, how: _How) -> Iterator[slice]:
    """The records of a group in parts that are within the limits."""
    start = 0
    while start < len(begins):
        stop = len(begins)
        if how.group_records is not None:
            stop = min(stop, start + how.group_records)
        if how.group_bytes is not None and how.headers:
            far = begins[start] + (how.group_bytes >> 3)
            stop = min(stop, max(start + 1, int(np.searchsorted(ends, far, "right"))))
        yield slice(start, stop)
        start = stop


def _empty(data: Bytes, batches: Batches, batch: npt.NDArray[np.int32], ends: Array, fields: Fields) -> Columns:
    count = len(batch)
    behind = fields.key or fields.value or fields.headers, fields.value or fields.headers, fields.headers

    def column(wanted: bool) -> Array:
        return np.empty(count if wanted else 0, np.int64)

    return Columns(
        data, batches, batch, column(fields.offset), column(fields.timestamp), column(True), ends,
        *[column(each) for each in behind for _ in range(2)],
    )  # fmt: skip


def _no_records(data: Bytes, batches: Batches, headers: bool) -> Columns:
    none = np.empty(0, np.int64)
    out = _empty(data, batches, np.empty(0, np.int32), none, ALL_FIELDS)
    if headers:
        out.headers = join_headers(none, [])
    return out


def _decode_blocks(
    out: Columns, begins: Array, found: list[HeaderColumns] | None, fields: Fields, read_offsets: bool
) -> None:
    batches = out.batches
    base_offset = batches.base_offset
    base_timestamp = batches.column("base_timestamp")
    max_timestamp = batches.column("max_timestamp")
    append_time = batches.is_log_append_time
    any_append_time = append_time.any()
    fields = fields._replace(offset=fields.offset and read_offsets)
    for start in range(0, len(begins), _BLOCK_RECORDS):
        block = slice(start, start + _BLOCK_RECORDS)
        of = out.batch[block]
        try:
            _decode_block(out, block, begins[block], found, fields)
        except Corrupt as error:
            raise _corrupt(batches, int(of[error.row]), error.why) from None
        if fields.offset:
            out.offset[block] += base_offset.take(of)
        if fields.timestamp:
            out.timestamp[block] += base_timestamp.take(of)
            if any_append_time:
                np.copyto(out.timestamp[block], max_timestamp.take(of), where=append_time.take(of))


def _decode_block(out: Columns, block: slice, begins: Array, found: list[HeaderColumns] | None, fields: Fields) -> None:
    """Fill the rows `block` of `out` with the records that begin at `begins`; offsets and times are still deltas."""
    data = out.data
    end = out.record_end[block]
    at = skip_varints(data, begins, 32)  # the length, by which the end was found
    out.record_start[block] = at
    at = at + 1  # one byte of attributes, none in use
    if fields.timestamp:
        out.timestamp[block], at = read_varints(data, at, 64)
    else:
        at = skip_varints(data, at)
    if fields.offset:
        out.offset[block], at = read_varints(data, at)
    elif len(out.key_start):
        at = skip_varints(data, at, 32)
    if len(out.key_start):
        out.key_start[block], out.key_end[block], at = read_fields(data, at)
    if len(out.value_start):
        out.value_start[block], out.value_end[block], at = read_fields(data, at)
    if not fields.headers:
        refuse(at > end, "a record whose fields do not end where it ends")
        return
    count, at = read_varints(data, at)
    out.header_start[block] = at
    out.header_count[block] = count
    if count.any():
        headers, at = walk_headers(data, at, end, count.astype(np.int64))
        if found is not None:
            found.append(headers)
    refuse(at != end, "a record whose fields do not end where it ends")


def _corrupt(batches: Batches, row: int, why: str) -> CorruptBatch:
    return CorruptBatch(row, int(batches.heads["base_offset"][row]), why)
