"""Base of the offset index and the time index: a mapped file of fixed-size, ascending, big-endian entries.

While its segment grows the file is preallocated (sparse) and mapped, so that an entry costs no system call; when the
segment is sealed it is cut to its entries. It is mapped when first needed and can be unmapped at any time (`release`).
Zero entries after the last are padding that an unclean stop left. Pages are allocated before the first entry is written
into them: writing through a map into a hole of a full disk would kill the process (SIGBUS).
Source: org.apache.kafka.storage.internals.log.AbstractIndex, LazyIndex.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from typing import ClassVar

from kafkalite.log.storage.files import Files

_PAGE_BYTES = mmap.PAGESIZE


class MappedIndex:
    """Fields: `entries` is the number in use, -1 until the file was opened; `entries_max` the number that fit.

    Invariant: entries ascend; `_data` holds at least `entries * ENTRY_BYTES` bytes when it is not None.
    """

    ENTRY_BYTES: ClassVar[int]

    __slots__ = ("_claimed_bytes", "_data", "_files", "base_offset", "entries", "entries_max", "path")

    def __init__(self, path: str, base_offset: int, bytes_max: int, files: Files) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.entries = -1
        self.entries_max = bytes_max // self.ENTRY_BYTES
        self._data: mmap.mmap | bytes | None = None
        self._claimed_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The size of the entries in use; a preallocated file is longer."""
        return max(0, self.entries) * self.ENTRY_BYTES

    def ends_in_an_entry(self) -> bool:
        """Whether the file is cut to its entries, as sealing does; False for an empty one. Raises OSError."""
        files = self._files
        fd = files.open(self.path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            if not size or size % self.ENTRY_BYTES:
                return False
            return any(files.pread(fd, self.ENTRY_BYTES, size - self.ENTRY_BYTES))
        finally:
            files.close(fd)

    def is_possible(self, log_bytes: int) -> bool:
        """Whether the entries ascend, and belong to a segment of `log_bytes` bytes. Raises OSError."""
        raise NotImplementedError

    def open_writable(self) -> None:
        """Preallocates and maps the file for more entries. Raises OSError."""
        fd = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if self.entries < 0:
                self._count(fd)
            used = self.entries * self.ENTRY_BYTES
            # one slot more than the maximum, for a file longer than the setting allows now: it must still be sealed
            size = max(self.entries_max * self.ENTRY_BYTES, used + self.ENTRY_BYTES)
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
        self.entries = self._count_below(offset - self.base_offset)
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
            size = self.entries * self.ENTRY_BYTES
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
        """Counts the entries in the file: all that fit, but for zeros at the end."""
        width = self.ENTRY_BYTES
        zero = bytes(width)

        def is_padding(at: int) -> bool:
            return self._files.pread(fd, width, at * width) == zero

        entries = os.fstat(fd).st_size // width
        if entries and is_padding(entries - 1):
            entries = bisect_left(range(entries), True, key=is_padding)
        self.entries = entries

    def _count_below(self, relative_offset: int) -> int:
        """The number of entries with an offset below that one."""
        raise NotImplementedError
