"""The retained records of a batch, encoded as they are written again.

Offset deltas stay, for the base offset stays. Timestamp deltas have a new base: the timestamp of the first retained
record, or the delete horizon, if the batch has one. If that is the old base, the records' bytes are unchanged;
otherwise each record gets a new length and timestamp delta, and its other bytes are unchanged. A batch with
LogAppendTime has that time as its base, and zeros.
Source: org.apache.kafka.common.record.MemoryRecords.buildRetainedRecordsInto, MemoryRecordsBuilder; KIP-534.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalite.cleaner.columns.codec_contexts import Codecs
from kafkalite.cleaner.columns.record_keys import skip_varints
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.message_columns import varint_width, write_varints, zigzag
from kafkalite.record.columns.varint_columns import Bytes, read_varints

_CELL_BYTES = 16  # length, attributes and timestamp delta of a record: 5 + 1 + 10 bytes at most
NO_TIMESTAMP = -1


class Timestamps(NamedTuple):
    """Of batches that are written again, one row each. `delete_horizon` is -1 for a batch without one; `log_append` is
    the timestamp of all records of a batch with LogAppendTime."""

    base: Array
    delete_horizon: Array
    is_log_append: Flags
    log_append: Array


class Bodies(NamedTuple):
    """The bytes after each batch's header, compressed, and its two timestamps."""

    body: list[bytes]
    base_timestamp: Array
    max_timestamp: Array


def build_bodies(
    data: Bytes, begin: Array, end: Array, count: Array, timestamps: Timestamps, codec: Array, codecs: Codecs
) -> Bodies:
    """`count` records for each batch, at least one, from `begin` to `end`. Raises Corrupt."""
    first = np.cumsum(count) - count
    behind_length = skip_varints(data, begin)
    delta, behind_time = read_varints(data, behind_length + 1, 64)
    batch = np.repeat(np.arange(len(count)), count)
    timestamp = timestamps.base[batch] + delta
    np.copyto(timestamp, timestamps.log_append[batch], where=timestamps.is_log_append[batch])
    base = np.where(timestamps.delete_horizon >= 0, timestamps.delete_horizon, timestamp[first])
    latest = np.maximum(np.maximum.reduceat(timestamp, first), NO_TIMESTAMP)
    latest = np.where(timestamps.is_log_append, timestamps.log_append, latest)
    new_delta = timestamp - base[batch]
    view = data.data
    if (new_delta == delta).all():
        # neighbours are one piece
        goes_on = np.zeros(len(begin), np.bool_)
        goes_on[1:] = begin[1:] == end[:-1]
        goes_on[first] = False
        starts = np.flatnonzero(~goes_on)
        ends = end[np.append(starts[1:], len(end)) - 1]
        pieces: list[memoryview | bytes] = [
            view[a:b] for a, b in zip(begin[starts].tolist(), ends.tolist(), strict=True)
        ]
        first_piece = np.append(np.searchsorted(starts, first), len(starts)).tolist()
    else:
        cells, cell_end = _cells(end - behind_time, new_delta)
        pieces = [b""] * (2 * len(begin))
        pieces[0::2] = [cells[i * _CELL_BYTES : stop] for i, stop in enumerate(cell_end.tolist())]
        pieces[1::2] = [view[a:b] for a, b in zip(behind_time.tolist(), end.tolist(), strict=True)]
        first_piece = np.append(2 * first, len(pieces)).tolist()
    bodies = []
    for i, kind in enumerate(codec.tolist()):
        body = b"".join(pieces[first_piece[i] : first_piece[i + 1]])
        bodies.append(codecs.compress(kind, body) if kind else body)
    return Bodies(bodies, base, latest)


def _cells(rest_bytes: Array, delta: Array) -> tuple[bytes, Array]:
    """Length, attributes (none are in use) and timestamp delta of each record, in cells of 16 bytes, and where each
    ends. `rest_bytes` is the size of the rest of the record."""
    time = zigzag(delta)
    length = zigzag(rest_bytes + 1 + varint_width(time))
    cells = np.zeros(len(delta) * _CELL_BYTES, np.uint8)
    begin = np.arange(0, len(cells), _CELL_BYTES)
    end = write_varints(cells, write_varints(cells, begin, length) + 1, time)
    return cells.tobytes(), end
