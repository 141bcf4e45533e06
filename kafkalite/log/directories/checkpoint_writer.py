"""Writes the offset checkpoints of log directories in the background.

Requests that come while a directory's checkpoints are being written share the next write.
Source: kafka.log.LogManager (checkpointLogRecoveryOffsets, checkpointLogStartOffsets).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from kafkalite.common.clock import TimerGroup
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.directories.offset_checkpoints import LogOffsets

logger = logging.getLogger(__name__)

Done = Callable[[], None]


class CheckpointWriter:
    """Belongs to the owner of the logs. Failures are logged and reported; the next write tries again."""

    def __init__(self, timers: TimerGroup) -> None:
        self._timers = timers
        self._due: set[str] = set()  # paths of the directories that `write_soon` was called for
        self._waiting: dict[str, list[Done]] = {}  # callers for the next write, by path, while one is under way

    def write_changes(self, directory: LogDirectory) -> None:
        """As `write`, unless the files have these offsets already. A broker that idles writes nothing."""
        offsets = directory.offsets(directory.recovery_points())
        if not directory.checkpoints.is_written(offsets):
            self._write(directory, offsets)

    def write(self, directory: LogDirectory, done: Done = lambda: None) -> None:
        """Writes the offsets that the directory's logs have now. `done` is called after a failure, too."""
        self._write(directory, directory.offsets(directory.recovery_points()), done)

    def _write(self, directory: LogDirectory, offsets: LogOffsets, done: Done = lambda: None) -> None:
        job, written = directory.checkpoints.write_later(offsets)

        def finish(error: Exception | None) -> None:
            written(error)
            if error is not None:
                logger.error("cannot write the checkpoints in %s: %s", directory.path, error)
            if isinstance(error, OSError):
                directory.on_io_error(error)
            done()

        directory.background(job, finish)

    def write_soon(self, directory: LogDirectory) -> None:
        """Writes once for all changes in this turn of the loop."""
        if directory.path in self._due:
            return
        self._due.add(directory.path)

        def write() -> None:
            self._due.discard(directory.path)
            if directory.is_online:
                self.write(directory)

        self._timers.call_later(0, write)

    def write_all(self, directories: Collection[LogDirectory], done: Done) -> None:
        """Calls `done` after a write of each directory that began now or later."""
        left = len(directories)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for directory in directories:
            if directory.path in self._waiting:
                self._waiting[directory.path].append(one_done)
            else:
                self._write_for(directory, [one_done])
        if not directories:
            done()

    def _write_for(self, directory: LogDirectory, callers: list[Done]) -> None:
        """One write for all `callers`, then one for all who came meanwhile."""
        if not directory.is_online:  # its logs are closed: the files stay as they are
            for done in callers:
                done()
            return
        self._waiting[directory.path] = []

        def finish() -> None:
            later = self._waiting.pop(directory.path)
            for done in callers:
                done()
            if later:
                self._write_for(directory, later)

        self.write(directory, done=finish)
