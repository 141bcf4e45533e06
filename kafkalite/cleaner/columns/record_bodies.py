"""What is left of the records of a batch, as it is written again.

Offset deltas stay, for the base offset stays. Times are counted from a new base: the time of the first record that is
left, or the delete horizon, if the batch has one. Where that is the old base the records' bytes are as they were;
elsewhere each gets a new length and time in front of bytes that are as they were. A batch whose times are the broker's
has its time as base, and zeros.
Source: org.apache.kafka.common.record.MemoryRecords.buildRetainedRecordsInto, MemoryRecordsBuilder; KIP-534.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalite.cleaner.columns.codec_contexts import Codecs
from kafkalite.cleaner.columns.record_keys import skip_varints
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.message_columns import varint_width, write_varints, zigzag
from kafkalite.record.columns.varint_columns import Bytes, read_varints

_CELL_BYTES = 16  # length, attributes and time of a record: 5 + 1 + 10 bytes at the most
NO_TIMESTAMP = -1


class Times(NamedTuple):
    """Of batches that are written again, one row each. `horizon` is -1 for a batch without one; `of_all` is the time of
    all records where that is the broker's (`is_of_all`)."""

    base: Array
    horizon: Array
    is_of_all: npt.NDArray[np.bool_]
    of_all: Array


class Bodies(NamedTuple):
    """What stands behind each batch's header, packed; and its two times."""

    body: list[bytes]
    base_timestamp: Array
    max_timestamp: Array


def build_bodies(
    data: Bytes, begin: Array, end: Array, count: Array, times: Times, codec: Array, codecs: Codecs
) -> Bodies:
    """`count` records for each batch, one at least, which lie from `begin` to `end`. Raises Corrupt."""
    first = np.cumsum(count) - count
    behind_length = skip_varints(data, begin)
    delta, behind_time = read_varints(data, behind_length + 1, 64)
    batch = np.repeat(np.arange(len(count)), count)
    timestamp = times.base[batch] + delta
    np.copyto(timestamp, times.of_all[batch], where=times.is_of_all[batch])
    base = np.where(times.horizon >= 0, times.horizon, timestamp[first])
    latest = np.maximum(np.maximum.reduceat(timestamp, first), NO_TIMESTAMP)
    latest = np.where(times.is_of_all, times.of_all, latest)
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
        bodies.append(codecs.pack(kind, body) if kind else body)
    return Bodies(bodies, base, latest)


def _cells(rest_bytes: Array, delta: Array) -> tuple[bytes, Array]:
    """Length, attributes (none are in use) and time of each record, in cells of 16 bytes, and where each ends.

    `rest_bytes` is what follows them.
    """
    time = zigzag(delta)
    length = zigzag(rest_bytes + 1 + varint_width(time))
    cells = np.zeros(len(delta) * _CELL_BYTES, np.uint8)
    begin = np.arange(0, len(cells), _CELL_BYTES)
    end = write_varints(cells, write_varints(cells, begin, length) + 1, time)
    return cells.tobytes(), end
