"""All logs of one data directory: who may use it, what is in it, and how it is left behind.

    .lock                              held while a broker runs here
    meta.properties                    whose directory it is: cluster id and broker id
    .kafka_cleanshutdown               there if the last stop was orderly; taken away before anything is loaded
    recovery-point-offset-checkpoint   up to where each log is on the disk for sure
    log-start-offset-checkpoint        where logs begin that begin inside a segment
    replication-offset-checkpoint      high watermarks
    <topic>-<partition>/               the logs; see `names` for those on their way out

Slow work goes to other threads (`background`); the owner's thread hears of its end when it is woken (`hear`).
Source: kafka.log.LogManager, CleanShutdownFileHandler, MetaPropertiesEnsemble.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import resource
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from kafkalite.clock import Clock, Timer
from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.errors import ConfigError, StorageError
from kafkalite.log.background import BackgroundWork, RunInBackground
from kafkalite.log.checkpoint import MetaProperties, read_meta_properties, read_topic_id
from kafkalite.log.files import (
    Files,
    storage_error,
)
from kafkalite.log.names import (
    CLEAN_SHUTDOWN,
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    LOCK,
    META_PROPERTIES,
    PARTITION_METADATA,
    STRAY_DIRECTORY,
    directory_aside,
    parse_partition_directory,
    partition_directory,
)
from kafkalite.log.offset_checkpoints import LogOffsets, OffsetCheckpoints
from kafkalite.log.open_segments import OpenSegments, capacity_for_limit
from kafkalite.log.partition_log import LogServices, PartitionLog
from kafkalite.log.recovery import Known
from kafkalite.region import OpenFile

logger = logging.getLogger(__name__)

_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
_SYNC_THREADS = 16  # fsyncs that wait together share the disk's journal commits


class LogManager:
    """Owns the directory from construction to `close`. `logs` maps (topic, partition) to its log; `was_clean` says
    whether the last stop was orderly."""

    def __init__(
        self,
        data_dir: str | Path,
        clock: Clock,
        config: BrokerConfig,
        run_in_background: RunInBackground | None = None,
        files: Files | None = None,
        wake: Callable[[], object] | None = None,
    ) -> None:
        """Make the directory if need be and lock it. `wake` is called on another thread when there is something to
        `hear`. Raises ConfigError with one line for the operator."""
        self.data_dir = os.path.abspath(data_dir)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.high_watermarks: dict[tuple[str, int], int] = {}
        self._clock = clock
        self._config = config
        self._work = BackgroundWork(run_in_background, wake)
        self.hear = self._work.hear
        self._background = self._work.lane()
        self._timers: dict[Timer, None] = {}
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files = files or Files(OpenSegments(capacity_for_limit(limit)))
        self._checkpoints = OffsetCheckpoints(self.data_dir, self._files)
        self._checkpoint_is_due = False
        self._loaded = False
        self.was_clean = True
        self._settled = False
        self._lock: OpenFile | None = _lock(self.data_dir)
        self._meta = read_meta_properties(self._files, self._path(META_PROPERTIES))
        self._services = LogServices(
            clock,
            self._work.lane,
            self._files,
            config.producer_id_expiration_ms,
            self.hear,
        )

    @property
    def stored_cluster_id(self) -> str | None:
        """The cluster that the directory's meta.properties names; None for a new directory."""
        return self._meta.cluster_id if self._meta is not None else None

    def stored_topics(self) -> dict[str, tuple[uuid.UUID | None, int]]:
        """The topics that have directories here, with their ids if these are known and their partition counts."""
        found: dict[str, tuple[uuid.UUID | None, int]] = {}
        for name in sorted(self._files.listdir(self.data_dir)):
            key = parse_partition_directory(name)
            if key is not None:
                topic, partition = key
                topic_id, count = found.get(topic, (None, 0))
                topic_id = topic_id or read_topic_id(self._files, f"{self._path(name)}/{PARTITION_METADATA}")
                found[topic] = topic_id, max(count, partition + 1)
        return found

    def load(self, cluster_id: str, topic_config_for: Callable[[str], TopicConfig]) -> None:
        """Take possession for `cluster_id`, and open every log; after an unclean stop, recover them.

        Raises ConfigError for a directory of another cluster or broker, StorageError.
        """
        started = time.perf_counter()
        self._claim(cluster_id)
        try:
            clean = self.was_clean = os.path.exists(self._path(CLEAN_SHUTDOWN))
            self._files.unlink_if_exists(self._path(CLEAN_SHUTDOWN))
            with os.scandir(self.data_dir) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as error:
            raise storage_error("cannot load the logs", self.data_dir, error) from error
        collecting = gc.isenabled()
        gc.disable()  # everything made here stays: 72 us a log instead of 92 us
        try:
            self._open_all(names, clean, topic_config_for)
        finally:
            if collecting:
                gc.enable()
        self._loaded = True
        if self.logs:
            took_ms = (time.perf_counter() - started) * 1000
            how = "loaded" if clean else "recovered after an unclean stop"
            lost_bytes = sum(log.lost_bytes for log in self.logs.values())
            lost = f"; {lost_bytes} torn or damaged bytes were cut off" if lost_bytes else ""
            logger.info("%d logs %s in %.0f ms%s", len(self.logs), how, took_ms, lost)

    def _open_all(self, names: list[str], clean: bool, topic_config_for: Callable[[str], TopicConfig]) -> None:
        recovery_points, log_starts, high_watermarks = self._checkpoints.read()
        self.high_watermarks = dict(high_watermarks)
        configs: dict[str, TopicConfig] = {}
        for name in names:
            found = parse_partition_directory(name)
            if found is None:
                self._not_a_log(name)
                continue
            topic, partition = found
            config = configs.get(topic)
            if config is None:
                config = configs[topic] = topic_config_for(topic)
            known = Known(clean, recovery_points.get(found, 0), log_starts.get(found, 0))
            directory = f"{self.data_dir}/{name}"
            self.logs[found] = PartitionLog.open(topic, partition, directory, config, known, self._services)

    def settled(self) -> None:
        """Whoever knows which logs there should be has seen to it. Before that, a stop after an unclean start is not a
        clean one: the next start must look for the same things again."""
        self._settled = True

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        """A new, empty log under a name that no log has. Raises StorageError."""
        assert (topic, partition) not in self.logs
        if self._checkpoints.may_name((topic, partition)):
            self._forget_old_names(topic, partition)
        directory = self._path(partition_directory(topic, partition))
        if os.path.lexists(directory):
            logger.warning("%s is of no log: what was left of an earlier one goes", directory)
            self._remove_later(self._move_aside(topic, partition, DELETE_DIRECTORY), config.file_delete_delay_ms)
        log = PartitionLog.create(topic, partition, directory, topic_id, config, self._services)
        self.logs[topic, partition] = log
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Remove a log: its name is free at once, its files go after file.delete.delay.ms. Raises StorageError."""
        log = self._let_go(topic, partition)
        if log is not None:
            aside = self._move_aside(topic, partition, DELETE_DIRECTORY)
            self._remove_later(aside, log.config.file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int) -> None:
        """Remove a log that nobody knows, but keep its files: as <topic>-<partition>.<uuid>-stray, for somebody to look
        at. Raises StorageError."""
        if self._let_go(topic, partition) is not None:
            aside = self._move_aside(topic, partition, STRAY_DIRECTORY)
            logger.warning("%s-%d is kept as %s and not served", topic, partition, aside)

    def highest_producer_id(self) -> int:
        """The greatest producer id that any log has met, -1 if none has: those given out from now on must be above."""
        return max((log.producers.highest_id for log in self.logs.values()), default=-1)

    def checkpoint(self, high_watermarks: Mapping[tuple[str, int], int] | None = None) -> None:
        """Write down recovery points, start offsets and high watermarks, in the background.

        `high_watermarks` of None: every record of every log is committed.
        """
        self.hear()
        points = {key: log.recovery_point for key, log in self.logs.items()}
        write, written = self._checkpoints.write_later(self._offsets(points, high_watermarks))

        def done(error: Exception | None) -> None:
            written(error)
            if error is not None:
                logger.error("cannot write the checkpoints in %s: %s", self.data_dir, error)

        self._background(write, done)

    def flush_if_due(self) -> None:
        """Have the logs flushed whose flush.ms has passed since their last flush. Raises StorageError if some cannot
        be; those that have failed for good said so when they did."""
        now_ms = self._clock.wall_ms()
        refused: StorageError | None = None
        for log in self.logs.values():
            try:
                log.flush_if_due(now_ms)
            except StorageError as error:
                refused = error
        if refused is not None:
            raise refused

    def close(self) -> None:
        """Leave the directory as after an orderly stop, and let go of it. What fails is logged: then the next start
        recovers. Does nothing the second time."""
        if self._lock is None:
            return
        self._work.wait()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        try:
            if self._loaded:
                self._shut_logs()
        except (StorageError, OSError) as error:
            logger.error("%s was not closed cleanly: %s", self.data_dir, error)
        finally:
            for log in self.logs.values():
                log.abandon()
            self.logs.clear()
            self._lock = None  # the descriptor goes, and with it the lock

    def _shut_logs(self) -> None:
        """Raises StorageError when some log is not in order: the others are, but the stop was not a clean one."""
        paths: dict[str, None] = {}
        points: dict[tuple[str, int], int] = {}
        fault: StorageError | None = None
        for key, log in self.logs.items():
            try:
                paths.update(dict.fromkeys(log.shut()))
                points[key] = log.end_offset
            except StorageError as error:
                points[key] = log.recovery_point
                fault = fault or error
        _sync_together(self._files, list(paths))
        self._files.sync_all([*self._checkpoints.write(self._offsets(points), durable=False), self.data_dir])
        if fault is not None:
            raise fault
        if self.was_clean or self._settled:
            self._files.write_atomically(self._path(CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)

    def _offsets(
        self,
        recovery_points: Mapping[tuple[str, int], int],
        high_watermarks: Mapping[tuple[str, int], int] | None = None,
    ) -> LogOffsets:
        logs = self.logs
        starts = {key: log.start_offset for key, log in logs.items() if log.start_offset > log.segments[0].base_offset}
        ends = {key: log.end_offset for key, log in logs.items()}
        known = {key: offset for key, offset in (high_watermarks or {}).items() if key in ends}
        return LogOffsets(recovery_points, starts, ends | known)

    # logs that go

    def _let_go(self, topic: str, partition: int) -> PartitionLog | None:
        log = self.logs.pop((topic, partition), None)
        if log is not None:
            self.high_watermarks.pop((topic, partition), None)
            log.abandon()
            if self._checkpoints.may_name((topic, partition)):
                self._checkpoint_soon()
        return log

    def _move_aside(self, topic: str, partition: int, suffix: str) -> str:
        """Free the name of a directory; its new path. Raises StorageError."""
        aside = self._path(directory_aside(topic, partition, suffix))
        try:
            self._files.rename(self._path(partition_directory(topic, partition)), aside)
        except OSError as error:
            raise storage_error(f"cannot move {topic}-{partition} aside", self.data_dir, error) from error
        return aside

    def _checkpoint_soon(self) -> None:
        """Write the checkpoints once for all logs that go in this turn of the loop."""
        if self._checkpoint_is_due:
            return
        self._checkpoint_is_due = True

        def due() -> None:
            del self._timers[timer]
            self._checkpoint_is_due = False
            self.checkpoint()

        timer = self._clock.call_later(0, due)
        self._timers[timer] = None

    def _forget_old_names(self, topic: str, partition: int) -> None:
        """Write the checkpoints here and now, without the logs that are gone. Raises StorageError."""
        try:
            self._checkpoints.write(self._offsets({key: log.recovery_point for key, log in self.logs.items()}))
        except OSError as error:
            raise storage_error(f"cannot create {topic}-{partition}", self.data_dir, error) from error

    # the directory

    def _claim(self, cluster_id: str) -> None:
        """Check meta.properties, or write it in a new directory."""
        path = self._path(META_PROPERTIES)
        broker_id = self._config.broker_id
        meta = self._meta
        if meta is None:
            meta = MetaProperties(cluster_id, broker_id)
        else:
            if meta.cluster_id not in (None, cluster_id):
                raise ConfigError(
                    f"{path} says that the directory belongs to cluster {meta.cluster_id}, but this broker is of "
                    f"cluster {cluster_id}; use another data directory (log.dirs), or remove that file to take it over"
                )
            if meta.broker_id not in (None, broker_id):
                raise ConfigError(
                    f"{path} says that the directory belongs to broker {meta.broker_id}, but broker.id is "
                    f"{broker_id}; set broker.id={meta.broker_id}, or use another data directory (log.dirs)"
                )
            if None not in meta:
                return
            meta = MetaProperties(cluster_id, broker_id)
        try:
            self._files.write_atomically(path, meta.encode(self._clock.wall_ms()))
        except OSError as error:
            raise storage_error(f"cannot write {path}", self.data_dir, error) from error
        self._meta = meta

    def _not_a_log(self, name: str) -> None:
        if name.endswith(DELETE_DIRECTORY):
            self._remove_later(self._path(name), self._config.log_segment_delete_delay_ms)
        elif name.endswith((FUTURE_DIRECTORY, STRAY_DIRECTORY)):
            logger.warning("%s/%s is left alone: this broker has one data directory", self.data_dir, name)

    def _remove_later(self, directory: str, delay_ms: int) -> None:
        def hand_out() -> None:
            del self._timers[timer]
            self._background(lambda: self._files.remove_directory(directory), removed)

        def removed(error: Exception | None) -> None:
            if error is not None:
                logger.warning("cannot remove %s: %s; the next start tries again", directory, error)

        timer = self._clock.call_later(delay_ms, hand_out)
        self._timers[timer] = None

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"


def _lock(data_dir: str) -> OpenFile:
    """Make and lock the directory: against our own kind (flock) and against Apache Kafka (a POSIX record lock)."""
    try:
        os.makedirs(data_dir, exist_ok=True)
        lock = OpenFile(f"{data_dir}/{LOCK}", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ConfigError(
            f"cannot use {data_dir} as the data directory: {error.strerror}; choose another one (log.dirs)"
        ) from error
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(
            f"{data_dir} is in use: another broker holds {lock.path}; stop it, or choose another directory (log.dirs)"
        ) from error
    return lock


def _sync_together(files: Files, paths: list[str]) -> None:
    """fsync many files. Raises OSError."""
    if len(paths) <= _SYNC_THREADS:
        files.sync_all(paths)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="kafkalite-sync") as pool:
        for _ in pool.map(files.sync, paths):
            pass
