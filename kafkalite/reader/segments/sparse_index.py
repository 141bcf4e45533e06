"""Look-ups in a segment's .index and .timeindex, a few entries at a time.

Entries ascend, so a look-up reads as many as bisection needs, and not the two megabytes that the index of a large
segment has. The file of an active segment is preallocated: zero entries behind the last one are padding. Entries are
hints (a crash may have left them short or wrong); whoever uses one looks at the place that it points to.
Source: org.apache.kafka.storage.internals.log.{OffsetIndex, TimeIndex}.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class SparseIndex:
    """The entries of an open index file; none if there is no such file. Entries are pairs of numbers as stored."""

    __slots__ = ("_entry", "_fd", "count", "last")

    def __init__(self, path: str, entry: struct.Struct) -> None:
        self._entry = entry
        self.count = 0
        self.last: tuple[int, int] | None = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1
            return
        slots = os.fstat(self._fd).st_size // entry.size
        last = self.entry(slots - 1) if slots else (0, 0)
        if last == (0, 0):
            slots = bisect_left(range(slots), True, key=lambda at: self.entry(at) == (0, 0))
            last = self.entry(slots - 1) if slots else (0, 0)
        self.count = slots
        self.last = last if slots else None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def entry(self, at: int) -> tuple[int, int]:
        data = os.pread(self._fd, self._entry.size, at * self._entry.size)
        if len(data) < self._entry.size:  # cut since it was opened
            return 0, 0
        first, second = self._entry.unpack(data)
        return first, second

    def last_where(self, holds: Callable[[tuple[int, int]], bool]) -> tuple[int, int] | None:
        """The last entry for which `holds`, which must hold for all before it; None without one."""
        at = bisect_left(range(self.count), True, key=lambda at: not holds(self.entry(at)))
        return self.entry(at - 1) if at else None


def open_offset_index(path: str) -> SparseIndex:
    """Entries of (offset - base offset, position): at the position a batch begins, up to there and with the batches
    appended with it the log reaches the offset."""
    return SparseIndex(path, _OFFSET_ENTRY)


def open_time_index(path: str) -> SparseIndex:
    """Entries of (timestamp in ms, offset - base offset): no record up to the offset is later than the timestamp."""
    return SparseIndex(path, _TIME_ENTRY)
