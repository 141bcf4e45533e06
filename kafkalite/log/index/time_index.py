"""Sparse index from timestamps to offsets.

One 12-byte entry: timestamp in ms (i8), relative offset (i4), big-endian, timestamps strictly ascending. The timestamp
is the largest up to that offset, and belongs to the batch that ends with the offset. So every record with a later
timestamp lies behind. One slot stays free for the entry that seals the segment.
Source: org.apache.kafka.storage.internals.log.TimeIndex; KIP-33.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

from kafkalite.log.index.mapped_index import MappedIndex

ENTRY = struct.Struct(">qi")
_pack = ENTRY.pack_into
_unpack = ENTRY.unpack_from


class TimeIndex(MappedIndex):
    """Entries of (timestamp, offset)."""

    ENTRY_BYTES = 12

    __slots__ = ()

    @property
    def is_full(self) -> bool:
        return self.entries >= self.entries_max - 1

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Adds an entry: no record up to `offset` is later than `timestamp_ms`. Raises OSError when the disk is full.

        The index must be open for writing, the timestamp later than the last entry's.
        """
        at = self.entries * 12
        if at + 12 > self._claimed_bytes:
            self._claim(at + 12)
        _pack(self._data, at, timestamp_ms, offset - self.base_offset)  # type: ignore[arg-type]
        self.entries += 1

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) when there is none. Raises OSError."""
        data = self.view()
        if not self.entries:
            return -1, self.base_offset
        timestamp_ms, relative = _unpack(data, (self.entries - 1) * 12)
        return timestamp_ms, self.base_offset + relative

    def offset_before(self, timestamp_ms: int) -> int:
        """The offset of the last entry at or before `timestamp_ms`: no record up to it is later. Raises OSError."""
        data = self.view()
        count = bisect_right(range(self.entries), timestamp_ms, key=lambda at: _unpack(data, at * 12)[0])
        return self.base_offset + _unpack(data, (count - 1) * 12)[1] if count else self.base_offset

    def is_possible(self, log_bytes: int) -> bool:
        before = (-1, -1)
        for entry in ENTRY.iter_unpack(self.view()[: self.entries * 12]):
            if not (entry[0] > before[0] and entry[1] > before[1]):
                return False
            before = entry
        return True

    def all(self) -> list[tuple[int, int]]:
        """Every (timestamp, offset), for tools and tests. Raises OSError."""
        data = self.view()
        return [(t, self.base_offset + r) for t, r in ENTRY.iter_unpack(data[: self.entries * 12])]

    def _count_below(self, relative_offset: int) -> int:
        data = self.view()
        return bisect_left(range(self.entries), relative_offset, key=lambda at: _unpack(data, at * 12)[1])
