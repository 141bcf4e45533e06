"""The directories of log.dirs together: they are of one broker, and what each holds has one place.

At start a directory whose disk refuses is left out and said so (`leave_out`); with the last one the start ends. Two
directories with a log of the same name are a contradiction that only an id can settle: which of them is the topic's.
Source: kafka.log.LogManager (createAndValidateLogDirs, lockLogDirs, loadLog),
org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.log.directories.log_directory import Contents, LogDirectory
from kafkalite.log.directories.meta_properties import MetaProperties, agreed
from kafkalite.log.directories.offset_checkpoints import LogOffsets
from kafkalite.log.storage.file_names import META_PROPERTIES, STRAY_DIRECTORY, partition_set_aside
from kafkalite.log.storage.files import Background, Files, storage_error

logger = logging.getLogger(__name__)

TopicIdOf = Callable[[str], uuid.UUID | None]


class StoredTopic:
    """What the directories hold of a topic: its id, if they say, and the partitions that are there."""

    __slots__ = ("partitions", "topic_id")

    def __init__(self) -> None:
        self.topic_id: uuid.UUID | None = None
        self.partitions: set[int] = set()


class Holdings(NamedTuple):
    """What all of them hold. `homes`: where each log lives; `checkpoints` and `contents` by path."""

    homes: dict[TopicPartition, LogDirectory]
    checkpoints: dict[str, LogOffsets]
    contents: dict[str, Contents]


class LogDirectories:
    """In the order of log.dirs. Those that are `online` are locked for us until `leave`."""

    def __init__(
        self, data_dirs: Sequence[str | Path], broker_id: int, files: Files, lane: Callable[[], Background]
    ) -> None:
        """Make them if need be and lock them. `broker_id` -1: whosever they are. Raises ConfigError with one line for
        the operator."""
        self._all = [LogDirectory(path, files, lane()) for path in _distinct(data_dirs)]
        try:
            self._enter()
            self._check_broker(broker_id)
            self._meta = agreed({d.path_of(META_PROPERTIES): d.meta for d in self.online if d.meta is not None})
        except BaseException:
            self.leave()
            raise

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._all)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._all if directory.is_online]

    @property
    def offline(self) -> list[LogDirectory]:
        return [directory for directory in self._all if not directory.is_online]

    def holding(self, path: str) -> LogDirectory | None:
        """The one that `path` is, or that has the log whose directory it is."""
        for directory in self._all:
            if path == directory.path or os.path.dirname(path) == directory.path:
                return directory
        return None

    def _enter(self) -> None:
        fault: ConfigError | None = None
        for directory in self._all:
            try:
                directory.enter()
            except OSError as error:
                directory.failure = f"cannot use {directory.path} as the data directory: {error.strerror or error}"
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
        """The cluster that the directories name; None for new ones."""
        return self._meta.cluster_id

    @property
    def stored_broker_id(self) -> int | None:
        """The broker that they name."""
        return self._meta.broker_id

    @property
    def was_used_by_another(self) -> bool:
        """Whether, by the marks in the directories, another broker ran on them since our last stop."""
        return any(directory.was_used_by_another for directory in self.online)

    def stored_topics(self) -> dict[str, StoredTopic]:
        """The topics that have logs here, with their ids if these are known. Raises StorageError."""
        found: dict[str, StoredTopic] = {}
        for directory in self.online:
            try:
                keys = directory.look().logs
            except OSError as error:
                raise storage_error("cannot look for topics", directory.path, error) from error
            for key in keys:
                topic = found.setdefault(key[0], StoredTopic())
                topic.partitions.add(key[1])
                topic.topic_id = topic.topic_id or directory.topic_id(key)
        return dict(sorted(found.items()))

    def take_back(self, known: Mapping[uuid.UUID, str]) -> None:
        """Give the logs of these topics their names again where another broker, which did not know the topics, has set
        them aside: Apache Kafka does so with KRaft. What is here twice is left to the operator. Raises StorageError."""
        aside: dict[TopicPartition, list[tuple[LogDirectory, str]]] = {}
        taken: set[TopicPartition] = set()
        for directory in self.online:
            try:
                contents = directory.look()
                taken.update(contents.logs)
                for name in contents.strays:
                    topic_id, partition = directory.topic_id_in(name), partition_set_aside(name)
                    if topic_id is not None and topic_id in known and partition is not None:
                        aside.setdefault((known[topic_id], partition), []).append((directory, name))
            except OSError as error:
                raise storage_error("cannot look for topics", directory.path, error) from error
        for key, places in aside.items():
            if key in taken or len(places) > 1:
                continue
            (directory, name), *_ = places
            try:
                directory.move_back(name, key)
            except OSError as error:
                raise storage_error(f"cannot take {name} back", directory.path, error) from error
            logger.info("%s was set aside by another broker, and is %s-%d again", directory.path_of(name), *key)

    def _check_broker(self, broker_id: int) -> None:
        """Before anybody writes anything."""
        for directory in self.online:
            meta, path = directory.meta, directory.path_of(META_PROPERTIES)
            if meta is not None and meta.broker_id not in (None, broker_id) and broker_id >= 0:
                raise ConfigError(
                    f"{path} says that the directory belongs to broker {meta.broker_id}, but broker.id is "
                    f"{broker_id}; set broker.id={meta.broker_id}, or use another data directory (log.dirs)"
                )

    def claim(self, cluster_id: str, broker_id: int, now_ms: int) -> None:
        """Check every meta.properties, or write it in a new directory, in the form of the others. Raises ConfigError
        for a directory of another cluster, StorageError."""
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
                self.leave_out(directory, error)

    def begin(self, *, takes_over: bool = False) -> None:
        """From now on a stop that comes by itself is no orderly one. Raises StorageError when no directory is left."""
        for directory in self.online:
            try:
                directory.begin(takes_over=takes_over)
            except OSError as error:
                self.leave_out(directory, error)

    def look(self, topic_id_of: TopicIdOf) -> Holdings:
        """What is in them. Raises ConfigError when two have the same log, StorageError when no directory is left."""
        holdings = Holdings({}, {}, {})
        places: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self.online:
            try:
                contents = directory.look()
                checkpoints = directory.checkpoints.read()
            except OSError as error:
                self.leave_out(directory, error)
                continue
            holdings.contents[directory.path] = contents
            holdings.checkpoints[directory.path] = checkpoints
            _explain(directory, contents.strays, contents.futures)
            for key in contents.logs:
                places.setdefault(key, []).append(directory)
        for key, several in places.items():
            right = several[0] if len(several) == 1 else self._the_right_one(key, several, topic_id_of(key[0]))
            holdings.homes[key] = right
        return holdings

    def _the_right_one(
        self, key: TopicPartition, places: list[LogDirectory], topic_id: uuid.UUID | None
    ) -> LogDirectory:
        """Of several logs of one name, the one that belongs to the topic, or of those the one that was ever written to:
        a directory that was away may have kept one of an earlier topic of that name, and one that was away or failed
        while the log was made may have the same log without a record. What is not right is set aside."""
        right = [directory for directory in places if topic_id is not None and directory.topic_id(key) == topic_id]
        if len(right) > 1:
            right = [directory for directory in right if directory.was_written(key)] or right[:1]
        if len(right) != 1:
            one, other = (directory.log_path(key) for directory in places[:2])
            raise ConfigError(
                f"{one} and {other} are both logs of {key[0]}-{key[1]}: either the broker that filled them stopped "
                "while it moved the partition, or one of the directories was not in log.dirs for a time. Move one of "
                "the two logs out of log.dirs; its records are not served then"
            )
        for directory in places:
            if directory is not right[0]:
                path = directory.log_path(key)
                _set_aside(directory, key)
                logger.warning("%s is set aside: the log of that topic is in %s", path, right[0].path)
        return right[0]

    def leave_out(self, directory: LogDirectory, error: OSError) -> None:
        """Go on without it. Raises StorageError when no directory is left."""
        directory.fail(error)
        directory.leave()
        if not self.online:
            raise StorageError(f"{directory.failure}; no data directory is left (log.dirs)") from error
        logger.error("%s; it stays offline, and the others are served", directory.failure)

    def leave(self) -> None:
        """Let go of all of them, as they are."""
        for directory in self._all:
            directory.leave()


def _distinct(data_dirs: Sequence[str | Path]) -> list[str]:
    """Absolute paths. ConfigError if two of them are one directory."""
    paths: dict[str, str] = {}
    for data_dir in data_dirs:
        path = os.path.abspath(data_dir)
        other = paths.setdefault(os.path.realpath(path), path)
        if other != path or [os.path.abspath(each) for each in data_dirs].count(path) > 1:
            raise ConfigError(f"log.dirs names one directory twice: {other} and {path}")
    return list(paths.values())


def _set_aside(directory: LogDirectory, key: TopicPartition) -> None:
    try:
        directory.move_aside(key, STRAY_DIRECTORY)
    except OSError as error:
        raise storage_error(f"cannot move {key[0]}-{key[1]} aside", directory.path, error) from error


def _explain(directory: LogDirectory, strays: Sequence[str], futures: Mapping[TopicPartition, object]) -> None:
    if strays:
        logger.warning(
            "%s holds %d partitions that no topic knew when they were found, such as %s: they are kept, but not "
            "served; delete them when nobody misses them",
            directory.path, len(strays), strays[0],
        )  # fmt: skip
    if futures:
        names = ", ".join(sorted(f"{topic}-{partition}" for topic, partition in futures))
        logger.warning(
            "%s holds unfinished copies (-future) of %s, which Apache Kafka was moving here: they are left alone, and "
            "the partitions are served from where they were", directory.path, names,
        )  # fmt: skip
