"""What can be seen of compaction: one row for each compacted partition, and totals. Plain values, no I/O."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats


class CleaningState(Enum):
    """`SET_ASIDE`: its data made the pass fail; it is tried again when asked for, when its settings change, and at the
    next start; each hour, too, where processes died at it. Kafka calls that uncleanable."""

    IDLE = "idle"
    QUEUED = "queued"
    CLEANING = "cleaning"
    SET_ASIDE = "set aside"


class PartitionCleaning(NamedTuple):
    """`why_not`: why the log is not compacted now, for people; None while it is, or will be next. Times are -1 before
    the first run; `last` is what that did."""

    topic: str
    partition: int
    state: CleaningState
    dirty_ratio: float
    clean_bytes: int
    dirty_bytes: int  # that could be compacted now
    uncleanable_bytes: int  # active segment, min.compaction.lag.ms, open transactions
    first_dirty_offset: int
    first_uncleanable_offset: int
    why_not: str | None
    last_run_ms: int  # when it ended
    last: CleanStats | None
    runs: int
    error: str | None  # of the last run


class CleanerTotals(NamedTuple):
    """For the metrics, named as Kafka's LogCleaner and LogCleanerManager name them. `failing_partitions`: the last try
    failed, or it cannot be seen whether they are due; with those that are set aside."""

    workers: int
    workers_busy: int
    worker_deaths: int
    uncleanable_partitions: int
    uncleanable_bytes: int
    failing_partitions: int
    max_dirty_ratio: float
    max_clean_seconds: float
    max_buffer_utilization: float
    recopy_ratio: float  # bytes kept / bytes read of the last runs
    ms_since_last_run: int
    runs: int
    bytes_read: int
    bytes_kept: int
    records_read: int
    records_kept: int
