"""The records of many v2 batches at once, as numpy columns: for Spark, the cleaner, exact counts and checks.

`varint_columns` finds where each record begins; then all fields of all records are decoded, a block of records at a
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
from kafkalite.record.batch import HEADER_BYTES, Buffer
from kafkalite.record.columns.batch_columns import Array, Batches, Flags, scan
from kafkalite.record.columns.header_columns import HeaderColumns, join_headers, walk_headers
from kafkalite.record.columns.varint_columns import Bytes, Corrupt, find_records, read_fields, read_varints, refuse
from kafkalite.record.compression import UNPACKED_BYTES_MAX, decompress
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
        return len(self.offset)

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


def decode(
    data: Buffer, *, headers: bool = False, check_crc: bool = False, max_bytes: int = UNPACKED_BYTES_MAX
) -> Columns:
    """All records of the whole batches in `data`, except control batches.

    `headers`: decode their columns too, not only check them. `max_bytes` limits what any one batch unpacks to.
    Raises Malformed with the batch's base offset when its records are not what its header says.
    """
    return next(decode_groups(data, headers=headers, check_crc=check_crc, max_bytes=max_bytes))


def decode_groups(
    data: Buffer,
    *,
    group_bytes: int | None = None,
    headers: bool = False,
    check_crc: bool = False,
    max_bytes: int = UNPACKED_BYTES_MAX,
) -> Iterator[Columns]:
    """`decode` in groups, at least one, of about `group_bytes` of decompressed batches."""
    batches = scan(data, check_crc=check_crc)
    counts = batches.record_count
    if (counts < 0).any():
        raise _corrupt(batches, int(np.argmax(counts < 0)), "it has a negative number of records")
    full = batches.is_empty & (batches.size_bytes != HEADER_BYTES)
    if full.any():
        raise _corrupt(batches, int(np.argmax(full)), "it has bytes and no records")
    rows = np.flatnonzero((counts > 0) & ~batches.is_control)
    codecs = batches.codec[rows]
    starts = batches.position[rows] + HEADER_BYTES
    ends = batches.position[rows] + batches.size_bytes[rows]
    if not codecs.any():
        yield _decode(np.frombuffer(data, np.uint8), batches, rows, starts, ends, headers)
        return
    view = memoryview(data)
    pieces: list[Buffer] = []
    first = 0
    size = 0
    for i, (codec, start, end) in enumerate(zip(codecs.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        try:
            piece: Buffer = decompress(codec, view[start:end], max_bytes) if codec else view[start:end]
        except Malformed as error:
            raise _corrupt(batches, int(rows[i]), str(error)) from None
        pieces.append(piece)
        size += len(piece)
        if group_bytes is not None and size >= group_bytes:
            yield _decode_pieces(pieces, batches, rows[first : i + 1], headers)
            pieces, first, size = [], i + 1, 0
    if pieces:
        yield _decode_pieces(pieces, batches, rows[first:], headers)


def _decode_pieces(pieces: list[Buffer], batches: Batches, rows: Array, headers: bool) -> Columns:
    ends = np.cumsum([len(piece) for piece in pieces])
    return _decode(
        np.frombuffer(b"".join(pieces), np.uint8), batches, rows, ends - np.diff(ends, prepend=0), ends, headers
    )


def _decode(data: Bytes, batches: Batches, rows: Array, starts: Array, ends: Array, headers: bool) -> Columns:
    """The records of the batches `rows`, whose bodies are from `starts` to `ends`."""
    counts = batches.record_count[rows]
    too_many = counts * RECORD_BYTES_MIN > ends - starts
    if too_many.any():
        row = int(np.argmax(too_many))
        raise _corrupt(batches, int(rows[row]), f"{ends[row] - starts[row]} bytes cannot hold {counts[row]} records")
    batch = np.repeat(rows.astype(np.int32), counts)
    out = Columns(data, batches, batch, *[np.empty(len(batch), np.int64) for _ in range(10)])
    found: list[HeaderColumns] = []
    if len(batch):
        try:
            begins = find_records(data, starts, counts)
        except Corrupt as error:
            raise _corrupt(batches, int(rows[error.row]), error.why) from None
        _decode_blocks(out, begins, found if headers else None)
        # a record ends where the next one begins, since they were found so; the last one must end with its batch
        wrong = out.record_end[np.cumsum(counts) - 1] != ends
        if wrong.any():
            raise _corrupt(batches, int(rows[np.argmax(wrong)]), "its records do not end where it ends")
    if headers:
        out.headers = join_headers(out.header_count, found)
    return out


def _decode_blocks(out: Columns, begins: Array, found: list[HeaderColumns] | None) -> None:
    batches = out.batches
    base_offset = batches.base_offset
    base_timestamp = batches.column("base_timestamp")
    max_timestamp = batches.column("max_timestamp")
    append_time = batches.is_log_append_time
    any_append_time = append_time.any()
    for start in range(0, len(begins), _BLOCK_RECORDS):
        block = slice(start, start + _BLOCK_RECORDS)
        of = out.batch[block]
        try:
            _decode_block(out, block, begins[block], found)
        except Corrupt as error:
            raise _corrupt(batches, int(of[error.row]), error.why) from None
        out.offset[block] += base_offset.take(of)
        out.timestamp[block] += base_timestamp.take(of)
        if any_append_time:
            np.copyto(out.timestamp[block], max_timestamp.take(of), where=append_time.take(of))


def _decode_block(out: Columns, block: slice, begins: Array, found: list[HeaderColumns] | None) -> None:
    """Fill the rows `block` of `out` with the records that begin at `begins`; offsets and times are still deltas."""
    data = out.data
    size, at = read_varints(data, begins)
    refuse(size < 0, "a record of negative size")
    end = at + size
    out.record_start[block] = at
    out.record_end[block] = end
    out.timestamp[block], at = read_varints(data, at + 1, 64)  # one byte of attributes, none in use
    out.offset[block], at = read_varints(data, at)
    out.key_start[block], out.key_end[block], at = read_fields(data, at)
    out.value_start[block], out.value_end[block], at = read_fields(data, at)
    count, at = read_varints(data, at)
    out.header_start[block] = at
    out.header_count[block] = count
    if count.any():
        headers, at = walk_headers(data, at, end, count.astype(np.int64))
        if found is not None:
            found.append(headers)
    refuse(at != end, "a record whose fields do not end where it ends")


def _corrupt(batches: Batches, row: int, why: str) -> Malformed:
    return Malformed(f"the batch at offset {batches.heads['base_offset'][row]} is corrupt: {why}")
