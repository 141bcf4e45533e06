"""The states of a compacted log, as a table, and the values that status and metrics show. No I/O.

A log is IDLE until a scan finds it due, then QUEUED until a worker is free. If its dirty range is not yet on the disk,
it is FLUSHING and then QUEUED again. A worker is CLEANING it until it is IDLE again, or UNCLEANABLE because its data
make each cleaning fail:

    IDLE -> QUEUED -> CLEANING -> IDLE
              |  ^       |
              v  |       v
            FLUSHING   UNCLEANABLE -> QUEUED

A request by name takes a log that is IDLE past the queue. Absence from the table means "not allowed".
Source: kafka.log.LogCleaningState, kafka.log.LogCleanerManager.uncleanablePartitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats


class CleaningState(Enum):
    """The value is the word that `kafkalite cleaner status` shows; FLUSHING is shown as QUEUED.

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
