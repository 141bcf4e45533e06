"""The directories of partitions in a log directory, by their names: logs, copies and deleted logs.

The name is the state of a directory, and a rename is atomic, so every change begins or ends with one: a deleted log
frees its name at once, and a copy that is complete takes it (`file_names` has the forms).
Source: kafka.log.LogManager (asyncDelete, replaceCurrentWithFutureLog), org.apache.kafka.storage.internals.log.LocalLog
(logDeleteDirName, logFutureDirName, logStrayDirName).
"""

from __future__ import annotations

import logging
import os
import uuid

from kafkalite.common.clock import TimerGroup
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.storage import file_names
from kafkalite.log.storage.checkpoint_file import read_topic_id
from kafkalite.log.storage.files import Background, Done, Files, storage_error

logger = logging.getLogger(__name__)


class DirectoryContents(NamedTuple):
    """`deleted` and `strays` are names of directories; `futures` has the names of unfinished copies by partition."""

    logs: list[TopicPartition]
    deleted: list[str]
    futures: dict[TopicPartition, list[str]]
    strays: list[str]


class PartitionDirectories:
    """Belongs to the owner of the logs. `path` is the log directory around them; `background` runs its jobs one after
    another."""

    def __init__(self, path: str, files: Files, background: Background, timers: TimerGroup) -> None:
        self.path = path
        self._files = files
        self._background = background
        self._timers = timers
        self._futures: dict[TopicPartition, list[str]] = {}

    @property
    def unfinished(self) -> list[TopicPartition]:
        """The logs of which there are unfinished copies."""
        return list(self._futures)

    def log_path(self, key: TopicPartition) -> str:
        return f"{self.path}/{file_names.partition_directory(*key)}"

    def listing(self) -> DirectoryContents:
        """Raises OSError."""
        contents = DirectoryContents([], [], {}, [])
        for name in sorted(self._files.listdir(self.path)):
            key = file_names.parse_partition_directory(name)
            if key is not None:
                if os.path.isdir(f"{self.path}/{name}"):
                    contents.logs.append(key)
            elif name.endswith(file_names.DELETE_DIRECTORY):
                contents.deleted.append(name)
            elif name.endswith(file_names.STRAY_DIRECTORY):
                contents.strays.append(name)
            elif (key := file_names.parse_future_directory(name)) is not None:
                contents.futures.setdefault(key, []).append(name)
        self._futures = contents.futures
        return contents

    def topic_id_of(self, key: TopicPartition) -> uuid.UUID | None:
        """As `topic_id_in`, for the directory of a log."""
        return self.topic_id_in(file_names.partition_directory(*key))

    def topic_id_in(self, name: str) -> uuid.UUID | None:
        """The topic id in the partition.metadata of the directory of that name; None without one. An
        unreadable file is reported by the log."""
        try:
            return read_topic_id(self._files, f"{self.path}/{name}/{file_names.PARTITION_METADATA}")
        except (ValueError, OSError):
            return None

    def has_records(self, key: TopicPartition) -> bool:
        """Whether the log ever had a record. Raises StorageError."""
        path = self.log_path(key)
        try:
            segments = [name for name in self._files.listdir(path) if name.endswith(file_names.LOG)]
            return any(name != file_names.FIRST_SEGMENT or os.path.getsize(f"{path}/{name}") > 0 for name in segments)
        except OSError as error:
            raise storage_error(f"cannot look into {key[0]}-{key[1]}", path, error) from error

    def rename(self, key: TopicPartition, suffix: str) -> str:
        """Frees the name of a log: its directory gets a new path with `suffix`, which is returned. Raises OSError."""
        return self._rename(file_names.partition_directory(*key), key, suffix)

    def new_future(self, key: TopicPartition) -> str:
        """The name for a new unfinished copy."""
        name = file_names.future_directory(*key)
        self._futures.setdefault(key, []).append(name)
        return name

    def put_future(self, name: str, key: TopicPartition) -> None:
        """Gives an unfinished copy, which has everything now, the name of the log. Raises OSError."""
        self.restore(name, key)
        names = self._futures.get(key, [])
        if name in names:
            names.remove(name)

    def replace(self, key: TopicPartition, future: str) -> str:
        """Frees the name of a log whose place a copy in another directory takes. Returns its new path. Raises OSError.

        The names of both show the next start that they belong together, if the broker dies in between.
        """
        path = f"{self.path}/{file_names.replaced_directory(future)}"
        self._files.rename(self.log_path(key), path)
        self._files.sync(self.path)
        return path

    def rename_futures(self, key: TopicPartition) -> list[str]:
        """Marks the unfinished copies of a log for deletion: they must not meet a new log of that name.

        Returns their new paths. Raises OSError.
        """
        return [self._rename(name, key, file_names.DELETE_DIRECTORY) for name in self._futures.pop(key, ())]

    def restore(self, name: str, key: TopicPartition) -> None:
        """Gives a log that was renamed its name again. Raises OSError."""
        self._files.rename(f"{self.path}/{name}", self.log_path(key))
        self._files.sync(self.path)

    def _rename(self, name: str, key: TopicPartition, suffix: str) -> str:
        path = f"{self.path}/{file_names.renamed_directory(*key, suffix)}"
        self._files.rename(f"{self.path}/{name}", path)
        return path

    def delete_log(self, key: TopicPartition, delay_ms: int) -> None:
        """Frees the name of a closed log at once; its files go later, on another thread. Raises StorageError."""
        self.remove_later(self._rename_aside(key, file_names.DELETE_DIRECTORY), delay_ms)

    def keep_as_stray(self, key: TopicPartition) -> None:
        """Renames a closed log to <topic>-<partition>.<uuid>-stray, for the operator. Raises StorageError."""
        path = self._rename_aside(key, file_names.STRAY_DIRECTORY)
        logger.warning("%s-%d is kept as %s and not served", *key, path)

    def _rename_aside(self, key: TopicPartition, suffix: str) -> str:
        try:
            return self.rename(key, suffix)
        except OSError as error:
            raise self._files.report_io_error(f"cannot move {key[0]}-{key[1]} aside", self.path, error) from error

    def remove_later(self, path: str, delay_ms: int) -> None:
        """Removes a directory that was renamed before."""

        def removed(error: Exception | None) -> None:
            if error is not None:
                logger.warning("cannot remove %s: %s; the next start tries again", path, error)

        self._timers.call_later(delay_ms, lambda: self._background(lambda: self._files.remove_directory(path), removed))

    def remove_cleaned_files(self, key: TopicPartition, done: Done) -> None:
        """Removes, in the background, the .cleaned files of a compaction that was given up."""
        path = self.log_path(key)

        def job() -> None:
            try:
                names = self._files.listdir(path)
            except FileNotFoundError:
                return  # the log was deleted, and its directory renamed
            for name in names:
                if name.endswith(file_names.CLEANED):
                    self._files.unlink_if_exists(f"{path}/{name}")

        self._background(job, done)
