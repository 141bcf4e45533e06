"""Index of the aborted transactions that end in a segment.

One 34-byte entry: version 0 (i2), producer id, first offset, last offset (the abort marker's), last stable offset then
(i8 each), big-endian; last offsets ascend. The file exists only once a transaction was aborted.
Entries stay on the disk: a segment may have a million of them. Only their size and the last offset are kept in memory,
so that the fetches at the end of a log, which find nothing, open no file; the others search by bisection.
Source: org.apache.kafka.storage.internals.log.TransactionIndex, AbortedTxn; KIP-98.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_ENTRIES_AT_FIRST, _ENTRIES_AT_MOST = 64, 4096  # read at a time: many only beside a long transaction
_UNKNOWN = -1


class AbortedTxn(NamedTuple):
    """One aborted transaction of `producer_id`: its first data offset and the offset of its abort marker.

    `last_stable_offset` is the log's when the marker was written: a read_committed fetch ended there.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def covers(self, header: BatchHeader) -> bool:
        """Whether the data batch with this header belongs to the transaction."""
        return (
            header.is_transactional
            and header.producer_id == self.producer_id
            and self.first_offset <= header.base_offset <= self.last_offset
        )


def decode_index(data: bytes) -> list[AbortedTxn]:
    """The entries of a whole file; one at the end may be torn, or being written."""
    return [AbortedTxn(*fields[1:]) for fields in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])]


def encode_entry(txn: AbortedTxn) -> bytes:
    """The bytes of one entry."""
    return ENTRY.pack(_VERSION, *txn)


class TransactionIndex:
    """The methods raise OSError. `size_bytes` is that of the whole entries, -1 until it is read; without entries
    there may be no file."""

    __slots__ = ("_files", "_last_offset", "base_offset", "path", "size_bytes")

    def __init__(self, path: str, base_offset: int, files: Files, size_bytes: int = _UNKNOWN) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self._last_offset = _UNKNOWN

    @property
    def entries(self) -> int:
        """The number of entries. A torn entry at the end does not count."""
        if self.size_bytes < 0:
            try:
                self.size_bytes = os.stat(self.path).st_size
            except FileNotFoundError:
                self.size_bytes = 0
        return self.size_bytes // ENTRY.size

    @property
    def last_offset(self) -> int:
        """The last offset of the last entry, -1 without entries."""
        if self._last_offset < 0 and (entries := self.entries):
            self._last_offset = self._read(entries - 1, entries)[0].last_offset
        return self._last_offset

    def all(self) -> list[AbortedTxn]:
        """Every entry, in the order of the markers: for tools and tests."""
        return self._read(0, self.entries)

    def _read(self, first: int, upto: int) -> list[AbortedTxn]:
        if first >= upto:
            return []
        fd = self._files.open(self.path, os.O_RDONLY)
        try:
            return self._read_open(fd, first, upto)
        finally:
            self._files.close(fd)

    def _read_open(self, fd: int, first: int, upto: int) -> list[AbortedTxn]:
        return [AbortedTxn(*fields[1:]) for fields in self._fields(fd, first, upto)]

    def _fields(self, fd: int, first: int, upto: int) -> Iterator[tuple[int, ...]]:
        """The fields of each entry, its version first."""
        size = (upto - first) * ENTRY.size
        data = self._files.pread(fd, size, first * ENTRY.size)
        if len(data) != size:
            raise OSError(errno.EIO, f"{self.path} is shorter than it was")
        return ENTRY.iter_unpack(data)

    def append(self, txn: AbortedTxn) -> None:
        """Adds a transaction; its marker must lie behind the others. After an error nothing is added."""
        assert txn.last_offset > self.last_offset
        position = self.entries * ENTRY.size
        files = self._files
        fd = files.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            files.write_fully(fd, encode_entry(txn), position)
        except OSError:
            with contextlib.suppress(OSError):  # the next entry overwrites a torn one
                files.truncate(fd, position)
            raise
        finally:
            files.close(fd)
        self.size_bytes = position + ENTRY.size
        self._last_offset = txn.last_offset

    def overlapping(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions with records in [fetch_offset, upper_bound), and whether later segments can have none."""
        found: list[AbortedTxn] = []
        if self.last_offset < fetch_offset:
            return found, False
        entries = self.entries
        fd = self._files.open(self.path, os.O_RDONLY)
        try:
            first = self._first_ending_at(fd, fetch_offset)
            count = _ENTRIES_AT_FIRST
            while first < entries:
                upto = min(first + count, entries)
                for _, producer_id, first_offset, last_offset, last_stable_offset in self._fields(fd, first, upto):
                    if first_offset < upper_bound:
                        found.append(AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset))
                    if last_stable_offset >= upper_bound:
                        return found, True
                first, count = upto, min(2 * count, _ENTRIES_AT_MOST)
        finally:
            self._files.close(fd)
        return found, False

    def _first_ending_at(self, fd: int, offset: int) -> int:
        """The index of the first entry whose last offset is at or past `offset`."""
        return bisect_left(
            range(self.entries), offset, key=lambda at: self._read_open(fd, at, at + 1)[0].last_offset
        )  # fmt: skip

    def keep_before(self, offset: int) -> None:
        """Drops the transactions whose marker is at or past `offset`."""
        if self.last_offset < offset:
            return
        fd = self._files.open(self.path, os.O_RDWR)
        try:
            kept = self._first_ending_at(fd, offset)
            self._files.truncate(fd, kept * ENTRY.size)
        finally:
            self._files.close(fd)
        self.size_bytes = kept * ENTRY.size
        self._last_offset = _UNKNOWN

    def reset(self) -> None:
        """Drops every entry: the file is about to be built again."""
        self.size_bytes = 0
        self._last_offset = _UNKNOWN
        if os.path.exists(self.path):
            self._files.truncate_path(self.path, 0)
