"""The cleaning of one log by a worker, as the broker sees it.

    worker: CleanedSegment  -> the log replaces the sources (`SegmentSwap.replace`)   -> worker: Swapped
    worker: Outcome         -> DONE: the checkpoint is written                        -> done: DONE
                               otherwise unfinished files are removed                 -> done: FAILED, REFUSED
    abort                   -> worker: Abort; it answers ABORTED                      -> done: ABORTED
    worker dies             -> unfinished files are removed                           -> done: DIED

`done` is called exactly once, and never while the log replaces segments: until then retention must not touch the first
segments.

Before a cleaning the dirty range is fsynced and below the checkpointed recovery point. It removes records that newer
ones supersede, so the newer ones must be on the disk: otherwise a power failure between two groups could lose both
values of a key. Also, a start reads the log from the checkpointed recovery point, with the producer state of that
offset: a transaction that was open there would never end if the cleaning had removed its marker. Mostly this holds when
a log is due, since sealed segments are flushed at once and recovery points are checkpointed every minute; otherwise
`flush_up_to` establishes it. (In Apache Kafka other replicas have the records that a crash loses.)

The segments that the worker reads must still exist: after a truncation, or once the first segments were
deleted, the job no longer describes the log.
Source: kafka.log.LogCleaner.CleanerThread.cleanLog, kafka.log.LogCleanerManager.doneCleaning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.cleaner.job.job import Abort, CleanJob, Ending, FromWorker, LastRecord, Outcome, Swapped, ToWorker
from kafkalite.common.errors import StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.config.settings import INT_MAX
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.file_names import RECOVERY_POINTS

if TYPE_CHECKING:
    from kafkalite.cleaner.job.log_to_clean import LogToClean
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.directories.log_directory import LogDirectory
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class CleaningTask:
    """`last_message_ms` (monotonic) is when the worker last sent a message; `is_swapping`: the log replaces segments,
    and the worker waits. `send` sends to the worker; `done` is called once."""

    def __init__(
        self,
        log: PartitionLog,
        directory: LogDirectory,
        job: CleanJob,
        send: Callable[[ToWorker], None],
        done: Callable[[CleaningTask, Outcome], None],
    ) -> None:
        self.key: TopicPartition = (log.topic, log.partition)
        self.log = log
        self.job = job
        self.is_swapping = False
        self.abort_reason: str | None = None
        self.last_message_ms = 0
        self._directory = directory
        self._send = send
        self._done = done
        self._is_done = False
        self._sources = {segment.base_offset: segment for segment in log.segments[: len(job.segments)]}
        self._checked_segments = log.segments  # which contained all sources
        self._outcome: Outcome | None = None  # known, and reported when the log has finished its replacement
        self._swap_error: Exception | None = None

    @property
    def name(self) -> str:
        return f"{self.log.topic}-{self.log.partition}"

    # messages of the worker

    def receive(self, message: FromWorker) -> None:
        """Raises any exception that a fault of this program causes."""
        if isinstance(message, CleanedSegment):
            self._replace(message)
        elif isinstance(message, Outcome):
            self._ended(message)

    def _replace(self, cleaned: CleanedSegment) -> None:
        self.abort_reason = self.abort_reason or self.stale_reason()
        if self.abort_reason is not None:
            self._send(Swapped(False))
            return

        def replaced(error: Exception | None) -> None:
            self.is_swapping = False
            if error is not None:
                self._swap_error = error
            else:
                for base_offset in cleaned.sources:
                    self._sources.pop(base_offset, None)
            if self._outcome is not None:
                self._finish()
            else:
                self._send(Swapped(error is None and self.abort_reason is None))

        self.is_swapping = True
        try:
            self.log.swap.replace(cleaned, replaced)
        except BaseException:
            self.is_swapping = False
            raise

    def stale_reason(self) -> str | None:
        """The reason why the segments that are left to clean are no longer those of the job; None if they are.
        Not while the log replaces segments."""
        segments = self.log.segments
        if segments is not self._checked_segments:
            sealed = set(map(id, segments[:-1]))
            for base_offset, segment in self._sources.items():
                if id(segment) not in sealed:
                    return f"its segment at offset {base_offset} was removed or cut meanwhile"
            self._checked_segments = segments
        return None

    def _ended(self, outcome: Outcome) -> None:
        """The worker has ended the job."""
        if outcome.ending is Ending.DONE and self._swap_error is not None:
            outcome = Outcome(Ending.REFUSED, str(self._swap_error))
        stale = self.abort_reason
        if stale is None and outcome.ending is not Ending.DONE:
            stale = self.stale_reason()  # the worker could not find files that are gone
        if stale is not None:
            outcome = Outcome(Ending.ABORTED, stale)
        elif outcome.errno:
            self._directory.on_io_error(OSError(outcome.errno, outcome.reason))
        self._end(outcome)

    # the broker's side

    def abort(self, reason: str) -> None:
        """Has the worker abort the job; `done` follows soon."""
        if self.abort_reason is None and self._outcome is None:
            self.abort_reason = reason
            self._send(Abort())

    def end_without_worker(self, outcome: Outcome) -> None:
        """The worker has ended."""
        self._end(outcome if self.abort_reason is None else Outcome(Ending.ABORTED, self.abort_reason))

    # the end

    def _end(self, outcome: Outcome) -> None:
        if self._outcome is None:
            self._outcome = outcome
            if not self.is_swapping:
                self._finish()

    def _finish(self) -> None:
        """Write the checkpoint, or remove unfinished files. The log does not replace segments any more."""
        outcome = self._outcome
        assert outcome is not None
        try:
            if self._directory.logs.get(self.key) is not self.log:  # deleted, with all files
                self._report(outcome if outcome.result is None else Outcome(Ending.ABORTED, "the log is gone"))
            elif outcome.result is not None:
                # if it fails, the offset in memory counts; after a crash a part is cleaned again
                finished = partial(self._finished, logging.ERROR, "cannot checkpoint how far %s is cleaned: %s")
                cleaned_to = min(outcome.result.end_offset, self.log.end_offset)  # the log may have been cut meanwhile
                self._directory.write_cleaner_offset(self.key, cleaned_to, finished)
            elif self.log.swap.is_under_way:  # the disk has refused a step, and the log retries it
                self._report(outcome)
            else:
                finished = partial(
                    self._finished, logging.WARNING, "cannot remove unfinished files of %s: %s; the next start does"
                )
                self._directory.partitions.remove_cleaned_files(self.key, finished)
        except Exception as error:  # a cleaning must end in any case
            logger.exception("the end of cleaning %s failed", self.name)
            self._report(Outcome(Ending.FAILED, f"its end failed: {error!r}"))

    def _finished(self, level: int, message: str, error: Exception | None) -> None:
        if error is not None:
            logger.log(level, message, self.name, error)
        assert self._outcome is not None
        self._report(self._outcome)

    def _report(self, outcome: Outcome) -> None:
        if not self._is_done:
            self._is_done = True
            self._done(self, outcome)


def make_job(log: PartitionLog, plan: LogToClean, config: BrokerConfig, now_ms: int) -> CleanJob:
    """The job of a cleaning. From now on `log` accepts replacements of its segments. Raises StorageError."""
    topic = log.config
    end_offset = plan.first_uncleanable_offset
    return CleanJob(
        topic=log.topic,
        partition=log.partition,
        directory=log.directory,
        segments=log.swap.clean_sources(end_offset),
        first_dirty_offset=plan.first_dirty_offset,
        first_uncleanable_offset=end_offset,
        last_records={key: LastRecord(*last) for key, last in log.producers.last_batches(end_offset).items()},
        now_ms=now_ms,
        delete_retention_ms=topic.delete_retention_ms,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        dedupe_buffer_bytes=min(config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads, INT_MAX),
        io_buffer_bytes=config.log_cleaner_io_buffer_size // config.log_cleaner_threads,
        load_factor=config.log_cleaner_io_buffer_load_factor,
    )


def durable_offset_of(logs: LogManager, log: PartitionLog) -> int:
    """All records below it are on the disk, and so is a recovery point at or above it. The log must be open."""
    key = log.topic, log.partition
    return min(log.flusher.recovery_point, logs.directory_of(key).checkpoints.recovery_points.get(key, 0))


def flush_up_to(logs: LogManager, log: PartitionLog, offset: int, done: Callable[[str | None], None]) -> None:
    """Raise the durable offset to `offset`, the end of a sealed segment. `done` gets the reason if that fails, and
    None if not, also when the log is gone meanwhile. Flushes in flight are waited for first."""
    key = log.topic, log.partition

    def flush(_: Exception | None) -> None:
        if log.flusher.kept_recovery_point >= offset:
            checkpoint()
            return
        try:
            log.flusher.flush_soon()
        except StorageError as error:
            done(str(error))
            return
        log.segment_list.background(_do_nothing, flushed)

    def flushed(_: Exception | None) -> None:
        if log.flusher.kept_recovery_point >= offset:
            checkpoint()
        else:
            done(log.failure or "its segments cannot be flushed, see the broker's log")

    def checkpoint() -> None:
        logs.write_recovery_points([key], checkpointed)

    def checkpointed() -> None:
        if logs.logs.get(key) is not log or durable_offset_of(logs, log) >= offset:
            done(None)
        else:
            done(f"{RECOVERY_POINTS} cannot be written, see the broker's log")

    log.segment_list.background(_do_nothing, flush)  # segments that were sealed just now may be with a flush thread


def _do_nothing() -> None:
    """A job that is done once all earlier jobs of the log are."""
