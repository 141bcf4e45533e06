"""The checkpoints of a data directory: recovery points, log starts, high watermarks, one offset per log.

The fourth, how far each log has been compacted, is written when a log was (`clean_later`), and when a name in it goes.

They call logs by their names, and names come back. If the new log of a name were met at start by the offsets of the old
one, its records would be taken for ones that had been deleted, or for recovered. So it is remembered which names the
files may hold (`may_name`), and a log gets such a name only after the files were written without it.
Source: kafka.log.LogManager (checkpointLogRecoveryOffsets, checkpointLogStartOffsets), OffsetCheckpointFile,
kafka.log.LogCleanerManager.updateCheckpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.log.storage.checkpoint_file import encode_offsets, read_offsets
from kafkalite.log.storage.file_names import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from kafkalite.log.storage.files import Done, Files, Job

Offsets = Mapping[TopicPartition, int]


class LogOffsets(NamedTuple):
    """What the files say. `log_starts` has only the logs that begin inside a segment; the others name every log."""

    recovery_points: Offsets
    log_starts: Offsets
    high_watermarks: Offsets


class _Series:
    """States of some files, each newer than the ones before: `taken` so many were handed in, `written` is the newest
    that stands in the files."""

    __slots__ = ("taken", "written")

    def __init__(self) -> None:
        self.taken = self.written = 0


class OffsetCheckpoints:
    """Belongs to the owner of the logs; only jobs run elsewhere. `have_points`: the recovery points could be read, so a
    log that they do not name is a young one. `recovery_points` are those that stand in the file. `cleaned`: how far
    each log is compacted; a log may be missing there.

    Invariant: `_named` has every name that stands in a file, or will when the jobs under way are done.
    """

    def __init__(self, data_dir: str, files: Files) -> None:
        self._files = files
        self._paths = [f"{data_dir}/{name}" for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)]
        self._cleaner_path = f"{data_dir}/{CLEANER_OFFSETS}"
        self.cleaned: dict[TopicPartition, int] = {}
        self._cleaned_is_kept = True  # the file says what `cleaned` says
        self.have_points = False
        self.recovery_points: Offsets = {}
        self._points_of = 0  # the state that `recovery_points` are of
        self._named: set[TopicPartition] = set()
        self._offsets = _Series()
        self._cleanings = _Series()
        # a name may be needed while a job is at the files: its owner waits for that job, not for all that is queued
        self._writing = threading.Lock()

    def begin(self) -> None:
        """In a new directory there is nothing to know, which is not the same as not knowing it. Raises OSError."""
        self._files.write_atomically(self._paths[0], encode_offsets({}))

    def read(self) -> LogOffsets:
        """What the files say now; nothing for those that are missing or corrupt, which is logged."""
        found = LogOffsets(*[read_offsets(self._files, path) for path in self._paths])
        self.have_points = bool(found.recovery_points) or self._files.has(self._paths[0], encode_offsets({}))
        self.recovery_points = found.recovery_points
        self.cleaned = read_offsets(self._files, self._cleaner_path)
        self._named.update(*found, self.cleaned)
        return found

    def may_name(self, key: TopicPartition) -> bool:
        return key in self._named

    def write(self, offsets: LogOffsets, *, durable: bool = True) -> list[str]:
        """Make the files say this and no more, here and now; their paths. Jobs under way lose. Raises OSError."""
        job, written = self.write_later(offsets, durable=durable)
        job()
        written(None)
        return self._paths.copy()

    def write_later(self, offsets: LogOffsets, *, durable: bool = True) -> tuple[Job, Done]:
        """The job that does it, and what the owner calls with its outcome. A state never overwrites a newer one."""
        series = self._offsets
        series.taken += 1
        number = series.taken
        names = set().union(*offsets)
        self._named |= names
        contents = {path: encode_offsets(one) for path, one in zip(self._paths, offsets, strict=True)}
        clean: tuple[Job, Done] | None = None
        if not self._cleaned_is_kept or not names.issuperset(self.cleaned):
            self.cleaned = {key: offset for key, offset in self.cleaned.items() if key in names}
            clean = self._keep_cleaned(durable=durable)

        def job() -> None:
            with self._writing:
                if number < series.written:
                    return
                for path, content in contents.items():
                    self._files.write_atomically(path, content, durable=durable)
                series.written = number
            if clean is not None:
                clean[0]()

        def done(error: Exception | None) -> None:
            if clean is not None:
                clean[1](error)
            if error is None and number > self._points_of:  # one that lost against a newer one says nothing
                self._points_of = number
                self.recovery_points = offsets.recovery_points
            if error is None and number == series.taken and self._cleaned_is_kept:
                self._named = names | self.cleaned.keys()

        return job, done

    def forget_cleaned(self, key: TopicPartition) -> None:
        """It is not known how far a log is compacted. The next write says so."""
        del self.cleaned[key]
        self._cleaned_is_kept = False

    def clean_later(self, key: TopicPartition, offset: int) -> tuple[Job, Done]:
        """The same for the offset up to which a log is compacted now. `cleaned` says so at once."""
        self.cleaned[key] = offset
        self._named.add(key)
        return self._keep_cleaned()

    def _keep_cleaned(self, *, durable: bool = True) -> tuple[Job, Done]:
        series = self._cleanings
        series.taken += 1
        number = series.taken
        self._cleaned_is_kept = False
        content = encode_offsets(self.cleaned)

        def job() -> None:
            with self._writing:
                if number < series.written:
                    return
                self._files.write_atomically(self._cleaner_path, content, durable=durable)
                series.written = number

        def done(error: Exception | None) -> None:
            if error is None and number == series.taken:
                self._cleaned_is_kept = True

        return job, done
