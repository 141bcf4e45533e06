"""Index of the aborted transactions that end in a segment.

One 34-byte entry: version 0 (i2), producer id, first offset, last offset (the abort marker's), last stable offset then
(i8 each), big-endian; last offsets ascend. The file exists only once a transaction was aborted.
Source: org.apache.kafka.storage.internals.log.TransactionIndex, AbortedTxn; KIP-98.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from kafkalite.log.storage.files import Files

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction of `producer_id`: its first data offset and the offset of its abort marker.

    `last_stable_offset` is the log's when the marker was written: a read_committed fetch ended there.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(txn: AbortedTxn) -> bytes:
    """The bytes of one entry."""
    return ENTRY.pack(_VERSION, *txn)


class TransactionIndex:
    """The file is short, so it is read as a whole, and only when a read_committed fetch needs it."""

    __slots__ = ("_entries", "_files", "base_offset", "path")

    def __init__(self, path: str, base_offset: int, files: Files) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTxn] | None = None

    def all(self) -> list[AbortedTxn]:
        """Every entry, in the order of the markers. A torn entry at the end is left out. Raises OSError."""
        entries = self._entries
        if entries is None:
            try:
                data = self._files.read(self.path)
            except FileNotFoundError:
                data = b""
            whole = data[: len(data) // ENTRY.size * ENTRY.size]
            entries = [AbortedTxn(*fields[1:]) for fields in ENTRY.iter_unpack(whole) if fields[0] == _VERSION]
            self._entries = entries
        return entries

    def append(self, txn: AbortedTxn) -> None:
        """Adds a transaction; its marker must lie behind the others. Raises OSError."""
        entries = self.all()
        assert not entries or txn.last_offset > entries[-1].last_offset
        files = self._files
        fd = files.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            files.write_fully(fd, encode_entry(txn), len(entries) * ENTRY.size)
        finally:
            files.close(fd)
        entries.append(txn)

    def overlapping(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions with records in [fetch_offset, upper_bound), and whether later segments can have none.

        Raises OSError.
        """
        found = []
        for txn in self.all():
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
                found.append(txn)
            if txn.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def keep_before(self, offset: int) -> None:
        """Drops the transactions whose marker is at or past `offset`. Raises OSError."""
        entries = self.all()
        kept = [txn for txn in entries if txn.last_offset < offset]
        if len(kept) < len(entries):
            self._files.truncate_path(self.path, len(kept) * ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Drops every entry: the file is about to be built again. Raises OSError."""
        self._entries = []
        if os.path.exists(self.path):
            self._files.truncate_path(self.path, 0)
