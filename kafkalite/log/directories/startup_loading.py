"""Opens all logs at start: after a clean shutdown one after another, otherwise on threads, with progress in the log.

After a clean shutdown a log costs 70 us and its files are not read, so threads would not help. After an unclean one
everything above the recovery points is read, on num.recovery.threads.per.data.dir threads for each directory: reading
and checksums run without the GIL. Progress is logged every few seconds.
In a long start, a recovered log above a minimum size is fsynced at once and its recovery point checkpointed. So if the
start is killed, the next one need not read that log again.
Source: kafka.log.LogManager.loadLogs (KAFKA-10471, KIP-831).
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from kafkalite.common.clock import TimerGroup, monotonic_s
from kafkalite.common.errors import StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_directories import StoredLogs
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.directories.offset_checkpoints import LogOffsets, Offsets
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.segment import NEVER
from kafkalite.log.storage.files import is_full

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 5.0
_FSYNC_MIN_BYTES = 1 << 20  # reading less again is quicker than fsyncing the files of a log
_CHECK_FLUSHES_MS = 500
_NAMED_MAX = 100  # logs in as many lines


class LogToLoad(NamedTuple):
    directory: LogDirectory
    key: TopicPartition
    config: TopicConfig
    options: LoadOptions


def logs_to_load(
    stored: StoredLogs, topic_config_for: Callable[[str], TopicConfig], *, takes_over: bool
) -> list[LogToLoad]:
    """In the order of the listings. `takes_over`: another broker left the logs."""
    configs: dict[str, TopicConfig] = {}
    found = []
    for key, directory in stored.directories.items():
        if key[0] not in configs:
            configs[key[0]] = topic_config_for(key[0])
        checkpoints = directory.checkpoints
        knows_gaps = checkpoints.has_recovery_points and not takes_over
        options = load_options(
            key, stored.checkpoints[directory.path], checkpoints.cleaner_offsets, directory.last_shutdown.clean,
            knows_gaps=knows_gaps,
        )  # fmt: skip
        found.append(LogToLoad(directory, key, configs[key[0]], options))
    return found


def load_options(
    key: TopicPartition, offsets: LogOffsets, cleaner_offsets: Offsets, clean: bool, *, knows_gaps: bool
) -> LoadOptions:
    """How to load a log, by the checkpoints of its directory. `knows_gaps`: only this broker has compacted it, and no
    further than to its cleaner offset."""
    points, starts, high_watermarks = offsets
    gaps_below = cleaner_offsets.get(key, 0) if knows_gaps else NEVER
    return LoadOptions(
        clean, points.get(key, 0), starts.get(key, 0), high_watermarks.get(key, 0), gaps_below=gaps_below
    )


class _Cancelled(Exception):
    """The start was given up."""


class StartupLoading:
    """One start. Afterwards every log that was opened is in the `logs` of its directory, and `mark_offline` was called
    for each directory whose disk failed meanwhile."""

    def __init__(
        self,
        logs: Sequence[LogToLoad],
        stored: StoredLogs,
        context: LogContext,
        threads_per_directory: int,
        mark_offline: Callable[[LogDirectory, OSError], None],
        progress_interval_s: float = PROGRESS_INTERVAL_S,
    ) -> None:
        self._logs = logs
        self._checkpoints = stored.checkpoints
        self._context = context
        self._threads = threads_per_directory
        self._mark_offline = mark_offline
        self._progress_interval_s = progress_interval_s
        self._began_s = monotonic_s()
        self._is_cancelled = False
        self._read_sizes: list[int] = []  # of recovered segments; threads only append, here and to `_finished`
        self._finished: deque[tuple[LogToLoad, PartitionLog | StorageError]] = deque()

    @property
    def read_bytes(self) -> int:
        """How much recovery has read so far."""
        return sum(self._read_sizes)

    async def run(self) -> None:
        """Raises StorageError for a log that cannot be opened although its disk works."""
        collecting = gc.isenabled()
        gc.disable()  # everything made here stays: 72 us a log instead of 92 us
        try:
            for one in self._logs:
                if one.options.clean and one.directory.is_online:
                    self._register(one, self._open_clean(one))
            unclean = [one for one in self._logs if not one.options.clean]
            if unclean:
                await self._recover(unclean)
        finally:
            if collecting:
                gc.enable()
        for one in self._logs:
            if one.directory.is_online:  # in the order of the listings, not that of the threads' ends
                one.directory.logs[one.key] = one.directory.logs.pop(one.key)
        self._log_summary()

    def _log_summary(self) -> None:
        logs = [log for one in self._logs if (log := one.directory.logs.get(one.key)) is not None]
        if logs:
            took_ms = (monotonic_s() - self._began_s) * 1000
            how = "loaded"
            if not all(one.options.clean for one in self._logs):
                how = f"recovered after an unclean stop, {self.read_bytes / (1 << 20):.1f} MiB read,"
            lost_bytes = sum(log.lost_bytes for log in logs)
            lost = f"; {lost_bytes} torn or damaged bytes were cut off" if lost_bytes else ""
            logger.info("%d logs %s in %.0f ms%s", len(logs), how, took_ms, lost)

    def _open_clean(self, one: LogToLoad) -> PartitionLog | StorageError:
        try:
            return self._open(one)
        except StorageError as error:
            return error

    def _open(self, one: LogToLoad) -> PartitionLog:
        path = one.directory.partitions.log_path(one.key)
        return open_log(*one.key, path, one.config, one.options, self._context)

    def _register(self, one: LogToLoad, outcome: PartitionLog | StorageError) -> None:
        """On the owner's thread."""
        directory = one.directory
        if isinstance(outcome, PartitionLog):
            if directory.is_online:
                directory.logs[one.key] = outcome
            else:
                outcome.abandon()
            return
        if not _is_disk_failure(outcome, directory):
            raise outcome
        if directory.is_online:
            assert isinstance(outcome.__cause__, OSError)
            self._mark_offline(directory, outcome.__cause__)

    # after an unclean shutdown

    async def _recover(self, unclean: list[LogToLoad]) -> None:
        """The threads of each directory take from its queue. The loop is not woken for every single log."""
        queues: dict[str, deque[LogToLoad]] = {}
        for one in unclean:
            queues.setdefault(one.directory.path, deque()).append(one)
        pools = [ThreadPoolExecutor(self._threads, thread_name_prefix="kafkalite-recovery") for _ in queues]
        threads: set[asyncio.Future[None]] = set()
        try:
            for pool, queue in zip(pools, queues.values(), strict=True):
                for _ in range(self._threads):
                    thread = asyncio.wrap_future(pool.submit(self._recover_all, queue))
                    thread.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # retrieved always
                    threads.add(thread)
            await self._watch(threads, unclean)
        finally:
            self._is_cancelled = True  # recoveries in progress end at the next segment
            for pool in pools:
                pool.shutdown(cancel_futures=True)

    async def _watch(self, threads: set[asyncio.Future[None]], unclean: list[LogToLoad]) -> None:
        count = 0
        while threads:
            ended, threads = await asyncio.wait(
                threads, timeout=self._progress_interval_s, return_when=asyncio.FIRST_EXCEPTION
            )
            while self._finished:
                count += 1
                self._register(*self._finished.popleft())
            for thread in ended:
                thread.result()
            if threads:
                read_mib = self.read_bytes / (1 << 20)
                progress = "recovering after an unclean stop: %d of %d logs done, %.1f MiB read so far"
                logger.info(progress, count, len(unclean), read_mib)
                self._checkpoint({one.directory.path: one.directory for one in unclean})

    def _recover_all(self, queue: deque[LogToLoad]) -> None:
        """On a thread, beside others that take from the same queue."""
        while True:
            try:
                one = queue.popleft()
            except IndexError:
                return
            self._finished.append((one, self._recover_one(one)))

    def _recover_one(self, one: LogToLoad) -> PartitionLog | StorageError:
        """On a thread. A disk failure is returned; any other error ends the start."""
        if self._is_cancelled:
            raise _Cancelled
        sizes: list[int] = []

        def on_segment_read(size_bytes: int) -> None:
            sizes.append(size_bytes)
            self._read_sizes.append(size_bytes)
            if self._is_cancelled:
                raise _Cancelled

        try:
            log = self._open(one._replace(options=one.options._replace(on_segment_read=on_segment_read)))
        except StorageError as error:
            if _is_disk_failure(error, one.directory):
                return error
            raise
        if sum(sizes) >= _FSYNC_MIN_BYTES and monotonic_s() - self._began_s > self._progress_interval_s:
            try:
                log.flusher.flush()
            except StorageError as error:
                if _is_disk_failure(error, one.directory):
                    log.abandon()
                    return error
                logger.warning("%s", error)
        return log

    def _checkpoint(self, directories: dict[str, LogDirectory]) -> None:
        """Moves the recovery points of the logs that are done; all other offsets stay as they were found."""
        for path, directory in directories.items():
            before = self._checkpoints[path]
            if directory.is_online and directory.logs:
                points = dict(before.recovery_points) | directory.recovery_points()
                try:
                    directory.checkpoints.write(before._replace(recovery_points=points))
                except OSError as error:
                    logger.warning("cannot write down how far the recovery of %s is: %s", path, error)


def _is_disk_failure(error: StorageError, directory: LogDirectory) -> bool:
    """During recovery a full disk is as bad as a failed one: a log that cannot be recovered cannot be served."""
    cause = error.__cause__
    return isinstance(cause, OSError) and (is_full(cause) or directory.is_failed_by(cause))


def lacks_committed(logs: Mapping[TopicPartition, PartitionLog], stored: StoredLogs) -> bool:
    """Whether some logs lack records below the high watermark that was checkpointed for them; names them."""
    count = 0
    for key, log in logs.items():
        high_watermark = stored.checkpoints[stored.directories[key].path].high_watermarks.get(key, 0)
        if log.end_offset < high_watermark:
            lack = f"ends at {log.end_offset}"
        elif log.gap_offset < high_watermark:
            lack = f"has a gap at {log.gap_offset}"
        else:
            continue
        count += 1
        if count <= _NAMED_MAX:
            logger.warning("%s-%d %s, though all below %d was committed", *key, lack, high_watermark)
    if count:
        logger.warning("%d of %d logs lack committed records", count, len(logs))
    return count > 0


def flush_recovered(
    logs: dict[TopicPartition, PartitionLog], timers: TimerGroup, checkpoint: Callable[[], object]
) -> None:
    """Flushes recovered logs in the background, then checkpoints: without this, a broker that is killed again and again
    would read all of them again each time. `logs` may change meanwhile."""
    ends = {key: log.end_offset for key, log in logs.items() if log.flusher.recovery_point < log.end_offset}
    for key in ends:
        try:
            logs[key].flusher.flush_soon()
        except StorageError as error:
            logger.error("%s", error)

    def check() -> None:
        flushing = [(logs.get(key), end) for key, end in ends.items()]
        if any(
            log is not None and log.flusher.is_under_way and log.flusher.recovery_point < end for log, end in flushing
        ):
            timers.call_later(_CHECK_FLUSHES_MS, check)
        else:
            checkpoint()

    if ends:
        timers.call_later(0, check)
