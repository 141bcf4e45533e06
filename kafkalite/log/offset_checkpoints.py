"""The checkpoints of a data directory: recovery points, log starts, high watermarks, one offset per log.

The fourth, how far each log has been compacted, stays as it was found, but for the names of logs that are gone.

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

from kafkalite.log.checkpoint import encode_offsets, read_offsets
from kafkalite.log.files import Done, Files, Job
from kafkalite.log.names import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS

Key = tuple[str, int]
Offsets = Mapping[Key, int]


class LogOffsets(NamedTuple):
    """What the files say. `log_starts` has only the logs that begin inside a segment; the others name every log."""

    recovery_points: Offsets
    log_starts: Offsets
    high_watermarks: Offsets


class OffsetCheckpoints:
    """Belongs to the owner of the logs; only a job of `write_later` runs elsewhere. `have_points`: the recovery points
    could be read, so a log that they do not name is a young one.

    Invariant: `_named` has every name that stands in a file, or will when the jobs under way are done.
    """

    def __init__(self, data_dir: str, files: Files) -> None:
        self._files = files
        self._paths = [f"{data_dir}/{name}" for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)]
        self._cleaner_path = f"{data_dir}/{CLEANER_OFFSETS}"
        self._cleaned: Offsets = {}
        self.have_points = False
        self._named: set[Key] = set()
        self._taken = 0  # states that were handed in so far: each is newer than the ones before
        self._written = 0  # the newest of them that stands in the files
        # a name may be needed while a job is at the files: its owner waits for that job, not for all that is queued
        self._writing = threading.Lock()

    def begin(self) -> None:
        """In a new directory there is nothing to know, which is not the same as not knowing it. Raises OSError."""
        self._files.write_atomically(self._paths[0], encode_offsets({}))

    def read(self) -> LogOffsets:
        """What the files say now; nothing for those that are missing or corrupt, which is logged."""
        found = LogOffsets(*[read_offsets(self._files, path) for path in self._paths])
        self.have_points = bool(found.recovery_points) or self._files.has(self._paths[0], encode_offsets({}))
        self._cleaned = read_offsets(self._files, self._cleaner_path)
        self._named.update(*found, self._cleaned)
        return found

    def may_name(self, key: Key) -> bool:
        return key in self._named

    def write(self, offsets: LogOffsets, *, durable: bool = True) -> list[str]:
        """Make the files say this and no more, here and now; their paths. Jobs under way lose. Raises OSError."""
        job, written = self.write_later(offsets, durable=durable)
        job()
        written(None)
        return self._paths.copy()

    def write_later(self, offsets: LogOffsets, *, durable: bool = True) -> tuple[Job, Done]:
        """The job that does it, and what the owner calls with its outcome. A state never overwrites a newer one."""
        self._taken += 1
        number = self._taken
        names = set().union(*offsets)
        self._named |= names
        contents = {path: encode_offsets(one) for path, one in zip(self._paths, offsets, strict=True)}
        cleaned = {key: offset for key, offset in self._cleaned.items() if key in names}
        if len(cleaned) < len(self._cleaned):
            contents[self._cleaner_path] = encode_offsets(cleaned)

        def job() -> None:
            with self._writing:
                if number < self._written:
                    return
                for path, content in contents.items():
                    self._files.write_atomically(path, content, durable=durable)
                self._written = number

        def done(error: Exception | None) -> None:
            if error is None and number == self._taken:
                self._named = names
                self._cleaned = cleaned

        return job, done
