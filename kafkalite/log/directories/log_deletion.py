"""Deletes logs in two steps: the name is free at once, the files go later, on another thread.

A log may also be kept as a stray, <topic>-<partition>.<uuid>-stray, for the operator to look at.
Source: kafka.log.LogManager (asyncDelete, deleteLogs).
"""

from __future__ import annotations

import logging

from kafkalite.common.clock import TimerGroup
from kafkalite.common.names import TopicPartition
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.storage.file_names import DELETE_DIRECTORY, STRAY_DIRECTORY
from kafkalite.log.storage.files import Files

logger = logging.getLogger(__name__)


class LogDeletion:
    """Belongs to the owner of the logs, who has closed a log before it comes here."""

    def __init__(self, files: Files, timers: TimerGroup) -> None:
        self._files = files
        self._timers = timers

    def delete(self, directory: LogDirectory, key: TopicPartition, delay_ms: int) -> None:
        """Raises StorageError."""
        self.remove_later(directory, self._rename(directory, key, DELETE_DIRECTORY), delay_ms)

    def keep_as_stray(self, directory: LogDirectory, key: TopicPartition) -> None:
        """Raises StorageError."""
        path = self._rename(directory, key, STRAY_DIRECTORY)
        logger.warning("%s-%d is kept as %s and not served", *key, path)

    def remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        """Removes a directory that was renamed before."""

        def removed(error: Exception | None) -> None:
            if error is not None:
                logger.warning("cannot remove %s: %s; the next start tries again", path, error)

        self._timers.call_later(
            delay_ms, lambda: directory.background(lambda: self._files.remove_directory(path), removed)
        )

    def _rename(self, directory: LogDirectory, key: TopicPartition, suffix: str) -> str:
        try:
            return directory.partitions.rename(key, suffix)
        except OSError as error:
            what = f"cannot move {key[0]}-{key[1]} aside"
            raise self._files.report_io_error(what, directory.path, error) from error
