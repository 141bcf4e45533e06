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
        for chunk in chunks:
            self._left[chunk.path] = self._left.get(chunk.path, 0) + 1
        self._open: dict[str, OpenFile] = {}
        for path in list(self._left)[:_OPEN_MAX]:
            found = _open(path)
            if found is not None:
                self._open[path] = found

    def get(self, chunk: Chunk) -> OpenFile:
        """The file of `chunk`. Raises FileGone, StorageError."""
        file = self._open.get(chunk.path) or _open(chunk.path)
        if file is None:
            raise FileGone(f"{chunk.path} was deleted by retention or compaction after planning; run the query again")
        self._open[chunk.path] = file
        return file

    def done(self, chunk: Chunk) -> None:
        """Closes the file of `chunk` if no other chunk needs it."""
        self._left[chunk.path] -= 1
        if not self._left[chunk.path]:
            self._open.pop(chunk.path, None)


def _open(path: str) -> OpenFile | None:
    for name in (path, path + DELETED):
        try:
            return OpenFile(name, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot open {name}: {error.strerror}") from error
    return None
