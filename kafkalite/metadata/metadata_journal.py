"""A small durable list: one checksummed JSON line per entry, in a file that grows until it is rewritten.

    1a2b3c4d {"op":"topic","name":"orders",...}

The checksum is CRC-32C over the JSON. `append` returns after fsync. A last line that a power cut tore is cut off at
load; a damaged line before others means that the disk lost data, and is an error. Blocking: callers run `append` and
`rewrite` on a thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import ConfigError
from kafkalite.common.forks import close_in_children
from kafkalite.common.text import read_json

logger = logging.getLogger(__name__)

_MODE = 0o600  # secrets are in it
JOURNAL_NAME = "kafkalite-registry.journal"
Entry = dict[str, Any]


class CorruptJournal(ConfigError):
    """A line that is not the last one is damaged."""


class Journal:
    """The file. `load` comes first. `size_bytes` is the end of the last whole entry."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(path.name + ".tmp")
        self.size_bytes = 0
        self._fd = -1
        close_in_children(self, Journal.close)

    def load(self) -> list[Entry]:
        """The entries in order; none in a new file. Cuts off a torn tail. Raises CorruptJournal, OSError."""
        self._temporary.unlink(missing_ok=True)  # of a rewrite that was interrupted
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        entries, self.size_bytes = decode(data, str(self.path))
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        with contextlib.suppress(PermissionError):  # of another user's file that we may write
            os.fchmod(self._fd, _MODE)
        if self.size_bytes < len(data):
            cut = data[self.size_bytes :]
            if cut.endswith(b"\n"):
                # without its bytes, which may be a password
                logger.error("%s: the last entry is damaged and lost, %d bytes", self.path, len(cut))
            else:
                logger.warning("%s: cut %d bytes of an unfinished entry", self.path, len(cut))
            os.ftruncate(self._fd, self.size_bytes)
            os.fsync(self._fd)
        return entries

    def append(self, entry: Entry) -> None:
        """Add one entry; it is on the disk when this returns. Raises OSError, and then the file is as before, or
        `is_open` has become False because not even that worked."""
        line = encode(entry)
        try:
            at = self.size_bytes
            view = memoryview(line)
            while view:
                count = os.pwrite(self._fd, view, at)
                at += count
                view = view[count:]
            os.fsync(self._fd)
        except OSError:
            self._take_back()
            raise
        self.size_bytes = at

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._fd, self.size_bytes)
            os.fsync(self._fd)
        except OSError:
            logger.error("%s: a failed write could not be taken back; nothing more is written there", self.path)
            self.close()

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Replace all entries by these, atomically. Raises OSError: see `is_open`."""
        temporary = self._temporary
        data = b"".join(map(encode, entries))
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
            temporary.replace(self.path)
        except OSError:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        self.close()
        # reopened only when the new name is on the disk: an entry in a file that a power cut renames back would be lost
        try:
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        self.size_bytes = len(data)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def encode(entry: Entry) -> bytes:
    """The line of an entry. JSON escapes line ends, so a line end is always the end of an entry."""
    text = json.dumps(entry, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    return b"%08x %s\n" % (crc32c(text), text)


def decode(data: bytes, path: str) -> tuple[list[Entry], int]:
    """The whole entries and where they end. Raises CorruptJournal if a bad line stands before others."""
    entries: list[Entry] = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        entry = _decode_line(data[position:end]) if end >= 0 else None
        if entry is None:
            if 0 <= end < len(data) - 1:
                raise CorruptJournal(
                    f"{path}: entry {len(entries) + 1} (at byte {position}) is damaged and others follow it; "
                    "restore the file from a copy"
                )
            break
        entries.append(entry)
        position = end + 1
    return entries, position


def _decode_line(line: bytes) -> Entry | None:
    checksum, text = line[:8], line[9:]
    if line[8:9] != b" " or checksum != b"%08x" % crc32c(text):
        return None
    try:
        entry = read_json(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
