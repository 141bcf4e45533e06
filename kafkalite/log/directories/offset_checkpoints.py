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

from kafkalite.common.named_tuple import NamedTuple
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
    """Successive, numbered states of some files; no state overwrites a newer one. `taken` is the number of the newest
    state, `written` the number of the newest state written."""

    __slots__ = ("_files", "_lock", "taken", "written")

    def __init__(self, files: Files, lock: threading.Lock) -> None:
        self._files = files
        self._lock = lock
        self.taken = self.written = 0

    def take(self, contents: Mapping[str, bytes]) -> tuple[int, Job]:
        """The number of a new state, and the job that writes it: `contents` by path."""
        self.taken += 1
        number = self.taken

        def job() -> None:
            with self._lock:
                if number >= self.written:
                    for path, content in contents.items():
                        self._files.write_atomically(path, content)
                    self.written = number

        return number, job


class OffsetCheckpoints:
    """Belongs to the owner of the logs; only jobs run on other threads. `has_recovery_points`: the file could be read,
    so a log that is not in it is a new one. `recovery_points` are those in the file. `cleaner_offsets`: each log is
    compacted below its offset; a log may be missing.

    Invariant: `_named` has every name that is in a file, or will be when the jobs in flight are done.
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
        self._written: LogOffsets | None = None  # the content of the files; None: not known, or it is about to change
        self._named: set[TopicPartition] = set()
        # held by the job that writes: a `write` at once waits for that job only, not for all in the queue
        lock = threading.Lock()
        self._offset_series = _Series(files, lock)
        self._cleaner_series = _Series(files, lock)

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

    def is_written(self, offsets: LogOffsets) -> bool:
        """Whether the files have exactly these offsets, and no write is in flight."""
        return self._cleaner_offsets_are_written and self._written == offsets

    def write(self, offsets: LogOffsets) -> None:
        """Writes the files at once. Jobs in flight do not overwrite them. Raises OSError."""
        job, written = self.write_later(offsets)
        job()
        written(None)

    def write_later(self, offsets: LogOffsets) -> tuple[Job, Done]:
        """Returns a job that writes the files, and a callback for its outcome."""
        names = set().union(*offsets)
        self._named |= names
        contents = {path: encode_offsets(one) for path, one in zip(self._paths, offsets, strict=True)}
        number, write = self._offset_series.take(contents)
        self._written = None
        cleaner: tuple[Job, Done] | None = None
        if not self._cleaner_offsets_are_written or not names.issuperset(self.cleaner_offsets):
            self.cleaner_offsets = {key: offset for key, offset in self.cleaner_offsets.items() if key in names}
            cleaner = self._write_cleaner_offsets_later()

        def job() -> None:
            write()
            if cleaner is not None:
                cleaner[0]()

        def done(error: Exception | None) -> None:
            if cleaner is not None:
                cleaner[1](error)
            if error is None and number > self._points_number:  # a newer state was written otherwise
                self._points_number = number
                self.recovery_points = offsets.recovery_points
            if error is None and number == self._offset_series.taken:
                self._written = offsets
                if self._cleaner_offsets_are_written:
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

    def _write_cleaner_offsets_later(self) -> tuple[Job, Done]:
        number, job = self._cleaner_series.take({self._cleaner_path: encode_offsets(self.cleaner_offsets)})
        self._cleaner_offsets_are_written = False

        def done(error: Exception | None) -> None:
            if error is None and number == self._cleaner_series.taken:
                self._cleaner_offsets_are_written = True

        return job, done
