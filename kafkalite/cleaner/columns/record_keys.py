"""Keys of records as columns, and flags for tombstones: all that the cleaner needs of most records.

Timestamps, values and headers are not decoded: skipping a varint costs half as much as reading it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.varint_columns import Bytes, read_fields, read_varints, refuse, skip_varints

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
