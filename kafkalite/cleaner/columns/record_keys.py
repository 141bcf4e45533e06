"""Keys of records as columns, and which records are tombstones: all that the cleaner wants to know of most of them.

Times, values and headers are not decoded: a varint that only has to be passed costs half of one that is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.varint_columns import Bytes, read_fields, read_varints, refuse

_NULL_SIZE = 1  # -1 as a varint
_VARINT_BYTES_MAX = 10
_ODD = 0x81  # a varint that goes on and is negative: -1 in more bytes than it needs, or nonsense


class RecordKeys(NamedTuple):
    """One row for each record. Starts and ends are positions in the data; `end` before `start` is a null key."""

    start: Array
    end: Array
    is_tombstone: Flags  # its value is null

    @property
    def is_there(self) -> Flags:
        there: Flags = self.end >= self.start
        return there


def read_keys(data: Bytes, begin: Array, end: Array) -> RecordKeys:
    """The keys of the records from `begin` to `end`. Raises Corrupt with the row of a record that is none."""
    at = skip_varints(data, begin) + 1  # its length, and one byte of attributes
    at = skip_varints(data, at)  # its time
    at = skip_varints(data, at)  # its number
    start, key_end, at = read_fields(data, at)
    refuse(at >= end, "a record whose key does not end in it")
    first = data.take(at)
    is_null = first == _NULL_SIZE
    odd = np.flatnonzero(first & _ODD == _ODD)
    if len(odd):
        is_null[odd] = read_varints(data, at[odd])[0] < 0
    return RecordKeys(start, key_end, is_null)


def read_offset_deltas(data: Bytes, begin: Array) -> Array:
    """The numbers of the records that begin at `begin`. Raises Corrupt."""
    at = skip_varints(data, begin) + 1
    delta, _ = read_varints(data, skip_varints(data, at))
    return delta.astype(np.int64)


def skip_varints(data: Bytes, at: Array) -> Array:
    """Where the varints at `at` end."""
    more = data.take(at, mode="clip") >> 7
    at = at + 1
    for _ in range(_VARINT_BYTES_MAX):
        if not more.any():
            return at
        at += more
        more &= data.take(at - 1, mode="clip") >> 7
    refuse(more != 0, f"a varint of more than {_VARINT_BYTES_MAX} bytes")
    return at
