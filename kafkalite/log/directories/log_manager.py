"""All logs of the broker: the directory that each lives in, how they are opened, created, deleted and checkpointed.

A new log goes to the directory with the fewest logs, or to the one that it was wanted in. A directory whose disk fails
goes offline alone: its logs are closed and `on_offline` is called, the others are served. I/O errors are reported
through `Files.on_io_error` and judged in one place, `LogDirectory.is_failed_by`.
Slow work runs on the flush threads; its completions run on the owner's thread (`run_completions`).
Source: kafka.log.LogManager.
"""

from __future__ import annotations

import logging
import os
import resource
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from pathlib import Path

from kafkalite.common.clock import Clock, TimerGroup
from kafkalite.common.errors import StorageError
from kafkalite.common.event import Event
from kafkalite.common.forks import close_in_children
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories import linked_copy, startup_loading
from kafkalite.log.directories.linked_copy import LinkedLog
from kafkalite.log.directories.log_directories import CheckpointWriter, LogDirectories, TopicIdOf
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.directories.log_moves import LogMoves
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import adopt_log, create_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.state.transaction_verification import VerificationSetting
from kafkalite.log.storage.files import DescriptorCache, Files, Job, SyncFailed, capacity_for_limit
from kafkalite.log.storage.io_executor import RunInBackground, SerialExecutor

logger = logging.getLogger(__name__)

_WANTED_MAX = 10_000


class ManagerState(Enum):
    """LOCKED: the directories are this broker's. LOADED: every log is open. RECONCILED: the logs agree with the
    metadata, so a stop is a clean one; before that, the next start must compare them again after an unclean one."""

    LOCKED = auto()
    LOADED = auto()
    RECONCILED = auto()
    CLOSED = auto()


ENTERED_FROM = {
    ManagerState.LOADED: {ManagerState.LOCKED},
    ManagerState.RECONCILED: {ManagerState.LOADED},
    ManagerState.CLOSED: {ManagerState.LOCKED, ManagerState.LOADED, ManagerState.RECONCILED},
}


class LogManager:
    """Owns the directories from construction to `close`. `logs` maps (topic, partition) to its log, `directories` are
    in the order of log.dirs; `was_clean` says whether the last shutdown of every directory was clean. The first
    segments of logs that are `being_cleaned` must stay; the cleaner adds and removes them.

    Events: `on_offline`, the logs of a failed directory and the reason; `on_log_removed`, a log is no longer served for
    any reason; `on_failed_log`, a log is read only from now on, since it has failed; `on_tail_in_doubt`, an fsync or a
    disk has failed, so that logs may lack records which they have acknowledged; `on_lost_tail`, the start finds that
    they do."""

    def __init__(
        self,
        log_dirs: Sequence[str | Path],
        clock: Clock,
        config: BrokerConfig,
        run_in_background: RunInBackground | None = None,
        files: Files | None = None,
        wake: Callable[[], object] | None = None,
    ) -> None:
        """Creates missing directories and locks all. `wake` is called on another thread when `run_completions`
        has something to do. Raises ConfigError with one line for the operator."""
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.being_cleaned: set[TopicPartition] = set()
        self.on_offline = Event[[Sequence[TopicPartition], str]]()
        self.on_log_removed = Event[[TopicPartition]]()
        self.on_failed_log = Event[[TopicPartition]]()
        self.on_tail_in_doubt = Event[[]]()
        self.on_lost_tail = Event[[]]()
        self._config = config
        self._clock = clock
        self._executor = SerialExecutor(run_in_background, wake)
        self.run_completions = self._executor.run_completions
        self._timers = TimerGroup(clock)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files = files or Files(DescriptorCache(capacity_for_limit(limit)))
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._checkpoints = CheckpointWriter(self._timers)
        self._state = ManagerState.LOCKED
        close_in_children(self, LogManager.abandon)
        self._takes_over = False
        self.verification = VerificationSetting(enabled=config.transaction_partition_verification_enable)
        self._context = LogContext(
            clock,
            self._executor.serial_queue,
            self._files,
            config.producer_id_expiration_ms,
            self.run_completions,
            verification=self.verification,
            record_validation=config.kafkalite_record_validation,
            before_truncation=self._before_truncation,
            on_failure=self._on_failed_log,
        )
        self.moves = LogMoves(
            self.logs, self._directory_of, self.being_cleaned, self._context, clock,
            self._executor.serial_queue, self._checkpoints.write_soon,
        )  # fmt: skip
        self._wanted: dict[TopicPartition, LogDirectory] = {}  # of logs that are to be created
        self.directories = LogDirectories(
            log_dirs, config.broker_id, self._files, self._executor.serial_queue, self._timers
        )
        self.reconfigure(config)
        self.was_clean = all(directory.last_shutdown.clean for directory in self.online)

    @property
    def online(self) -> list[LogDirectory]:
        return self.directories.online

    @property
    def offline(self) -> list[LogDirectory]:
        return self.directories.offline

    def directory_of(self, key: TopicPartition) -> LogDirectory:
        return self._directory_of[key]

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self._config = config
        self._context.producer_expiration_ms = config.producer_id_expiration_ms
        self.verification.enabled = config.transaction_partition_verification_enable
        self.moves.rate = config.replica_alter_log_dirs_io_max_bytes_per_second
        self.moves.at_once = config.num_replica_alter_log_dirs_threads or len(list(self.directories))

    def _enter(self, state: ManagerState) -> None:
        assert self._state in ENTERED_FROM[state], (self._state, state)
        self._state = state

    # start

    async def load(
        self,
        cluster_id: str,
        topic_config_for: Callable[[str], TopicConfig],
        topic_id_of: TopicIdOf = lambda topic: None,
        *,
        broker_id: int | None = None,
        takes_over: bool = False,
        progress_interval_s: float = startup_loading.PROGRESS_INTERVAL_S,
    ) -> None:
        """Claims the directories for `cluster_id` (and `broker_id`, if the settings do not have it) and opens every
        log; after an unclean shutdown, recovers them.

        `takes_over`: another broker left the logs, with settings that are not known. The next start takes over, too,
        if this one is killed before `complete_start`.

        Raises ConfigError for a directory of another cluster or broker, StorageError.
        """
        broker_id = self._config.broker_id if broker_id is None else broker_id
        online = self.online
        self.directories.claim(cluster_id, broker_id, self._clock.wall_ms())
        self._takes_over = takes_over
        self.directories.mark_unclean(takes_over=takes_over)
        stored = self.directories.list_logs(topic_id_of)
        for directory in self.online:
            for name in stored.contents[directory.path].deleted:
                delay_ms = self._config.log_segment_delete_delay_ms
                directory.partitions.remove_later(directory.path_of(name), delay_ms)
        found = startup_loading.logs_to_load(stored, topic_config_for, takes_over=takes_over)
        threads = self._config.num_recovery_threads_per_data_dir
        mark_offline = self.directories.mark_offline
        await startup_loading.StartupLoading(
            found, stored, self._context, threads, mark_offline, progress_interval_s
        ).run()
        for key, directory in stored.directories.items():
            if directory.is_online:
                self.logs[key] = directory.logs[key]
                self._directory_of[key] = directory
        for directory in self.online:
            directory.drop_wrong_cleaner_offsets()
        for directory in self.online:
            try:
                directory.elections.load()
            except OSError as error:
                logger.error("cannot read the elections in %s: %s", directory.path, error)
                continue
            directory.elections.restore(self.logs)
        if self.online != online:
            self.on_tail_in_doubt()
        elif startup_loading.lacks_committed(self.logs, stored):
            self.on_lost_tail()
        # not before: during loading errors come from other threads, and the loading handles them
        self._files.on_io_error = self._on_io_error
        self._enter(ManagerState.LOADED)

    def complete_start(self) -> None:
        """The logs agree with the metadata now: logs of deleted topics are removed."""
        self._enter(ManagerState.RECONCILED)
        for directory in self.online if self._takes_over else ():
            try:
                directory.end_takeover()
            except OSError as error:
                logger.error("%s will be taken over again at the next start: %s", directory.path, error)
                directory.on_io_error(error)
        self.moves.begin_unfinished(self.online)
        if not self.was_clean:
            startup_loading.flush_recovered(self.logs, self._timers, self.checkpoint)

    # logs

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        """A new, empty log under a name that no log has, in the directory with the fewest logs; if that refuses, in
        the next best one. Raises StorageError."""
        key = topic, partition
        assert key not in self.logs
        fault: StorageError | None = None
        wanted = self._wanted.pop(key, None)
        for directory in sorted(self.online, key=lambda each: (each is not wanted, len(each.logs))):
            try:
                log = self._create_in(directory, key, topic_id, config)
            except StorageError as error:
                fault = fault or error
                if isinstance(error.__cause__, OSError):
                    directory.on_io_error(error.__cause__)
                continue
            self.logs[key] = directory.logs[key] = log
            self._directory_of[key] = directory
            return log
        raise fault or StorageError(f"cannot create {topic}-{partition}: every data directory is offline")

    def link(self, key: TopicPartition, leader_id: int, topic_id: uuid.UUID) -> tuple[LogDirectory, LinkedLog] | None:
        """A directory made from the log of a leader on the same disk (`linked_copy`), for `create_from`. None without
        one. Takes a while, on any thread."""
        for directory in self.online:
            beside = linked_copy.find_neighbour(directory.path, leader_id, self._files)
            made = beside and linked_copy.link_log(directory.path, beside, key, topic_id, self._files)
            if made:
                return directory, made
        return None

    def create_from(self, key: TopicPartition, found: tuple[LogDirectory, LinkedLog], config: TopicConfig) -> None:
        """As `create`, with the segments that were linked. Raises StorageError."""
        directory, made = found
        self._prepare(directory, key, config)
        log = adopt_log(*key, directory.partitions.log_path(key), made.path, config, self._context)
        self.logs[key] = directory.logs[key] = log
        self._directory_of[key] = directory

    def want_in(self, key: TopicPartition, directory: LogDirectory) -> None:
        """A log of that name, if it is created, is to be in this directory."""
        if len(self._wanted) < _WANTED_MAX:
            self._wanted[key] = directory

    def _create_in(
        self, directory: LogDirectory, key: TopicPartition, topic_id: uuid.UUID, config: TopicConfig
    ) -> PartitionLog:
        self._prepare(directory, key, config)
        return create_log(*key, directory.partitions.log_path(key), topic_id, config, self._context)

    def _prepare(self, directory: LogDirectory, key: TopicPartition, config: TopicConfig) -> None:
        """Removes the rest of an earlier log of that name."""
        if directory.checkpoints.may_name(key):  # the offsets of an earlier log must not apply to the new one
            try:
                directory.checkpoints.write(directory.offsets(directory.recovery_points()))
            except OSError as error:
                what = f"cannot create {key[0]}-{key[1]}"
                raise self._files.report_io_error(what, directory.path, error) from error
        path = directory.partitions.log_path(key)
        if os.path.lexists(path):
            logger.warning("%s is left of an earlier log; deleting it", path)
            directory.partitions.delete_log(key, config.file_delete_delay_ms)

    def delete(self, topic: str, partition: int) -> None:
        """Deletes a log: its name is free at once, its files go after file.delete.delay.ms. Raises StorageError."""
        key = topic, partition
        self.moves.cancel(key)
        directory = self._directory_of.get(key)
        log = self._remove(key)
        if log is not None and directory is not None:
            directory.partitions.delete_log(key, log.config.file_delete_delay_ms)
        for directory in self.online:
            for path in directory.partitions.rename_futures(key):
                directory.partitions.remove_later(path, self._config.log_segment_delete_delay_ms)

    def keep_as_stray(self, topic: str, partition: int) -> None:
        """Removes a log that belongs to no topic, but keeps its files for the operator. Raises StorageError."""
        key = topic, partition
        self.moves.cancel(key)
        directory = self._directory_of.get(key)
        if self._remove(key) is not None and directory is not None:
            directory.partitions.keep_as_stray(key)

    def highest_producer_id(self) -> int:
        """The greatest producer id in any log, -1 without any: new ones must be above it."""
        return max((log.producers.highest_id for log in self.logs.values()), default=-1)

    def _remove(self, key: TopicPartition) -> PartitionLog | None:
        log = self.logs.pop(key, None)
        if log is not None:
            directory = self._directory_of.pop(key)
            del directory.logs[key]
            log.abandon()
            self.on_log_removed(key)
            if directory.checkpoints.may_name(key):
                self._checkpoints.write_soon(directory)
        return log

    def record_elections(self, elected: Iterable[tuple[PartitionLog, int]]) -> Iterator[tuple[Job, Callable[[], None]]]:
        """For each directory a job for another thread, which writes down that these logs begin these epochs (see
        `election_file`) and raises OSError, and a callback for its end. Only one at a time."""
        by_directory: dict[str, list[tuple[PartitionLog, int]]] = {}
        for log, epoch in elected:
            directory = self._directory_of.get((log.topic, log.partition))
            if directory is not None:
                by_directory.setdefault(directory.path, []).append((log, epoch))
        for directory in self.online:
            if some := by_directory.get(directory.path):
                yield directory.elections.record(some, self.logs)

    # checkpoints and flushes

    def checkpoint(self) -> None:
        """Writes recovery points, start offsets and high watermarks in the background, if they have changed."""
        self.run_completions()
        for directory in self.online:
            self._checkpoints.write_changes(directory)

    @property
    def has_background_work(self) -> bool:
        """Whether a flush, a deletion or another job of the background runs or waits."""
        return self._executor.pending > 0

    def _before_truncation(self, key: TopicPartition, start_offset: int, end_offset: int, empties: bool) -> None:
        """Raises OSError."""
        directory = self._directory_of.get(key)
        if directory is not None:
            directory.checkpoint_truncation(key, start_offset, end_offset, empties=empties)

    def write_start_offsets(self, keys: Iterable[TopicPartition], done: Callable[[], None]) -> None:
        """Calls `done` when the start offsets that these logs have now survive a kill, or could not be written, which
        is logged; the next checkpoint tries again."""
        directories: dict[str, LogDirectory] = {}
        for key in keys:
            log, directory = self.logs.get(key), self._directory_of.get(key)
            # where a log begins with a segment, the name of its file says so
            if log is not None and directory is not None and log.start_offset > log.segments[0].base_offset:
                directories[directory.path] = directory
        self._checkpoints.write_all(directories.values(), done)

    def write_recovery_points(self, keys: Iterable[TopicPartition], done: Callable[[], None]) -> None:
        """Calls `done` when the recovery points that these logs have now are written, or could not be, which is
        logged."""
        directories = {found.path: found for key in keys if (found := self._directory_of.get(key)) is not None}
        self._checkpoints.write_all(directories.values(), done)

    def flush_if_due(self) -> None:
        """Flushes the logs whose flush.ms has passed since their last flush. Raises StorageError if some flushes fail,
        except for logs that failed before, which have reported it then."""
        now_ms = self._clock.wall_ms()
        fault: StorageError | None = None
        for log in self.logs.values():
            try:
                log.flusher.flush_if_due(now_ms)
            except StorageError as error:
                fault = error
        if fault is not None:
            raise fault

    # failed disks

    def expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for log in self.logs.values():
            log.producers.expire(now_ms, self._context.producer_expiration_ms)

    def _on_io_error(self, path: str, error: OSError) -> None:
        """`path` is a log directory or the directory of a log."""
        if isinstance(error, SyncFailed):
            self.on_tail_in_doubt()
        directory = self.directories.containing(path)
        if directory is not None and directory.is_online and directory.is_failed_by(error):
            directory.fail_with(error)
            self._timers.call_later(0, lambda: self._take_offline(directory))  # one of its logs may be in use just now

    def _on_failed_log(self, key: TopicPartition) -> None:
        self._timers.call_later(0, lambda: self.on_failed_log(key))  # it may be in use just now

    def _take_offline(self, directory: LogDirectory) -> None:
        keys = list(directory.logs)
        for key in keys:
            del self.logs[key], self._directory_of[key]
        directory.close()
        for key in keys:
            self.on_log_removed(key)
        self.on_tail_in_doubt()
        assert directory.failure is not None
        logger.error("%s; its %d logs are offline until the next start", directory.failure, len(keys))
        self.on_offline(keys, directory.failure)

    # stop

    def abandon(self) -> None:
        """Closes all files as they are, as after kill -9: for tests, and for a forked child."""
        self.moves.close()
        self.directories.close()

    def close(self) -> None:
        """Leaves the directories as after a clean shutdown. Failures are logged: then the next start recovers.

        Does nothing the second time.
        """
        if self._state is ManagerState.CLOSED:
            return
        before = self._state
        self._enter(ManagerState.CLOSED)
        self.moves.close()
        for log in self.logs.values():
            log.record_counts.close()
        self._executor.wait()
        self._timers.cancel()
        all_done = not self._executor.pending  # the effect of an unfinished job is unknown
        for directory in self.online if before is not ManagerState.LOCKED else ():
            may_be_clean = directory.last_shutdown.clean and not self._takes_over
            try:
                directory.shut_down(clean=all_done and (before is ManagerState.RECONCILED or may_be_clean))
            except (StorageError, OSError) as error:
                logger.error("%s was not closed cleanly: %s", directory.path, error)
                if isinstance(error, SyncFailed):
                    self.on_tail_in_doubt()
        self.directories.close()
        self.logs.clear()
        self._directory_of.clear()
