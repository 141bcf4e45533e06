"""The partition directories in one log directory: logs, and those that are being deleted, moved, or are strays.

Source: kafka.log.LogManager (loadLogs), UnifiedLog.renameDir.
"""

from __future__ import annotations

import os
import uuid
from typing import NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.log.storage.checkpoint_file import read_topic_id
from kafkalite.log.storage.file_names import (
    DELETE_DIRECTORY,
    FIRST_SEGMENT,
    LOG,
    PARTITION_METADATA,
    STRAY_DIRECTORY,
    future_directory,
    parse_future_directory,
    parse_partition_directory,
    partition_directory,
    renamed_directory,
    replaced_directory,
)
from kafkalite.log.storage.files import Files, storage_error


class DirectoryContents(NamedTuple):
    """`deleted` and `strays` are names of directories; `futures` has the names of unfinished copies by partition."""

    logs: list[TopicPartition]
    deleted: list[str]
    futures: dict[TopicPartition, list[str]]
    strays: list[str]


class PartitionDirectories:
    """Looks up and renames; opens no log."""

    def __init__(self, log_dir: str, files: Files) -> None:
        self._log_dir = log_dir
        self._files = files
        self._futures: dict[TopicPartition, list[str]] = {}

    @property
    def unfinished(self) -> list[TopicPartition]:
        """The logs of which there are unfinished copies."""
        return list(self._futures)

    def path(self, key: TopicPartition) -> str:
        return f"{self._log_dir}/{partition_directory(*key)}"

    def contents(self) -> DirectoryContents:
        """Raises OSError."""
        contents = DirectoryContents([], [], {}, [])
        for name in sorted(self._files.listdir(self._log_dir)):
            key = parse_partition_directory(name)
            if key is not None:
                if os.path.isdir(f"{self._log_dir}/{name}"):
                    contents.logs.append(key)
            elif name.endswith(DELETE_DIRECTORY):
                contents.deleted.append(name)
            elif name.endswith(STRAY_DIRECTORY):
                contents.strays.append(name)
            elif (key := parse_future_directory(name)) is not None:
                contents.futures.setdefault(key, []).append(name)
        self._futures = contents.futures
        return contents

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The topic id in the partition.metadata of the directory of that name; None without one. Of a file that cannot
        be read its log tells."""
        try:
            return read_topic_id(self._files, f"{self._log_dir}/{name}/{PARTITION_METADATA}")
        except (ValueError, OSError):
            return None

    def topic_id_of(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic id in the log's partition.metadata; None without one."""
        return self.topic_id(partition_directory(*key))

    def has_records(self, key: TopicPartition) -> bool:
        """Whether the log ever had a record. Raises StorageError."""
        path = self.path(key)
        try:
            segments = [name for name in self._files.listdir(path) if name.endswith(LOG)]
            return any(name != FIRST_SEGMENT or os.path.getsize(f"{path}/{name}") > 0 for name in segments)
        except OSError as error:
            raise storage_error(f"cannot look into {key[0]}-{key[1]}", path, error) from error

    def rename(self, key: TopicPartition, suffix: str) -> str:
        """Frees the name of a log: its directory gets a new path with `suffix`, which is returned. Raises OSError."""
        return self._rename(partition_directory(*key), key, suffix)

    def new_future(self, key: TopicPartition) -> str:
        """The name for a new unfinished copy."""
        name = future_directory(*key)
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

        The names of both tell the next start that they belong together, if the broker dies in between.
        """
        path = f"{self._log_dir}/{replaced_directory(future)}"
        self._files.rename(self.path(key), path)
        self._files.sync(self._log_dir)
        return path

    def rename_futures(self, key: TopicPartition) -> list[str]:
        """Marks the unfinished copies of a log for deletion: they must not meet a new log of that name.

        Returns their new paths. Raises OSError.
        """
        return [self._rename(name, key, DELETE_DIRECTORY) for name in self._futures.pop(key, ())]

    def restore(self, name: str, key: TopicPartition) -> None:
        """Gives a log that was renamed its name again. Raises OSError."""
        self._files.rename(f"{self._log_dir}/{name}", self.path(key))
        self._files.sync(self._log_dir)

    def _rename(self, name: str, key: TopicPartition, suffix: str) -> str:
        path = f"{self._log_dir}/{renamed_directory(*key, suffix)}"
        self._files.rename(f"{self._log_dir}/{name}", path)
        return path
