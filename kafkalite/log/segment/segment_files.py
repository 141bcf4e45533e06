"""The files of one segment under their names of now, and its timestamps as any thread may read them.

A segment that is made by a compaction or a split has a suffix behind its names, `.cleaned` and then `.swap`, which a
start reads as the stage that was reached (`swap_recovery`).
Source: org.apache.kafka.storage.internals.log.LogSegment (changeFileSuffixes, deleteIfExists).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.index.sparse_index import TimeIndex
from kafkalite.log.segment import segment_file
from kafkalite.log.storage.file_names import LOG
from kafkalite.log.storage.files import Files


class NamedFile(Protocol):
    """A segment for its .log file, or an index; `path` follows the renames."""

    path: str


class SegmentFiles:
    """`parts` begin with the .log file; the last one, the .txnindex, may not exist."""

    __slots__ = ("_files", "_parts")

    def __init__(self, parts: Sequence[NamedFile], files: Files) -> None:
        self._parts = parts
        self._files = files

    def paths(self) -> list[str]:
        return [part.path for part in self._parts]

    @property
    def is_in_place(self) -> bool:
        """Whether the files have their final names."""
        return self._parts[0].path.endswith(LOG)

    def create(self, preallocated_bytes: int) -> None:
        """Creates all but the .txnindex, empty; the .log may have bytes in advance. Raises OSError; then no file is
        left."""
        try:
            for part in self._parts[:-1]:
                self._files.create_empty(part.path)
            if preallocated_bytes:
                self._files.truncate_path(self._parts[0].path, preallocated_bytes)
        except OSError:
            self.delete()
            raise

    def rename(self, before: str, after: str, *, log_last: bool = False) -> list[str]:
        """Replaces the suffix `before` by `after`; returns the new paths. Raises OSError; files that are renamed
        already keep their new names, and a second call continues from there."""
        renamed = []
        for part in reversed(self._parts) if log_last else self._parts:
            if not part.path.endswith(before) or (after and part.path.endswith(after)):
                continue  # renamed by an earlier try
            path = part.path.removesuffix(before) + after
            with suppress(FileNotFoundError):
                self._files.rename(part.path, path)
                renamed.append(path)
            part.path = path
        return renamed

    def delete(self) -> None:
        """Invariant: the segment is abandoned. Raises OSError."""
        for path in self.paths():
            self._files.unlink_if_exists(path)


class SegmentTimes(NamedTuple):
    """The timestamps of a segment as far as they are known, -2 if not, and the files that have them."""

    files: Files
    path: str
    size_bytes: int
    time_index_path: str
    base_offset: int
    first_timestamp_ms: int
    max_timestamp_ms: int

    def read(self) -> tuple[int, int]:
        """(the largest timestamp of the first batch, -1 without one; the largest of any record, else the file's mtime).
        Raises OSError, if the segment was removed meanwhile, too."""
        first_ms, last_ms = self.first_timestamp_ms, self.max_timestamp_ms
        if first_ms == -2:
            first_ms = segment_file.first_timestamp_of(self.files, self.path, self.size_bytes)
        if last_ms == -2:
            index = TimeIndex(self.time_index_path, self.base_offset, 0, self.files)
            try:
                last_ms = index.last()[0]
            finally:
                index.release()
        return first_ms, last_ms if last_ms >= 0 else os.stat(self.path).st_mtime_ns // 1_000_000
