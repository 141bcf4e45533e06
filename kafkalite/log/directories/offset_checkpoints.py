"""The offset checkpoints of a log directory: recovery points, log start offsets, high watermarks, cleaner offsets.

The first three are written together. The cleaner offsets, up to which logs are compacted, are written after a
compaction (`write_cleaner_offset_later`), and when a log in the file is deleted.

The files name logs, and a deleted topic may be created again. Applied to its new log, the offsets of the old one would
make records count as deleted, or as recovered. So the names that the files may hold are remembered (`may_name`), and a
log gets such a name only after the files were written without it.
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
    """The content of three files. `log_starts` has only the logs that begin inside a segment; the others have all."""

    recovery_points: Offsets
    log_starts: Offsets
    high_watermarks: Offsets


class _Series:
    """Numbers the successive states of some files: `taken` is the newest that was handed in, `written` the newest in
    the files."""

    __slots__ = ("taken", "written")

    def __init__(self) -> None:
        self.taken = self.written = 0


class OffsetCheckpoints:
    """Belongs to the owner of the logs; only jobs run on other threads. `has_recovery_points`: the file could be read,
    so a log that is not in it is a new one. `recovery_points` are those in the file. `cleaner_offsets`: each log is
    compacted below its offset; a log may be missing.

    Invariant: `_named` has every name that is in a file, or will be when the jobs under way are done.
    """

    def __init__(self, log_dir: str, files: Files) -> None:
        self._files = files
        self._paths = [f"{log_dir}/{name}" for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)]
        self._cleaner_path = f"{log_dir}/{CLEANER_OFFSETS}"
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self._cleaner_offsets_are_written = True  # the file agrees with `cleaner_offsets`
        self.has_recovery_points = False
        self.recovery_points: Offsets = {}
        self._points_number = 0  # the number of the state that `recovery_points` are of
        self._named: set[TopicPartition] = set()
        self._offset_series = _Series()
        self._cleaner_series = _Series()
        # held by the job that writes: a `write` at once waits for that job only, not for all in the queue
        self._writing = threading.Lock()

    def create(self) -> None:
        """Writes an empty file in a new directory: a missing file means that offsets are lost. Raises OSError."""
        self._files.write_atomically(self._paths[0], encode_offsets({}))

    def read(self) -> LogOffsets:
        """Missing or corrupt files count as empty; a corrupt one is logged. Raises OSError."""
        found = LogOffsets(*[read_offsets(self._files, path) for path in self._paths])
        self.has_recovery_points = bool(found.recovery_points) or self._files.has(self._paths[0], encode_offsets({}))
        self.recovery_points = found.recovery_points
        self.cleaner_offsets = read_offsets(self._files, self._cleaner_path)
        self._named.update(*found, self.cleaner_offsets)
        return found

    def may_name(self, key: TopicPartition) -> bool:
        return key in self._named

    def write(self, offsets: LogOffsets, *, durable: bool = True) -> list[str]:
        """Writes the files at once and returns their paths. Jobs under way do not overwrite them. Raises OSError."""
        job, written = self.write_later(offsets, durable=durable)
        job()
        written(None)
        return self._paths.copy()

    def write_later(self, offsets: LogOffsets, *, durable: bool = True) -> tuple[Job, Done]:
        """Returns a job that writes the files, and a callback for its outcome. No state overwrites a newer one."""
        series = self._offset_series
        series.taken += 1
        number = series.taken
        names = set().union(*offsets)
        self._named |= names
        contents = {path: encode_offsets(one) for path, one in zip(self._paths, offsets, strict=True)}
        clean: tuple[Job, Done] | None = None
        if not self._cleaner_offsets_are_written or not names.issuperset(self.cleaner_offsets):
            self.cleaner_offsets = {key: offset for key, offset in self.cleaner_offsets.items() if key in names}
            clean = self._write_cleaner_offsets_later(durable=durable)

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
            if error is None and number > self._points_number:  # a newer state was written otherwise
                self._points_number = number
                self.recovery_points = offsets.recovery_points
            if error is None and number == series.taken and self._cleaner_offsets_are_written:
                self._named = names | self.cleaner_offsets.keys()

        return job, done

    def forget_cleaner_offset(self, key: TopicPartition) -> None:
        """All of the log counts as dirty. Takes effect on the disk with the next write."""
        del self.cleaner_offsets[key]
        self._cleaner_offsets_are_written = False

    def write_cleaner_offset_later(self, key: TopicPartition, offset: int) -> tuple[Job, Done]:
        """As `write_later`: the log is compacted below `offset`. `cleaner_offsets` has it at once."""
        self.cleaner_offsets[key] = offset
        self._named.add(key)
        return self._write_cleaner_offsets_later()

    def _write_cleaner_offsets_later(self, *, durable: bool = True) -> tuple[Job, Done]:
        series = self._cleaner_series
        series.taken += 1
        number = series.taken
        self._cleaner_offsets_are_written = False
        content = encode_offsets(self.cleaner_offsets)

        def job() -> None:
            with self._writing:
                if number < series.written:
                    return
                self._files.write_atomically(self._cleaner_path, content, durable=durable)
                series.written = number

        def done(error: Exception | None) -> None:
            if error is None and number == series.taken:
                self._cleaner_offsets_are_written = True

        return job, done
