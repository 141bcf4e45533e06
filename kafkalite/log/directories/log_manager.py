"""All logs of the broker: which directory each lives in, and how they come, go, and are written down.

A new log goes to the directory with the fewest; none ever moves. A directory whose disk fails goes offline alone: its
logs are let go of and `when_offline` is told, the others are served on. What fails is heard of through the door to the
disk (`Files.when_refused`) and judged in one place, `LogDirectory.is_failed_by`.
Slow work goes to other threads (`background`); the owner's thread hears of its end when it is woken (`hear`).
Source: kafka.log.LogManager.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_directories import Holdings, LogDirectories, TopicIdOf
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.directories.startup_loading import TELL_EVERY_S, Found, Loading
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.storage.descriptor_cache import DescriptorCache, capacity_for_limit
from kafkalite.log.storage.file_names import DELETE_DIRECTORY, STRAY_DIRECTORY
from kafkalite.log.storage.files import Files
from kafkalite.log.storage.io_executor import RunInBackground, SerialExecutor

logger = logging.getLogger(__name__)

_LOOK_AGAIN_MS = 500
WhenOffline = Callable[[Sequence[TopicPartition], str], None]


class LogManager:
    """Owns the directories from construction to `close`. `logs` maps (topic, partition) to its log; `directories` are
    in the order of log.dirs; `was_clean` says whether every last stop was orderly."""

    def __init__(
        self,
        data_dirs: Sequence[str | Path],
        clock: Clock,
        config: BrokerConfig,
        run_in_background: RunInBackground | None = None,
        files: Files | None = None,
        wake: Callable[[], object] | None = None,
    ) -> None:
        """Make the directories if need be and lock them. `wake` is called on another thread when there is something to
        `hear`. Raises ConfigError with one line for the operator."""
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.when_offline: WhenOffline = lambda keys, why: None
        self.when_gone: Callable[[TopicPartition], object] = lambda key: (
            None
        )  # a log was let go of, whatever the reason
        self._clock = clock
        self._config = config
        self._work = SerialExecutor(run_in_background, wake)
        self.hear = self._work.hear
        self._timers: dict[Timer, None] = {}
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files = files or Files(DescriptorCache(capacity_for_limit(limit)))
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._checkpoint_is_due: set[str] = set()
        self._wait_for_checkpoint: dict[str, list[Callable[[], None]]] = {}  # by directory, where one is under way
        self._loaded = False
        self._takes_over = False
        self._settled = False
        self._closed = False
        self._services = LogContext(
            clock,
            self._work.lane,
            self._files,
            config.producer_id_expiration_ms,
            self.hear,
        )
        self.directories = LogDirectories(data_dirs, config.broker_id, self._files, self._work.lane)
        self.was_clean = all(directory.was_clean for directory in self.online)

    @property
    def online(self) -> list[LogDirectory]:
        return self.directories.online

    @property
    def offline(self) -> list[LogDirectory]:
        return self.directories.offline

    def home_of(self, key: TopicPartition) -> LogDirectory:
        """Where a log lives."""
        return self._homes[key]

    # start

    async def load(
        self,
        cluster_id: str,
        topic_config_for: Callable[[str], TopicConfig],
        topic_id_of: TopicIdOf = lambda topic: None,
        *,
        broker_id: int | None = None,
        from_another: bool = False,
        tell_every_s: float = TELL_EVERY_S,
    ) -> None:
        """Take possession for `cluster_id` (and `broker_id`, if the settings do not say it), and open every log; after
        an unclean stop, recover them.

        `from_another`: another broker left them, with settings that nobody knows. The next start hears of it too, in
        case that this one is killed before `settled`.

        Raises ConfigError for a directory of another cluster or broker, StorageError.
        """
        started = time.perf_counter()
        broker_id = self._config.broker_id if broker_id is None else broker_id
        self.directories.claim(cluster_id, broker_id, self._clock.wall_ms())
        self._takes_over = from_another
        self.directories.begin(takes_over=from_another)
        holdings = self.directories.look(topic_id_of)
        for directory in self.online:
            for name in holdings.contents[directory.path].deleted:
                self._remove_later(directory, directory.path_of(name), self._config.log_segment_delete_delay_ms)
        found = self._found(holdings, topic_config_for, from_another)
        threads = self._config.num_recovery_threads_per_data_dir
        loading = Loading(
            found, holdings.checkpoints, self._services, threads, self.directories.leave_out, tell_every_s
        )
        collecting = gc.isenabled()
        gc.disable()  # everything made here stays: 72 us a log instead of 92 us
        try:
            await loading.run()
        finally:
            if collecting:
                gc.enable()
        for one in found:
            directory = one.directory
            if directory.is_online:  # in the order of the listings, whichever hand was done first
                log = self.logs[one.key] = directory.logs.pop(one.key)
                directory.logs[one.key] = log
                self._homes[one.key] = directory
        self._forget_wrong_cleanings()
        self._files.when_refused = self._refused  # before, errors come from other threads, and `loading` sees to them
        self._loaded = True
        if self.logs:
            took_ms = (time.perf_counter() - started) * 1000
            how_it_was = "loaded"
            if not all(one.options.clean for one in found):
                how_it_was = f"recovered after an unclean stop, {loading.read_bytes / (1 << 20):.1f} MiB read,"
            lost_bytes = sum(log.lost_bytes for log in self.logs.values())
            lost = f"; {lost_bytes} torn or damaged bytes were cut off" if lost_bytes else ""
            logger.info("%d logs %s in %.0f ms%s", len(self.logs), how_it_was, took_ms, lost)

    def _found(
        self, holdings: Holdings, topic_config_for: Callable[[str], TopicConfig], from_another: bool
    ) -> list[Found]:
        configs: dict[str, TopicConfig] = {}
        found = []
        for key, directory in holdings.homes.items():
            if key[0] not in configs:
                configs[key[0]] = topic_config_for(key[0])
            points, starts, marks = holdings.checkpoints[directory.path]
            options = LoadOptions(
                directory.was_clean,
                points.get(key, 0),
                starts.get(key, 0),
                may_have_gaps=from_another or not directory.checkpoints.have_points,
            )
            if key in marks:
                self.high_watermarks[key] = marks[key]
            found.append(Found(directory, key, configs[key[0]], options))
        return found

    def _forget_wrong_cleanings(self) -> None:
        """A log may have been cut: were it longer again before the cleaner looks, what is new would count as clean."""
        for directory in self.online:
            for key, offset in list(directory.checkpoints.cleaned.items()):
                log = directory.logs.get(key)
                if log is not None and offset > log.end_offset:
                    logger.warning(
                        "the checkpoint says that %s-%d is compacted up to offset %d, but it ends at %d: all of it is "
                        "dirty",
                        *key, offset, log.end_offset,
                    )  # fmt: skip
                    directory.checkpoints.forget_cleaned(key)

    def settled(self) -> None:
        """Whoever knows which logs there should be has seen to it. Before that, a stop after an unclean start is not a
        clean one: the next start must look for the same things again."""
        self._settled = True
        for directory in self.online if self._takes_over else ():
            try:
                directory.settled()
            except OSError as error:
                logger.error("%s will be taken over again at the next start: %s", directory.path, error)
                self._refused(directory.path, error)
        if not self.was_clean:
            self._secure()

    def _secure(self) -> None:
        """Bring what was recovered to the disk, by other hands, and write down when it is there: without this, a broker
        that is killed again and again would read all of it again each time."""
        ends = {key: log.end_offset for key, log in self.logs.items() if log.recovery_point < log.end_offset}
        for key in ends:
            try:
                self.logs[key].flush_soon()
            except StorageError as error:
                logger.error("%s", error)

        def look() -> None:
            del self._timers[watch[0]]
            logs = [(self.logs.get(key), end) for key, end in ends.items()]
            if any(log is not None and log.flusher.is_under_way and log.recovery_point < end for log, end in logs):
                watch[0] = self._clock.call_later(_LOOK_AGAIN_MS, look)
                self._timers[watch[0]] = None
            else:
                self.checkpoint()

        if ends:
            watch = [self._clock.call_later(0, look)]
            self._timers[watch[0]] = None

    # logs that come and go

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        """A new, empty log under a name that no log has, where the fewest are; where that cannot be, in the next best
        directory. Raises StorageError."""
        key = topic, partition
        assert key not in self.logs
        fault: StorageError | None = None
        for directory in sorted(self.online, key=lambda each: len(each.logs)):
            try:
                log = self._create_in(directory, key, topic_id, config)
            except StorageError as error:
                fault = fault or error
                if isinstance(error.__cause__, OSError):
                    self._refused(directory.path, error.__cause__)
                continue
            self.logs[key] = directory.logs[key] = log
            self._homes[key] = directory
            return log
        raise fault or StorageError(f"cannot create {topic}-{partition}: every data directory is offline")

    def _create_in(
        self, directory: LogDirectory, key: TopicPartition, topic_id: uuid.UUID, config: TopicConfig
    ) -> PartitionLog:
        if directory.checkpoints.may_name(key):  # they must not meet the new log with what was true of an old one
            try:
                directory.checkpoints.write(directory.offsets(directory.recovery_points()))
            except OSError as error:
                raise self._files.refusal(f"cannot create {key[0]}-{key[1]}", directory.path, error) from error
        path = directory.log_path(key)
        if os.path.lexists(path):
            logger.warning("%s is of no log: what was left of an earlier one goes", path)
            self._remove_later(directory, self._aside(directory, key, DELETE_DIRECTORY), config.file_delete_delay_ms)
        return PartitionLog.create(*key, path, topic_id, config, self._services)

    def delete(self, topic: str, partition: int) -> None:
        """Remove a log: its name is free at once, its files go after file.delete.delay.ms. Raises StorageError."""
        key = topic, partition
        directory = self._homes.get(key)
        log = self._let_go(key)
        if log is not None and directory is not None:
            aside = self._aside(directory, key, DELETE_DIRECTORY)
            self._remove_later(directory, aside, log.config.file_delete_delay_ms)
        for directory in self.online:
            if key in directory.futures:
                for aside in directory.move_futures_aside(key):
                    self._remove_later(directory, aside, self._config.log_segment_delete_delay_ms)

    def set_aside(self, topic: str, partition: int) -> None:
        """Remove a log that nobody knows, but keep its files: as <topic>-<partition>.<uuid>-stray, for somebody to look
        at. Raises StorageError."""
        key = topic, partition
        directory = self._homes.get(key)
        if self._let_go(key) is not None and directory is not None:
            aside = self._aside(directory, key, STRAY_DIRECTORY)
            logger.warning("%s-%d is kept as %s and not served", topic, partition, aside)

    def highest_producer_id(self) -> int:
        """The greatest producer id that any log has met, -1 if none has: those given out from now on must be above."""
        return max((log.producers.highest_id for log in self.logs.values()), default=-1)

    def _let_go(self, key: TopicPartition) -> PartitionLog | None:
        log = self.logs.pop(key, None)
        if log is not None:
            directory = self._homes.pop(key)
            del directory.logs[key]
            self.high_watermarks.pop(key, None)
            log.abandon()
            self.when_gone(key)
            if directory.checkpoints.may_name(key):
                self._checkpoint_soon(directory)
        return log

    def _aside(self, directory: LogDirectory, key: TopicPartition, suffix: str) -> str:
        """Free the name of a log; its directory's new path. Raises StorageError."""
        try:
            return directory.move_aside(key, suffix)
        except OSError as error:
            raise self._files.refusal(f"cannot move {key[0]}-{key[1]} aside", directory.path, error) from error

    def _remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        def hand_out() -> None:
            del self._timers[timer]
            directory.background(lambda: self._files.remove_directory(path), removed)

        def removed(error: Exception | None) -> None:
            if error is not None:
                logger.warning("cannot remove %s: %s; the next start tries again", path, error)

        timer = self._clock.call_later(delay_ms, hand_out)
        self._timers[timer] = None

    # writing down

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write down recovery points, start offsets and high watermarks, in the background.

        `high_watermarks` of None: every record of every log is committed.
        """
        self.hear()
        for directory in self.online:
            self._checkpoint(directory, high_watermarks)

    def keep_starts(self, keys: Iterable[TopicPartition], done: Callable[[], None]) -> None:
        """Call `done` when a kill cannot take back any more where these logs start now. What cannot be written is
        logged, and tried again with the next checkpoint."""
        homes: dict[str, LogDirectory] = {}
        for key in keys:
            log, home = self.logs.get(key), self._homes.get(key)
            # where a segment begins the names of the files say it already
            if log is not None and home is not None and log.start_offset > log.segments[0].base_offset:
                homes[home.path] = home
        self._keep(homes, done)

    def keep_recovery_points(self, keys: Iterable[TopicPartition], done: Callable[[], None]) -> None:
        """Call `done` when the recovery points that these logs have now are written down, or could not be, which is
        logged."""
        homes = {home.path: home for key in keys if (home := self._homes.get(key)) is not None}
        self._keep(homes, done)

    def _keep(self, homes: Mapping[str, LogDirectory], done: Callable[[], None]) -> None:
        left = len(homes)

        def kept() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for home in homes.values():
            if home.path in self._wait_for_checkpoint:
                self._wait_for_checkpoint[home.path].append(kept)
            else:
                self._checkpoint_for(home, [kept])
        if not homes:
            done()

    def _checkpoint_for(self, directory: LogDirectory, waiting: list[Callable[[], None]]) -> None:
        """A checkpoint for all of these; then one for all who came meanwhile."""
        if not directory.is_online:  # its logs were let go of: the files are to stay as they are
            for tell in waiting:
                tell()
            return
        self._wait_for_checkpoint[directory.path] = []

        def written() -> None:
            later = self._wait_for_checkpoint.pop(directory.path)
            for tell in waiting:
                tell()
            if later:
                self._checkpoint_for(directory, later)

        self._checkpoint(directory, then=written)

    def _checkpoint(
        self,
        directory: LogDirectory,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        offsets = directory.offsets(directory.recovery_points(), high_watermarks)
        write, written = directory.checkpoints.write_later(offsets)

        def done(error: Exception | None) -> None:
            written(error)
            if error is not None:
                logger.error("cannot write the checkpoints in %s: %s", directory.path, error)
            if isinstance(error, OSError):
                self._refused(directory.path, error)
            then()

        directory.background(write, done)

    def _checkpoint_soon(self, directory: LogDirectory) -> None:
        """Write the checkpoints once for all that happens in this turn of the loop."""
        if directory.path in self._checkpoint_is_due:
            return
        self._checkpoint_is_due.add(directory.path)

        def due() -> None:
            self._checkpoint_is_due.discard(directory.path)
            if directory.is_online:
                self._checkpoint(directory)

        self._soon(due)

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

    # disks that fail

    def _refused(self, path: str, error: OSError) -> None:
        """Something in a directory, or in a log below it, could not be done."""
        directory = self.directories.holding(path)
        if directory is not None and directory.is_online and directory.is_failed_by(error):
            directory.fail(error)
            self._soon(lambda: self._take_offline(directory))  # one of its logs may be at work just now

    def _soon(self, deed: Callable[[], None]) -> None:
        """In a turn of its own."""

        def due() -> None:
            del self._timers[timer]
            deed()

        timer = self._clock.call_later(0, due)
        self._timers[timer] = None

    def _take_offline(self, directory: LogDirectory) -> None:
        keys = list(directory.logs)
        for key in keys:
            del self.logs[key], self._homes[key]
            self.high_watermarks.pop(key, None)
        directory.leave()
        for key in keys:
            self.when_gone(key)
        assert directory.failure is not None
        logger.error("%s; its %d logs are offline until the next start", directory.failure, len(keys))
        self.when_offline(keys, directory.failure)

    # the end

    def close(self) -> None:
        """Leave the directories as after an orderly stop, and let go of them. What fails is logged: then the next start
        recovers. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        for log in self.logs.values():
            log.stop_counting()
        self._work.wait()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        is_done = not self._work.pending  # of a job that never ended nobody knows what it left
        for directory in self.online if self._loaded else ():
            try:
                directory.shut(orderly=is_done and (self._settled or (directory.was_clean and not self._takes_over)))
            except (StorageError, OSError) as error:
                logger.error("%s was not closed cleanly: %s", directory.path, error)
        self.directories.leave()
        self.logs.clear()
        self._homes.clear()
