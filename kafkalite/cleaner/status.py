"""The states of a compacted log as a table, the values of status and metrics, and the health of the cleaner. No I/O.

A log is IDLE until a scan finds it due, then QUEUED until a worker is free. If its dirty range is not yet on the disk,
it is FLUSHING and then QUEUED again. A worker is CLEANING it until it is IDLE again, or UNCLEANABLE because its data
make each cleaning fail:

    IDLE -> QUEUED -> CLEANING -> IDLE
              |  ^       |
              v  |       v
            FLUSHING   UNCLEANABLE -> QUEUED

A request by name takes a log that is IDLE past the queue. Absence from the table means "not allowed".
The health is one line for /health and status, None if healthy. One problem is that worker processes cannot start: it
lasts until one has sent a message, with a growing pause between attempts. The other is an exception of the cleaner
itself: it is logged with its traceback, the cleaner continues, and the problem ends with a complete scan without one.
Source: kafka.log.LogCleaningState, kafka.log.LogCleanerManager.uncleanablePartitions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock
from kafkalite.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats

logger = logging.getLogger(__name__)


class CleaningState(Enum):
    """The value is the word that `kafkalite cleaner status` prints; FLUSHING is printed as QUEUED.

    UNCLEANABLE: tried again on request, when the topic's settings change, and at the next start; also each hour if
    worker processes died.
    """

    IDLE = "idle"
    QUEUED = "queued"
    FLUSHING = "flushing"
    CLEANING = "cleaning"
    UNCLEANABLE = "uncleanable"


IDLE, QUEUED, FLUSHING, CLEANING, UNCLEANABLE = CleaningState

ENTERED_FROM: Mapping[CleaningState, frozenset[CleaningState]] = {
    IDLE: frozenset({QUEUED, FLUSHING, CLEANING, UNCLEANABLE}),
    QUEUED: frozenset({IDLE, FLUSHING, UNCLEANABLE}),
    FLUSHING: frozenset({IDLE, QUEUED}),
    CLEANING: frozenset({IDLE, QUEUED}),
    UNCLEANABLE: frozenset({IDLE, QUEUED, FLUSHING, CLEANING}),
}


class PartitionCleaning(NamedTuple):
    """The row of one compacted partition. `why_not`: why the log is not cleaned now, for people; None while it is, or
    will be next. `last_run_ms` is -1 before the first run, `last` the statistics of the last one."""

    topic: str
    partition: int
    state: CleaningState
    dirty_ratio: float
    clean_bytes: int
    dirty_bytes: int  # that could be cleaned now
    uncleanable_bytes: int  # active segment, min.compaction.lag.ms, open transactions
    first_dirty_offset: int
    first_uncleanable_offset: int
    why_not: str | None
    last_run_ms: int  # when it ended
    last: CleanStats | None
    runs: int
    error: str | None  # of the last run


class CleanerTotals(NamedTuple):
    """Totals of all cleanings, and the metrics of Kafka's LogCleaner and LogCleanerManager. `failing_partitions`: their
    last cleaning failed, or it is unknown whether they are due; uncleanable ones are among them."""

    workers: int = 0
    workers_busy: int = 0
    worker_deaths: int = 0
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0
    failing_partitions: int = 0
    max_dirty_ratio: float = 0.0  # of the last scan
    max_clean_seconds: float = 0.0  # this and the next two: of the last cleaning
    max_buffer_utilization: float = 0.0
    recopy_ratio: float = 0.0  # bytes kept / bytes read
    ms_since_last_run: int = 0  # since the last scan began
    runs: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0

    def after(self, stats: CleanStats) -> CleanerTotals:
        """With one more cleaning."""
        return self._replace(
            max_clean_seconds=stats.seconds,
            max_buffer_utilization=stats.map_utilization,
            recopy_ratio=stats.bytes_kept / max(1, stats.bytes_read),
            runs=self.runs + 1,
            bytes_read=self.bytes_read + stats.bytes_read,
            bytes_kept=self.bytes_kept + stats.bytes_kept,
            records_read=self.records_read + stats.records_read,
            records_kept=self.records_kept + stats.records_kept,
        )


_PAUSE_MS_MAX = 300_000


class Pause:
    """A pause after a failure. `until_ms` is monotonic; `length_ms` doubles, from the back-off up to five minutes."""

    __slots__ = ("length_ms", "until_ms")

    def __init__(self) -> None:
        self.until_ms = self.length_ms = 0

    def begin(self, now_ms: int, backoff_ms: int) -> None:
        self.length_ms = min(2 * self.length_ms or backoff_ms, max(backoff_ms, _PAUSE_MS_MAX))
        self.until_ms = now_ms + self.length_ms


class CleanerHealth:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_error: str | None = None
        self._fault: str | None = None
        self._has_faulted = False  # since the last scan began
        self._pause = Pause()

    @property
    def text(self) -> str | None:
        return self._start_error or self._fault

    @property
    def may_start(self) -> bool:
        """Whether a worker process may be started now."""
        return self._clock.monotonic_ms() >= self._pause.until_ms

    def cannot_start(self, reason: str, backoff_ms: int) -> None:
        """A process could not start, or ended before its first message."""
        self._pause.begin(self._clock.monotonic_ms(), backoff_ms)
        self._start_error = reason
        logger.error("%s; nothing is compacted; the next try is in %d ms", reason, self._pause.length_ms)

    def has_started(self) -> None:
        """A process has sent a message."""
        if self._start_error is not None:
            logger.info("cleaner processes can start again")
        self._start_error = None
        self._pause.length_ms = 0

    def retry_now(self) -> None:
        """A request ends the pause."""
        self._pause.until_ms = 0

    def fault(self, what: str, error: Exception) -> None:
        """An exception that is a bug of the cleaner."""
        self._has_faulted = True
        self._fault = f"{what} failed: {error!r}"
        logger.error("%s failed in the cleaner, which continues", what, exc_info=error)

    @contextlib.contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Turns an exception into a `fault`, so that the cleaner continues."""
        try:
            yield
        except Exception as error:
            self.fault(what, error)

    def scan_began(self) -> None:
        self._has_faulted = False

    def scan_ended(self) -> None:
        if not self._has_faulted:
            self._fault = None
