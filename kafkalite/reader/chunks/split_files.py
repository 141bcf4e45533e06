"""The files of a split, opened before the first is read, so that retention and compaction take none of them meanwhile.

Between planning and opening, retention may have renamed a file: it is found under its new name for a while.
Source: kafka.log.LocalLog (a deleted segment keeps its file for file.delete.delay.ms).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkalite.common.errors import StorageError
from kafkalite.common.region import OpenFile
from kafkalite.log.storage.file_names import DELETED
from kafkalite.reader.planning.split import Chunk

_OPEN_MAX = 128  # files of one split; of a split with more, the rest is opened when it is reached


class FileGone(StorageError):
    """The file of a chunk is not there, or is not what it was at planning."""


class SplitFiles:
    """Open files by path, each until the last chunk of its file is done."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        """FileGone is raised when a missing file is asked for, not here."""
        self._left: dict[str, int] = {}
        first: dict[str, Chunk] = {}
        for chunk in chunks:
            self._left[chunk.path] = self._left.get(chunk.path, 0) + 1
            first.setdefault(chunk.path, chunk)
        self._open: dict[str, OpenFile] = {}
        for path in list(first)[:_OPEN_MAX]:
            found = _open(first[path])
            if found is not None:
                self._open[path] = found

    def get(self, chunk: Chunk) -> OpenFile:
        """The file of `chunk`, as it was at planning. Raises FileGone, StorageError."""
        file = self._open.get(chunk.path)
        if file is None or not _is_as_planned(file, chunk):
            file = _open(chunk)
        if file is None:
            what = "changed by compaction or recovery" if os.path.exists(chunk.path) else "deleted by retention"
            raise FileGone(f"{chunk.path} was {what} after planning")
        self._open[chunk.path] = file
        return file

    def done(self, chunk: Chunk) -> None:
        """Closes the file of `chunk` if no other chunk needs it."""
        left = self._left.get(chunk.path, 1) - 1
        self._left[chunk.path] = left
        if left <= 0:
            self._open.pop(chunk.path, None)


def _open(chunk: Chunk) -> OpenFile | None:
    """The file that was planned, under its name or its new one; None if neither is it."""
    for name in (chunk.path, chunk.path + DELETED):
        try:
            file = OpenFile(name, os.O_RDONLY)
            if _is_as_planned(file, chunk):
                return file
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot open {name}: {error.strerror}") from error
    return None


def _is_as_planned(file: OpenFile, chunk: Chunk) -> bool:
    """Whether the size of a closed segment is the same, or the inode of another, and the first header of the chunk, as
    far as they are known. A file that was compacted may begin with the same batch."""
    status = os.fstat(file.fd)
    if chunk.file_bytes not in (-1, status.st_size) or chunk.file_id not in (-1, status.st_ino):
        return False
    return not chunk.head or os.pread(file.fd, len(chunk.head), chunk.position) == chunk.head
