"""One log on its way through a worker, as the broker sees it.

    worker: Cleaned   -> the log takes the group in (`PartitionLog.replace`) -> worker: Swapped
    worker: Finished  -> the checkpoint is written                           -> over: DONE
    worker: Failed    -> what it left is removed                             -> over: FAILED, REFUSED
    abort             -> worker: Abort; it answers GaveUp                    -> over: ABORTED
    worker dies       -> what it left is removed                             -> over: DIED

A pass is over exactly once, and never while the log is still taking a group in: until then its first segments must be
left alone. What the worker has read must still be there: a log that was cut, or lost its first segments, is not the
one that it knows.
Source: kafka.log.LogCleaner.CleanerThread.cleanLog, kafka.log.LogCleanerManager.doneCleaning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.cleaner.job.worker_messages import (
    Abort,
    Cleaned,
    Failed,
    Fault,
    Finished,
    FromWorker,
    GaveUp,
    Swapped,
    ToWorker,
)
from kafkalite.common.names import TopicPartition
from kafkalite.log.partition.segment_replacement import Replacement

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanedSegment, CleanJob, CleanResult
    from kafkalite.log.directories.log_directory import LogDirectory
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def _replacement(cleaned: CleanedSegment) -> Replacement:
    return Replacement(
        cleaned.base_offset,
        cleaned.sources,
        cleaned.size_bytes,
        cleaned.record_count,
        cleaned.control_record_count,
        cleaned.max_timestamp_ms,
        cleaned.max_timestamp_offset,
    )


class Ending(Enum):
    """How a pass ended."""

    DONE = "done"
    ABORTED = "aborted"  # the log is not to be compacted any more, or not the same any more
    FAILED = "failed"  # its data cannot be compacted
    REFUSED = "refused"  # the system would not: no space, no memory, a disk
    DIED = "died"  # the worker did


class Outcome(NamedTuple):
    """`reason` in words for all but DONE, `result` for that."""

    ending: Ending
    reason: str = ""
    result: CleanResult | None = None


class CleaningTask:
    """`heard_ms` (monotonic) is when the worker last spoke; `is_swapping`: the log is taking a group in, and the worker
    waits. `say` speaks to the worker; `over` is called once."""

    def __init__(
        self,
        log: PartitionLog,
        home: LogDirectory,
        job: CleanJob,
        say: Callable[[ToWorker], None],
        over: Callable[[CleaningTask, Outcome], None],
    ) -> None:
        self.key: TopicPartition = (log.topic, log.partition)
        self.log = log
        self.job = job
        self.is_swapping = False
        self.is_over = False
        self.abort_reason: str | None = None
        self.heard_ms = 0
        self._home = home
        self._say = say
        self._over = over
        self._sources = {segment.base_offset: segment for segment in log.segments[: len(job.segments)]}
        self._seen = log.segments  # when all of them were there
        self._outcome: Outcome | None = None  # that it will have when the log is at rest
        self._swap_error: Exception | None = None

    @property
    def name(self) -> str:
        return f"{self.log.topic}-{self.log.partition}"

    # what the worker says

    def hear(self, message: FromWorker) -> None:
        """Raises whatever is wrong with this program."""
        if isinstance(message, Cleaned):
            self._take_in(message.segment)
        elif isinstance(message, Finished):
            self._finished(message.result)
        elif isinstance(message, Failed):
            self._failed(message)
        elif isinstance(message, GaveUp):
            self._end(Outcome(Ending.ABORTED, self.abort_reason or "it gave up"))

    def _take_in(self, cleaned: CleanedSegment) -> None:
        self.abort_reason = self.abort_reason or self.why_stale()
        if self.abort_reason is not None:
            self._say(Swapped(False))
            return
        self.is_swapping = True

        def taken(error: Exception | None) -> None:
            self.is_swapping = False
            if error is not None:
                self._swap_error = error
            else:
                for base_offset in cleaned.sources:
                    self._sources.pop(base_offset, None)
            if self._outcome is not None:
                self._settle()
            else:
                self._say(Swapped(error is None and self.abort_reason is None))

        try:
            self.log.replace(_replacement(cleaned), taken)
        except BaseException:
            self.is_swapping = False
            raise

    def why_stale(self) -> str | None:
        """Why the segments that are left to do are not those any more that the worker was told of; None if they are.
        Not while the log is taking a group in."""
        segments = self.log.segments
        if segments is not self._seen:
            sealed = set(map(id, segments[:-1]))
            for base_offset, segment in self._sources.items():
                if id(segment) not in sealed:
                    return f"its segment at offset {base_offset} was removed or cut meanwhile"
            self._seen = segments
        return None

    def _finished(self, result: CleanResult) -> None:
        stale = self.abort_reason or (self.why_stale() if self._swap_error is not None else None)
        if stale is not None:
            self._end(Outcome(Ending.ABORTED, stale))
        elif self._swap_error is not None:
            self._end(Outcome(Ending.REFUSED, str(self._swap_error)))
        else:
            self._end(Outcome(Ending.DONE, result=result))

    def _failed(self, message: Failed) -> None:
        reason = self.abort_reason or self.why_stale()
        if reason is not None:  # it could not find what is not there any more
            self._end(Outcome(Ending.ABORTED, reason))
        elif message.fault is Fault.SYSTEM:
            if message.errno:
                self._home.on_io_error(OSError(message.errno, message.reason))
            self._end(Outcome(Ending.REFUSED, message.reason))
        else:
            self._end(Outcome(Ending.FAILED, message.reason))

    # what else may come

    def abort(self, reason: str) -> None:
        """Have the worker give up; it is over soon."""
        if self.abort_reason is None and self._outcome is None:
            self.abort_reason = reason
            self._say(Abort())

    def end_without_worker(self, outcome: Outcome) -> None:
        """The worker is no more."""
        self._end(outcome if self.abort_reason is None else Outcome(Ending.ABORTED, self.abort_reason))

    # the end

    def _end(self, outcome: Outcome) -> None:
        if self._outcome is None:
            self._outcome = outcome
            if not self.is_swapping:
                self._settle()

    def _settle(self) -> None:
        """The log is at rest: write down how far it came, or remove what was left of the pass."""
        outcome = self._outcome
        assert outcome is not None
        try:
            if self._home.logs.get(self.key) is not self.log:  # it is gone, and its directory with it
                self._tell(outcome if outcome.result is None else Outcome(Ending.ABORTED, "the log is gone"))
            elif outcome.result is not None:
                self._home.write_cleaner_offset(self.key, outcome.result.end_offset, self._kept)
            elif self.log.is_replacing:  # the disk has refused it a step, which it tries again
                self._tell(outcome)
            else:
                self._home.remove_cleaned_files(self.key, self._removed)
        except Exception as error:  # whatever it is, a pass must come to its end
            logger.exception("the end of compacting %s failed", self.name)
            self._tell(Outcome(Ending.FAILED, f"its end failed: {error!r}"))

    def _kept(self, error: Exception | None) -> None:
        if error is not None:  # what counts is in memory; after a crash some of it is compacted again
            logger.error("cannot write down how far %s is compacted: %s", self.name, error)
        assert self._outcome is not None
        self._tell(self._outcome)

    def _removed(self, error: Exception | None) -> None:
        if error is not None:
            logger.warning("cannot remove what is left of compacting %s: %s; the next start does it", self.name, error)
        assert self._outcome is not None
        self._tell(self._outcome)

    def _tell(self, outcome: Outcome) -> None:
        if not self.is_over:
            self.is_over = True
            self._over(self, outcome)
