"""All directories of log.dirs: they belong to one broker, and each log is in one of them.

A directory whose disk fails at start is marked as offline and logged; without any online directory the start ends.
Where two directories have a log of the same name, the topic id decides which of them is served.
Offset checkpoints are written in the background; requests that come during a write share the next one.
Source: kafka.log.LogManager (createAndValidateLogDirs, lockLogDirs, loadLog),
org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from kafkalite.common.clock import TimerGroup
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.directories.meta_properties import MetaProperties, agreed
from kafkalite.log.directories.offset_checkpoints import LogOffsets
from kafkalite.log.directories.partition_directories import DirectoryContents
from kafkalite.log.storage.file_names import (
    META_PROPERTIES,
    STRAY_DIRECTORY,
    parse_stray_partition,
    replaced_directory,
)
from kafkalite.log.storage.files import Background, Files, storage_error

logger = logging.getLogger(__name__)

Written = Callable[[], None]


class CheckpointWriter:
    """Belongs to the owner of the logs. Failures are logged and reported; the next write tries again."""

    def __init__(self, timers: TimerGroup) -> None:
        self._timers = timers
        self._due: set[str] = set()  # paths of the directories that `write_soon` was called for
        self._waiting: dict[str, list[Written]] = {}  # callers for the next write, by path, while one is in flight

    def write_changes(self, directory: LogDirectory) -> None:
        """As `write`, unless the files have these offsets already. A broker that idles writes nothing."""
        offsets = directory.offsets(directory.recovery_points())
        if not directory.checkpoints.is_written(offsets):
            self._write(directory, offsets)

    def write(self, directory: LogDirectory, done: Written = lambda: None) -> None:
        """Writes the offsets that the directory's logs have now. `done` is called after a failure, too."""
        self._write(directory, directory.offsets(directory.recovery_points()), done)

    def _write(self, directory: LogDirectory, offsets: LogOffsets, done: Written = lambda: None) -> None:
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

    def write_all(self, directories: Collection[LogDirectory], done: Written) -> None:
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

    def _write_for(self, directory: LogDirectory, callers: list[Written]) -> None:
        """One write for all `callers`, then one for all that came meanwhile."""
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


TopicIdOf = Callable[[str], uuid.UUID | None]


class StoredTopic:
    """A topic in the directories: its id, if that is known, and the partitions that are there."""

    __slots__ = ("partitions", "topic_id")

    def __init__(self) -> None:
        self.topic_id: uuid.UUID | None = None
        self.partitions: set[int] = set()


class StoredLogs(NamedTuple):
    """The logs in all directories. `directories`: the one that each log is in; `checkpoints` and `contents` by path."""

    directories: dict[TopicPartition, LogDirectory]
    checkpoints: dict[str, LogOffsets]
    contents: dict[str, DirectoryContents]


class LogDirectories:
    """The directories, in the order of log.dirs. Every `online` one is locked until `close`."""

    def __init__(
        self,
        log_dirs: Sequence[str | Path],
        broker_id: int,
        files: Files,
        serial_queue: Callable[[], Background],
        timers: TimerGroup,
    ) -> None:
        """Creates missing directories and locks all. `broker_id` -1 accepts directories of any broker. Raises
        ConfigError with one line for the operator."""
        self._all = [LogDirectory(path, files, serial_queue(), timers) for path in _distinct(log_dirs)]
        try:
            self._open()
            self._check_broker(broker_id)
            self._meta = agreed({d.path_of(META_PROPERTIES): d.meta for d in self.online if d.meta is not None})
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._all)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._all if directory.is_online]

    @property
    def offline(self) -> list[LogDirectory]:
        return [directory for directory in self._all if not directory.is_online]

    def containing(self, path: str) -> LogDirectory | None:
        """The log directory at `path`, or around the partition directory at `path`."""
        for directory in self._all:
            if path == directory.path or os.path.dirname(path) == directory.path:
                return directory
        return None

    def _open(self) -> None:
        fault: ConfigError | None = None
        for directory in self._all:
            try:
                directory.open()
            except OSError as error:
                directory.fail(f"cannot use {directory.path} as the data directory: {error.strerror or error}")
                if fault is None:
                    fault = ConfigError(f"{directory.failure}; choose another one (log.dirs)")
        if not self.online:
            assert fault is not None
            raise fault
        for directory in self._all:
            if directory.failure is not None:
                logger.error("%s; it stays offline, and the others are served", directory.failure)

    @property
    def stored_cluster_id(self) -> str | None:
        """The cluster id in meta.properties; None in new directories."""
        return self._meta.cluster_id

    @property
    def stored_broker_id(self) -> int | None:
        """The broker id in meta.properties; None in new directories."""
        return self._meta.broker_id

    @property
    def was_used_by_another(self) -> bool:
        """Whether another broker, such as Apache Kafka, ran on one of them since the last shutdown of kafkalite."""
        return any(directory.last_shutdown.by_another for directory in self.online)

    def stored_topics(self) -> dict[str, StoredTopic]:
        """The topics that have logs here, with their ids if these are known. Raises StorageError."""
        found: dict[str, StoredTopic] = {}
        for directory in self.online:
            try:
                keys = directory.partitions.listing().logs
            except OSError as error:
                raise storage_error("cannot look for topics", directory.path, error) from error
            for key in keys:
                topic = found.setdefault(key[0], StoredTopic())
                topic.partitions.add(key[1])
                topic.topic_id = topic.topic_id or directory.partitions.topic_id_of(key)
        return dict(sorted(found.items()))

    def restore_strays(self, known: Mapping[uuid.UUID, str]) -> None:
        """Gives strays of these topics their names again: Apache Kafka with KRaft makes strays of topics that it does
        not know. A partition that is there twice is left to the operator. Raises StorageError."""
        strays: dict[TopicPartition, list[tuple[LogDirectory, str]]] = {}
        taken: set[TopicPartition] = set()
        for directory in self.online:
            try:
                contents = directory.partitions.listing()
                taken.update(contents.logs)
                for name in contents.strays:
                    topic_id, partition = directory.partitions.topic_id_in(name), parse_stray_partition(name)
                    if topic_id is not None and topic_id in known and partition is not None:
                        strays.setdefault((known[topic_id], partition), []).append((directory, name))
            except OSError as error:
                raise storage_error("cannot look for topics", directory.path, error) from error
        for key, places in strays.items():
            if key in taken or len(places) > 1:
                continue
            (directory, name), *_ = places
            try:
                directory.partitions.restore(name, key)
            except OSError as error:
                raise storage_error(f"cannot take {name} back", directory.path, error) from error
            logger.info("%s was renamed to -stray by another broker, and is %s-%d again", directory.path_of(name), *key)

    def _check_broker(self, broker_id: int) -> None:
        """Raises ConfigError before anything is written."""
        for directory in self.online:
            meta, path = directory.meta, directory.path_of(META_PROPERTIES)
            if meta is not None and meta.broker_id not in (None, broker_id) and broker_id >= 0:
                raise ConfigError(
                    f"{path} says that the directory belongs to broker {meta.broker_id}, but broker.id is "
                    f"{broker_id}; set broker.id={meta.broker_id}, or use another data directory (log.dirs)"
                )

    def claim(self, cluster_id: str, broker_id: int, now_ms: int) -> None:
        """Checks every meta.properties, and writes it in new directories, in the version of the others.

        Raises ConfigError for a directory of another cluster, StorageError.
        """
        for directory in self.online:
            meta, path = directory.meta, directory.path_of(META_PROPERTIES)
            if meta is None:
                meta = MetaProperties(version=self._meta.version)
            if meta.cluster_id not in (None, cluster_id):
                raise ConfigError(
                    f"{path} says that the directory belongs to cluster {meta.cluster_id}, but this broker is of "
                    f"cluster {cluster_id}; use another data directory (log.dirs), or remove that file to take it over"
                )
            try:
                directory.claim(meta.completed(cluster_id, broker_id), now_ms)
            except OSError as error:
                if not directory.is_failed_by(error):
                    raise storage_error(f"cannot write {path}", directory.path, error) from error
                self.mark_offline(directory, error)

    def mark_unclean(self, *, takes_over: bool) -> None:
        """Marks them as in use: from now on a stop counts as unclean. Raises StorageError when none is left."""
        for directory in self.online:
            try:
                directory.mark_unclean(takes_over=takes_over)
            except OSError as error:
                self.mark_offline(directory, error)

    def list_logs(self, topic_id_of: TopicIdOf) -> StoredLogs:
        """Raises ConfigError when two directories have the same log, StorageError when no directory is left."""
        stored = StoredLogs({}, {}, {})
        self._finish_moves()
        places: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self.online:
            try:
                contents = directory.partitions.listing()
                checkpoints = directory.checkpoints.read()
            except OSError as error:
                self.mark_offline(directory, error)
                continue
            stored.contents[directory.path] = contents
            stored.checkpoints[directory.path] = checkpoints
            _warn(directory, contents.strays, contents.futures)
            for key in contents.logs:
                places.setdefault(key, []).append(directory)
        for key, several in places.items():
            right = several[0] if len(several) == 1 else self._choose(key, several, topic_id_of(key[0]))
            stored.directories[key] = right
        return stored

    def _finish_moves(self) -> None:
        """A copy that was about to take the place of its log: the log has a new name already, with the same uuid."""
        replaced: set[str] = set()
        futures: list[tuple[LogDirectory, TopicPartition, str]] = []
        taken: set[TopicPartition] = set()
        for directory in self.online:
            try:
                contents = directory.partitions.listing()
            except OSError:
                continue  # `list_logs` meets the same error
            replaced.update(contents.deleted)
            taken.update(contents.logs)
            futures += [(directory, key, name) for key, names in contents.futures.items() for name in names]
        for directory, key, name in futures:
            if key not in taken and replaced_directory(name) in replaced:
                try:
                    directory.partitions.put_future(name, key)
                except OSError as error:
                    what = f"cannot complete the move of {key[0]}-{key[1]}"
                    raise storage_error(what, directory.path, error) from error
                logger.info("%s is %s-%d now: the broker ended while it moved there", directory.path_of(name), *key)

    def _choose(self, key: TopicPartition, places: list[LogDirectory], topic_id: uuid.UUID | None) -> LogDirectory:
        """Of several logs of one name, the one with the id of the topic; of several such logs, the one with records.
        The others become strays.

        A directory that was not in log.dirs for a time may have the log of an earlier topic of that name; where it
        was away or failed while the log was created, the same log may exist twice, once without a record.
        """
        right = [each for each in places if topic_id is not None and each.partitions.topic_id_of(key) == topic_id]
        if len(right) > 1:
            right = [directory for directory in right if directory.partitions.has_records(key)] or right[:1]
        if len(right) != 1:
            one, other = (directory.partitions.log_path(key) for directory in places[:2])
            raise ConfigError(
                f"{one} and {other} are both logs of {key[0]}-{key[1]}: either the broker that filled them stopped "
                "while it moved the partition, or one of the directories was not in log.dirs for a time. Move one of "
                "the two logs out of log.dirs; its records are not served then"
            )
        for directory in places:
            if directory is not right[0]:
                path = directory.partitions.log_path(key)
                _rename_to_stray(directory, key)
                logger.warning("%s is renamed to -stray: the log of that topic is in %s", path, right[0].path)
        return right[0]

    def mark_offline(self, directory: LogDirectory, error: OSError) -> None:
        """Marks the directory as offline. Raises StorageError when no other is left."""
        directory.fail_with(error)
        directory.close()
        if not self.online:
            raise StorageError(f"{directory.failure}; no data directory is left (log.dirs)") from error
        logger.error("%s; it stays offline, and the others are served", directory.failure)

    def close(self) -> None:
        """Closes all of them, as they are."""
        for directory in self._all:
            directory.close()


def _distinct(log_dirs: Sequence[str | Path]) -> list[str]:
    """Absolute paths. ConfigError if two of them are one directory."""
    paths: dict[str, str] = {}
    for log_dir in log_dirs:
        path = os.path.abspath(log_dir)
        other = paths.setdefault(os.path.realpath(path), path)
        if other != path or [os.path.abspath(each) for each in log_dirs].count(path) > 1:
            raise ConfigError(f"log.dirs names one directory twice: {other} and {path}")
    return list(paths.values())


def _rename_to_stray(directory: LogDirectory, key: TopicPartition) -> None:
    try:
        directory.partitions.rename(key, STRAY_DIRECTORY)
    except OSError as error:
        raise storage_error(f"cannot move {key[0]}-{key[1]} aside", directory.path, error) from error


def _warn(directory: LogDirectory, strays: Sequence[str], futures: Mapping[TopicPartition, object]) -> None:
    if strays:
        logger.warning(
            "%s holds %d partitions that no topic knew when they were found, such as %s: they are kept, but not "
            "served; delete them when they are not needed",
            directory.path, len(strays), strays[0],
        )  # fmt: skip
    if futures:
        names = ", ".join(sorted(f"{topic}-{partition}" for topic, partition in futures))
        logger.warning(
            "%s holds unfinished copies (-future) of %s: what is served from another directory is copied again, and "
            "all others are left alone", directory.path, names,
        )  # fmt: skip
