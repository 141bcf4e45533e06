"""A piece of a file on its way to a socket, without passing through Python.

The log makes regions, the network sends them with sendfile, and neither knows the other. A region keeps its file
open, so retention may unlink a segment while a slow consumer still reads it.
Source: org.apache.kafka.common.record.FileRecords as a TransferableRecords.
"""

from __future__ import annotations

import os


class OpenFile:
    """An open descriptor that closes itself when nobody refers to it any more.

    `fd` is valid for the life of the object. Invariant: nobody else closes `fd`.
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
    """`size` bytes of `file` from `position` on. Immutable; `len()` is the size."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes themselves, for those who cannot sendfile (TLS, tests). Shorter only if the file was cut."""
        return os.pread(self.file.fd, self.size, self.position)

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path!r}, position={self.position}, size={self.size})"


Part = bytes | bytearray | memoryview | FileRegion
"""One piece of an answer. An answer is a list of parts, sent in order."""
