"""A region of a file that is sent to a socket without passing through Python.

The log creates regions, the network sends them with sendfile, and neither imports the other. A region keeps its file
open, so retention may unlink a segment while a slow consumer still reads it.
Source: org.apache.kafka.common.record.FileRecords as a TransferableRecords.
"""

from __future__ import annotations

import os

_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class OpenFile:
    """An open descriptor that is closed when its last reference is dropped.

    Invariant: `fd` is valid for the life of the object, and only the object closes it.
    """

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, path: str, flags: int, mode: int = 0o644) -> None:
        self.fd = -1  # so that __del__ is right when open fails
        self.path = path
        self.fd = os.open(path, flags | os.O_CLOEXEC, mode)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class FileRegion:
    """`size` bytes of `file` from `position` on. Immutable; `len()` is the size. `is_fresh`: the bytes were written a
    short time ago, and are certainly in memory."""

    __slots__ = ("file", "is_fresh", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int, is_fresh: bool = False) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.is_fresh = is_fresh

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes themselves, where sendfile is impossible (TLS, tests). Shorter only if the file was truncated."""
        return os.pread(self.file.fd, self.size, self.position)

    def read_at_once(self) -> bytes | bytearray | None:
        """The bytes if all of them are in memory; None if the disk would have to be read, or the file was truncated."""
        size = self.size
        if not self.is_fresh and _NOWAIT:
            data = bytearray(size)  # 1.8 us instead of 1.2 us for 4 KiB
            try:
                count = os.preadv(self.file.fd, (data,), self.position, _NOWAIT)
            except BlockingIOError:
                return None
            except OSError:
                pass  # a file system without RWF_NOWAIT
            else:
                return data if count == size else None
        found = self.read()
        return found if len(found) == size else None

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path!r}, position={self.position}, size={self.size})"


Part = bytes | bytearray | memoryview | FileRegion
"""One part of a response. A response is a list of parts, sent in order."""
