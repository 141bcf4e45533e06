"""The sparse indexes of a segment: from offsets to file positions, and from timestamps to offsets.

    .index      8 bytes an entry: relative offset (i4), position (i4)
                The offset is the last one of an append, the position is where that append begins, so a reader takes the
                entry at or below its offset and scans on from there.
    .timeindex  12 bytes an entry: timestamp in ms (i8), relative offset (i4)
                The timestamp is the largest up to that offset, and belongs to the batch that ends with the offset. So
                every record with a later timestamp lies behind. One slot stays free for the entry that seals it.

One entry per `index.interval.bytes` of log, big-endian, ascending. Write the bytes first, then the entry: a missing
entry is harmless (a longer scan), a wrong one is not.
While its segment grows a file is preallocated (sparse) and mapped, so that an entry costs no system call; when the
segment is sealed it is cut to its entries. It is mapped when first needed and can be unmapped at any time (`release`).
Zero entries after the last are padding that an unclean stop left. Pages are allocated before the first entry is written
into them: writing through a map into a hole of a full disk would kill the process (SIGBUS).
A reader beside the broker maps nothing, since the broker may cut the file: an `IndexFile` reads the few entries that a
look-up needs.
Source: org.apache.kafka.storage.internals.log.{AbstractIndex, LazyIndex, OffsetIndex, TimeIndex}; KIP-33.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Callable
from typing import ClassVar

from kafkalite.log.storage.files import Files

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")

_PAGE_BYTES = mmap.PAGESIZE
_pack_offset = OFFSET_ENTRY.pack_into
_unpack_offset = OFFSET_ENTRY.unpack_from
_pack_time = TIME_ENTRY.pack_into
_unpack_time = TIME_ENTRY.unpack_from


def count_entries(slots: int, is_padding: Callable[[int], bool]) -> int:
    """How many of the slots of a file hold entries: all, but for padding at the end."""
    if slots and is_padding(slots - 1):
        return bisect_left(range(slots), True, key=is_padding)
    return slots


class MappedIndex:
    """Base of both. `entries` is the number in use, -1 until the file was opened; `entries_max` the number that fit.

    Invariant: entries ascend; `_data` holds at least `entries * ENTRY.size` bytes when it is not None.
    """

    ENTRY: ClassVar[struct.Struct]
    OFFSET_COLUMN: ClassVar[int]

    __slots__ = ("_claimed_bytes", "_data", "_files", "base_offset", "entries", "entries_max", "path")

    def __init__(self, path: str, base_offset: int, bytes_max: int, files: Files) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.entries = -1
        self.entries_max = bytes_max // self.ENTRY.size
        self._data: mmap.mmap | bytes | None = None
        self._claimed_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The size of the entries in use; a preallocated file is longer."""
        return max(0, self.entries) * self.ENTRY.size

    def ends_in_an_entry(self) -> bool:
        """Whether the file is cut to its entries, as sealing does; False for an empty one. Raises OSError."""
        files = self._files
        fd = files.open(self.path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            if not size or size % self.ENTRY.size:
                return False
            return any(files.pread(fd, self.ENTRY.size, size - self.ENTRY.size))
        finally:
            files.close(fd)

    def is_possible(self, log_bytes: int) -> bool:
        """Whether the entries ascend, and belong to a segment of `log_bytes` bytes. Raises OSError."""
        before = (-1, -1)
        for entry in self.stored():
            if not (entry[0] > before[0] and entry[1] > before[1]):
                return False
            before = entry
        return True

    def stored(self) -> list[tuple[int, int]]:
        """Every entry as it is in the file. Raises OSError."""
        return list(self.ENTRY.iter_unpack(self.view()[: self.size_bytes]))

    def open_writable(self) -> None:
        """Preallocates and maps the file for more entries. Raises OSError."""
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if self.entries < 0:
                self._count(fd)
            used = self.entries * self.ENTRY.size
            # one slot more than the maximum, for a file longer than the setting allows now: it must still be sealed
            size = max(self.entries_max * self.ENTRY.size, used + self.ENTRY.size)
            if os.fstat(fd).st_size != size:
                self._files.truncate(fd, used)  # everything behind the entries is zero from here on
                self._files.truncate(fd, size)
            data = self._files.map(fd, size)
        finally:
            self._files.close(fd)
        self.release()
        self._data = data
        self._claimed_bytes = used

    def release(self) -> None:
        """Unmaps the file; the next look-up maps it again."""
        data, self._data = self._data, None
        if isinstance(data, mmap.mmap):
            data.close()

    def trim(self) -> None:
        """Cuts the file to its entries and unmaps it. Raises OSError."""
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if self.entries < 0:
                self._count(fd)
            self.release()
            self._files.truncate(fd, self.size_bytes)
        finally:
            self._files.close(fd)

    def reset(self) -> None:
        """Drops every entry: the file is about to be built again. Raises OSError."""
        self.entries = 0
        self.trim()

    def keep_before(self, offset: int) -> None:
        """Drops the entries at or past `offset`, and trims. Raises OSError."""
        self.view()
        self.entries = self._count_below(offset - self.base_offset, self.OFFSET_COLUMN)
        self.trim()

    def view(self) -> mmap.mmap | bytes:
        """The entries, mapped. Raises OSError."""
        data = self._data
        if data is None:
            data = self._map_for_reading()
        return data

    def _map_for_reading(self) -> mmap.mmap | bytes:
        try:
            fd = self._files.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            # a lost index costs a longer scan, nothing else
            self.entries = 0
            return b""
        try:
            if self.entries < 0:
                self._count(fd)
            size = self.entries * self.ENTRY.size
            data = self._files.map_for_reading(fd, size) if size else b""
        finally:
            self._files.close(fd)
        self._data = data
        return data

    def _claim(self, end: int) -> None:
        """Allocates the bytes up to `end`, a page at a time, before they are written through the map.

        Raises OSError: then nothing was allocated, and nothing may be written.
        """
        claimed = self._claimed_bytes
        page_end = max(end, claimed - claimed % _PAGE_BYTES + _PAGE_BYTES)
        fd = self._files.open(self.path, os.O_WRONLY)
        try:
            size = os.fstat(fd).st_size
            self._files.write_fully(fd, bytes(min(page_end, size) - claimed), claimed)
        finally:
            self._files.close(fd)
        self._claimed_bytes = page_end

    def _count(self, fd: int) -> None:
        width = self.ENTRY.size
        zero = bytes(width)
        slots = os.fstat(fd).st_size // width
        self.entries = count_entries(slots, lambda at: self._files.pread(fd, width, at * width) == zero)

    def _count_below(self, limit: int, column: int) -> int:
        """The number of entries with less than `limit` in that column."""
        data, unpack, width = self.view(), self.ENTRY.unpack_from, self.ENTRY.size
        low, high = 0, self.entries  # 2.1 us for 10,000 entries instead of 3.4 us with bisect and a key
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * width)[column] < limit:
                low = middle + 1
            else:
                high = middle
        return low


class OffsetIndex(MappedIndex):
    """Entries of (offset, position)."""

    ENTRY = OFFSET_ENTRY
    OFFSET_COLUMN = 0

    __slots__ = ()

    @property
    def is_full(self) -> bool:
        return self.entries >= self.entries_max

    def append(self, offset: int, position: int) -> None:
        """Adds an entry: the append that ends with `offset` begins at `position`. Raises OSError when the disk is full.

        The index must be open for writing and not full, `offset` past the last.
        """
        at = self.entries * 8
        if at + 8 > self._claimed_bytes:
            self._claim(at + 8)
        _pack_offset(self._data, at, offset - self.base_offset, position)  # type: ignore[arg-type]
        self.entries += 1

    def position_of(self, offset: int) -> int:
        """The nearest indexed file position at or before the batch that holds `offset`. Raises OSError."""
        data = self.view()
        relative = offset - self.base_offset
        # most look-ups are for the tail: 0.5 us instead of 3 us
        if not self.entries:
            return 0
        last, position = _unpack_offset(data, (self.entries - 1) * 8)
        if relative >= last:
            return position  # type: ignore[no-any-return]
        count = self._count_below(relative + 1, 0)
        return _unpack_offset(data, (count - 1) * 8)[1] if count else 0

    def offset_from(self, position: int) -> int | None:
        """The indexed offset at the first indexed position at or past `position`, None without one. Raises OSError."""
        at = self._count_below(position, 1)
        return self.base_offset + _unpack_offset(self.view(), at * 8)[0] if at < self.entries else None

    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry; (base offset, 0) when there is none. Raises OSError."""
        data = self.view()
        if not self.entries:
            return self.base_offset, 0
        relative, position = _unpack_offset(data, (self.entries - 1) * 8)
        return self.base_offset + relative, position

    def is_possible(self, log_bytes: int) -> bool:
        entries = self.stored()
        return super().is_possible(log_bytes) and (not entries or (entries[0][1] > 0 and entries[-1][1] < log_bytes))

    def all(self) -> list[tuple[int, int]]:
        """Every (offset, position), for tools and tests. Raises OSError."""
        return [(self.base_offset + relative, position) for relative, position in self.stored()]


class TimeIndex(MappedIndex):
    """Entries of (timestamp, offset)."""

    ENTRY = TIME_ENTRY
    OFFSET_COLUMN = 1

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
        _pack_time(self._data, at, timestamp_ms, offset - self.base_offset)  # type: ignore[arg-type]
        self.entries += 1

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) when there is none. Raises OSError."""
        data = self.view()
        if not self.entries:
            return -1, self.base_offset
        timestamp_ms, relative = _unpack_time(data, (self.entries - 1) * 12)
        return timestamp_ms, self.base_offset + relative

    def offset_before(self, timestamp_ms: int) -> int:
        """The offset of the last entry at or before `timestamp_ms`: no record up to it is later. Raises OSError."""
        count = self._count_below(timestamp_ms + 1, 0)
        return self.base_offset + _unpack_time(self.view(), (count - 1) * 12)[1] if count else self.base_offset

    def all(self) -> list[tuple[int, int]]:
        """Every (timestamp, offset), for tools and tests. Raises OSError."""
        return [(timestamp_ms, self.base_offset + relative) for timestamp_ms, relative in self.stored()]


class IndexFile:
    """The entries of an open index file, as stored; none if there is no such file. They are hints: a crash may have
    left them short or wrong, so the reader checks the place to which one points."""

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
        self.count = count_entries(os.fstat(self._fd).st_size // entry.size, lambda at: self.entry(at) == (0, 0))
        self.last = self.entry(self.count - 1) if self.count else None

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
