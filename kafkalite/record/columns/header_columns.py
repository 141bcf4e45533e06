"""The headers of many records at once, as numpy columns.

The k-th headers of all records are decoded in one step; when few records have more, each is decoded by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafkalite.common.errors import Malformed
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes, Corrupt, read_fields, refuse
from kafkalite.record.record import read_varint

# below this width a plain loop wins
_LANES_MIN = 32


@dataclass(slots=True)
class HeaderColumns:
    """All headers of all records, in order. Record i has the rows from `first[i]` up to `first[i + 1]`."""

    first: Array
    key_start: Array
    key_end: Array
    value_start: Array
    value_end: Array  # before its start: the value is null


def walk_headers(data: Bytes, at: Array, end: Array, count: Array) -> tuple[HeaderColumns, Array]:
    """The headers of records with `count` each from `at` on, and the end of each record's last one.

    Raises Corrupt with the row of the record.
    """
    # at least two bytes each: the data bound the allocation
    refuse((count < 0) | (count * 2 > end - at), "a record with more headers than bytes")
    first = first_headers(count)
    out = HeaderColumns(first, *[np.empty(int(first[-1]), np.int64) for _ in range(4)])
    at = at.copy()
    rows = np.flatnonzero(count)
    step = 0
    while len(rows) >= _LANES_MIN:
        slot = first[rows] + step
        try:
            out.key_start[slot], out.key_end[slot], here = read_fields(data, at[rows])
            refuse(out.key_end[slot] < out.key_start[slot], "a header without a key")
            out.value_start[slot], out.value_end[slot], here = read_fields(data, here)
        except Corrupt as error:
            raise Corrupt(int(rows[error.row]), error.why) from None
        at[rows] = here
        step += 1
        rows = rows[count[rows] > step]
    view = data.data
    for row in rows.tolist():
        try:
            at[row] = _walk_alone(view, int(at[row]), out, range(int(first[row]) + step, int(first[row + 1])))
        except IndexError:
            raise Corrupt(row, "a header that is cut off") from None
        except Malformed as error:
            raise Corrupt(row, str(error)) from None
    return out, at


def _walk_alone(data: memoryview, position: int, out: HeaderColumns, slots: range) -> int:
    for slot in slots:
        size, position = read_varint(data, position)
        if size < 0:
            raise Malformed("a header without a key")
        out.key_start[slot] = position
        position += size
        out.key_end[slot] = position
        size, position = read_varint(data, position)
        out.value_start[slot] = position
        out.value_end[slot] = position + max(size, -1)
        position += max(size, 0)
    return position


def first_headers(counts: Array) -> Array:
    """The first row of each record in the header columns, and one past the last."""
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    return first


def join_headers(counts: Array, found: list[HeaderColumns]) -> HeaderColumns:
    """The headers of all blocks, concatenated; blocks without any left nothing in `found`."""
    none = [np.empty(0, np.int64)]
    return HeaderColumns(
        first_headers(counts),
        np.concatenate([block.key_start for block in found] or none),
        np.concatenate([block.key_end for block in found] or none),
        np.concatenate([block.value_start for block in found] or none),
        np.concatenate([block.value_end for block in found] or none),
    )
