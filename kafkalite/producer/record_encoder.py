"""Record batches from columns: the records of a batch lie side by side in one buffer that Arrow's kernel joins.

A record is a run of varints (its length, deltas, the key's length), the key, the value's length, the value, and the
headers. The varints of all records are made in numpy; one kernel joins the pieces, 75 ns a record and outside the
interpreter lock. The records of a batch are then a slice of the result.
Source: org.apache.kafka.common.record.{DefaultRecord, DefaultRecordBatch, MemoryRecordsBuilder}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.record.batch import HEADER_BYTES
from kafkalite.record.columns.varint_columns import encode_varint_rows, varint_sizes

Array = npt.NDArray[np.int64]

# so many bytes more than alone in its batch may a record need: for the deltas of time and offset, and its length
_DELTAS_BYTES_MAX = 9 + 4 + 1
_EMPTY = pa.scalar(b"", pa.binary())


class Rows(NamedTuple):
    """Records to be. `keys` and `values` are binary arrays, None where all are null. `headers` is a list of structs of
    key and value, None for none. `timestamps` in milliseconds."""

    keys: pa.Array | None
    values: pa.Array | None
    headers: pa.Array | None
    timestamps: Array

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, order: Array) -> Rows:
        """The rows in another order, or some of them."""
        chosen = pa.array(order)
        keys, values, headers = (None if field is None else field.take(chosen) for field in self[:3])
        return Rows(keys, values, headers, self.timestamps[order])

    def part(self, start: int, end: int) -> Rows:
        """The rows from `start` to before `end`, without a copy."""
        keys, values, headers = (None if field is None else field.slice(start, end - start) for field in self[:3])
        return Rows(keys, values, headers, self.timestamps[start:end])


class RecordRun(NamedTuple):
    """The records of one batch, uncompressed, and what the batch's header says of them."""

    records: memoryview
    record_count: int
    base_timestamp: int
    max_timestamp: int


def sizes_alone(rows: Rows) -> Array:
    """The bytes of a batch that holds this one record, for each row."""
    count = len(rows)
    keys, values = _lengths(rows.keys, count), _lengths(rows.values, count)
    body = 3 + varint_sizes(keys) + np.maximum(keys, 0) + varint_sizes(values) + np.maximum(values, 0)
    counts, entries = _headers(rows.headers, count)
    body += varint_sizes(counts)
    if entries is not None:
        body += _lengths(entries, count)
    size: Array = HEADER_BYTES + body + varint_sizes(body)
    return size


def cut(sizes: Array, batch_bytes: int, first: int = 0, end: int | None = None) -> list[int]:
    """Where batches of at most `batch_bytes` begin among the rows from `first` to `end`, whose `sizes_alone` these are.
    A row that is larger has a batch of its own."""
    end = len(sizes) if end is None else end
    ends = np.cumsum(sizes[first:end] + (_DELTAS_BYTES_MAX - HEADER_BYTES))
    starts, row, done = [], 0, 0
    while row < end - first:
        starts.append(first + row)
        row = max(row + 1, int(np.searchsorted(ends, done + batch_bytes - HEADER_BYTES, "right")))
        done = int(ends[row - 1])
    return starts


def encode(rows: Rows, starts: list[int]) -> list[RecordRun]:
    """The rows as the records of batches, of which each begins at a row of `starts`; the first is 0."""
    count = len(rows)
    if not count:
        return []
    bounds = np.array([*starts, count])
    first = np.repeat(bounds[:-1], np.diff(bounds))
    keys, values = _lengths(rows.keys, count), _lengths(rows.values, count)
    counts, entries = _headers(rows.headers, count)
    base_timestamps = rows.timestamps[bounds[:-1]]
    time_deltas = rows.timestamps - rows.timestamps[first]
    offset_deltas = np.arange(count) - first
    body = 1 + varint_sizes(time_deltas) + varint_sizes(offset_deltas)
    body += varint_sizes(keys) + np.maximum(keys, 0) + varint_sizes(values) + np.maximum(values, 0)
    body += varint_sizes(counts) + (0 if entries is None else _lengths(entries, count))
    # the attributes, a byte of zeros, are the varint 0
    head = _binary(*encode_varint_rows([body, np.zeros(count, np.int64), time_deltas, offset_deltas, keys]))
    pieces = [head, _or_empty(rows.keys), _binary(*encode_varint_rows([values])), _or_empty(rows.values)]
    if entries is None:
        pieces.append(pa.scalar(b"\0", pa.binary()))
    else:
        pieces += [_binary(*encode_varint_rows([counts])), entries]
    joined = _join(pieces)
    data, offsets = memoryview(joined.buffers()[2]).cast("B"), _offsets(joined)
    max_timestamps = np.maximum.reduceat(rows.timestamps, bounds[:-1])
    return [
        RecordRun(data[offsets[start] : offsets[end]], int(end - start), int(base), int(latest))
        for start, end, base, latest in zip(bounds[:-1], bounds[1:], base_timestamps, max_timestamps, strict=True)
    ]


def _headers(headers: pa.Array | None, count: int) -> tuple[Array, pa.Array | None]:
    """The number of headers of each row, and their bytes behind that number; None if no row has any."""
    if headers is None:
        return np.zeros(count, np.int64), None
    lists = headers.fill_null([]) if headers.null_count else headers
    lists_offsets = lists.offsets.to_numpy()
    counts = np.diff(lists_offsets).astype(np.int64)
    if not counts.any():
        return counts, None
    entries = lists.values.slice(int(lists_offsets[0]), int(lists_offsets[-1] - lists_offsets[0]))
    keys, values = (_as_binary(pc.struct_field(entries, [part])) for part in (0, 1))
    pieces = [
        _binary(*encode_varint_rows([_lengths(keys, len(keys))])),
        keys,
        _binary(*encode_varint_rows([_lengths(values, len(values))])),
        values,
    ]
    joined = _join(pieces)
    offsets = _offsets(joined)[lists_offsets - lists_offsets[0]]
    return counts, pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), joined.buffers()[2]])


def _join(pieces: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, _EMPTY, null_handling="replace", null_replacement=b"")


def _binary(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _as_binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _or_empty(array: pa.Array | None) -> pa.Array:
    return _EMPTY if array is None else array


def _lengths(array: pa.Array | None, count: int) -> Array:
    """The length of each value; -1 for null."""
    if array is None:
        return np.full(count, -1, np.int64)
    offsets = _offsets(array)
    lengths = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[pc.is_null(array).to_numpy(zero_copy_only=False)] = -1
    return lengths


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]
