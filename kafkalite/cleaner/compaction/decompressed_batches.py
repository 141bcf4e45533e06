"""Groups of decompressed batches, concatenated, and columns of their records: positions in the data.

The keys of records and flags for tombstones are all that the cleaner needs of most records. Timestamps, values and
headers are not decoded: skipping a varint costs half as much as reading it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkalite.cleaner.compaction.segment_reader import BatchPiece
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import HEADER_BYTES
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.record_starts import find_records_of
from kafkalite.record.columns.varint_columns import Bytes, Corrupt, read_fields, read_varints, refuse, skip_varints
from kafkalite.record.compression import UnpackedTooLarge
from kafkalite.record.record import RECORD_BYTES_MIN

_NULL_SIZE = 1  # -1 as a varint
_ODD = 0x81  # the first byte of a negative varint of several bytes: an overlong -1, or a corrupt size


class RecordKeys(NamedTuple):
    """One row for each record. Starts and ends are positions in the data; `end` before `start` is a null key."""

    start: Array
    end: Array
    is_tombstone: Flags  # its value is null

    @property
    def is_present(self) -> Flags:
        present: Flags = self.end >= self.start
        return present


def read_keys(data: Bytes, begin: Array, end: Array) -> RecordKeys:
    """The keys of the records from `begin` to `end`. Raises Corrupt with the row of a malformed record."""
    at = skip_varints(data, begin) + 1  # its length, and a byte of attributes
    at = skip_varints(data, at)  # its timestamp delta
    at = skip_varints(data, at)  # its offset delta
    start, key_end, at = read_fields(data, at)
    refuse(at >= end, "a record whose key does not end in it")
    first = data.take(at)
    is_tombstone = first == _NULL_SIZE
    odd = np.flatnonzero(first & _ODD == _ODD)
    if len(odd):
        is_tombstone[odd] = read_varints(data, at[odd])[0] < 0
    return RecordKeys(start, key_end, is_tombstone)


def read_offset_deltas(data: Bytes, begin: Array) -> Array:
    """The offset deltas of the records at `begin`. Raises Corrupt."""
    at = skip_varints(data, begin) + 1
    delta, _ = read_varints(data, skip_varints(data, at))
    return delta.astype(np.int64)


GROUP_BYTES = 8 << 20
"""The limit of a group. A larger batch is a group by itself."""

RECORDS_MAX = 1 << 24
"""The limit of one batch, whose columns then take 1 GiB; a few compressed bytes could declare more."""


class RecordGroup(NamedTuple):
    """All records of the batches `rows`: `record_count` of each batch, and where each record begins (with its length)
    and ends in `data`."""

    data: Bytes
    rows: Array
    record_count: Array
    begin: Array
    end: Array

    @property
    def first(self) -> Array:
        """The number of each batch's first record in the columns."""
        first: Array = np.cumsum(self.record_count) - self.record_count
        return first


def decompress_batches(
    piece: BatchPiece, rows: Array, codecs: Codecs, group_bytes: int = GROUP_BYTES
) -> Iterator[RecordGroup]:
    """The records of the batches `rows` of a piece, in groups. Each batch must have records.

    The data of a group are valid until the next group is requested: all are decompressed into the same memory.
    Raises UnreadBatch behind the groups of the batches before it, CleaningFailed for a batch that is too large.
    """
    batches = piece.batches
    if not len(rows):
        return
    start = batches.position[rows] + HEADER_BYTES
    end = batches.position[rows] + batches.size_bytes[rows]
    codec = batches.codec[rows]
    if not codec.any():
        yield from _groups(piece, rows, np.frombuffer(piece.data, np.uint8), start, end)
        return
    room = codecs.room(group_bytes)
    data = np.frombuffer(room, np.uint8)
    ends: list[int] = []
    filled = first = 0
    for i, (kind, a, b) in enumerate(zip(codec.tolist(), start.tolist(), end.tolist(), strict=True)):
        try:
            found = codecs.decompress(kind, piece.data[a:b]) if kind else piece.data[a:b]
        except UnpackedTooLarge as error:
            raise piece.refuse(a - HEADER_BYTES, str(error)) from None
        except Malformed as error:
            if ends:
                yield from _groups(piece, rows[first:i], data[:filled], *_between(ends))
            raise UnreadBatch(int(rows[i]), str(error)) from None
        if filled + len(found) > len(room):
            if ends:
                yield from _groups(piece, rows[first:i], data[:filled], *_between(ends))
                filled, ends, first = 0, [], i
            if len(found) > len(room):
                yield from _groups(piece, rows[i : i + 1], np.frombuffer(found, np.uint8), *_between([len(found)]))
                first = i + 1
                continue
        room[filled : filled + len(found)] = found
        filled += len(found)
        ends.append(filled)
    if ends:
        yield from _groups(piece, rows[first:], data[:filled], *_between(ends))


def _between(ends: list[int]) -> tuple[Array, Array]:
    """The starts and ends of concatenated batches."""
    end = np.array(ends, np.int64)
    return end - np.diff(end, prepend=0), end


def _groups(piece: BatchPiece, rows: Array, data: Bytes, start: Array, end: Array) -> Iterator[RecordGroup]:
    """The group of the batches `rows`; if one of them cannot be read, that of those before it."""
    try:
        yield _group(piece, rows, data, start, end)
    except UnreadBatch as error:
        before = np.flatnonzero(rows < error.row)
        if len(before):
            yield _group(piece, rows[before], data, start[before], end[before])
        raise


def _group(piece: BatchPiece, rows: Array, data: Bytes, start: Array, end: Array) -> RecordGroup:
    batches = piece.batches
    count = batches.record_count[rows]
    wrong = (count < 0) | (count * RECORD_BYTES_MIN > end - start)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UnreadBatch(int(rows[row]), f"{end[row] - start[row]} bytes cannot hold {count[row]} records")
    many = count > RECORDS_MAX
    if many.any():
        at = int(batches.position[rows[np.argmax(many)]])
        raise piece.refuse(at, f"it holds {count.max()} records, and there is memory for {RECORDS_MAX}")
    is_dense = batches.column("last_offset_delta")[rows] + 1 == count
    try:
        return RecordGroup(data, rows, count, *find_records_of(data, start, end, count, is_dense))
    except Corrupt as error:
        raise UnreadBatch(int(rows[error.row]), error.why) from None


class UnreadBatch(Exception):
    """The records of the batch in `row` of the piece, whose checksum is right, contradict its header."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why


def corrupt(group: RecordGroup, error: Corrupt) -> UnreadBatch:
    """The exception to raise about the record `error.row` of a group."""
    row = int(np.searchsorted(group.first, error.row, "right")) - 1
    return UnreadBatch(int(group.rows[row]), error.why)


def offsets_of(piece: BatchPiece, group: RecordGroup) -> Array:
    """The offset of each record.

    A batch that never lost a record has as many records as offsets, so its records need not be read. Raises
    UnreadBatch.
    """
    batches = piece.batches
    rows, count = group.rows, group.record_count
    first = group.first
    offset = np.arange(len(group.begin)) + np.repeat(batches.base_offset[rows] - first, count)
    sparse = np.flatnonzero(np.repeat(batches.column("last_offset_delta")[rows] + 1 != count, count))
    if len(sparse):
        try:
            delta = read_offset_deltas(group.data, group.begin[sparse])
        except Corrupt as error:
            raise corrupt(group, Corrupt(int(sparse[error.row]), error.why)) from None
        batch = np.searchsorted(first, sparse, "right") - 1
        last = batches.column("last_offset_delta")[rows[batch]]
        wrong = (delta < 0) | (delta > np.maximum(last, count[batch] - 1))
        if wrong.any():
            row = int(sparse[np.argmax(wrong)])
            raise corrupt(group, Corrupt(row, "a record whose offset is not in the batch"))
        # a record behind the last offset of its batch counts as the last: those of the next batch are above it
        offset[sparse] = batches.base_offset[rows[batch]] + np.minimum(delta, last)
    return offset
