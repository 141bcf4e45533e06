"""Sums and last values over all passes, for the metrics, and one pass in a line for the log.

Source: kafka.log.LogCleaner (recordStats, gauges), kafka.log.LogCleanerManager (gauges).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.cleaner.status import CleanerTotals

if TYPE_CHECKING:
    from kafkalite.cleaner.job import CleanResult, CleanStats


class Sums:
    """`max_dirty_ratio` is of the last look."""

    def __init__(self, now_ms: int) -> None:
        self.max_dirty_ratio = 0.0
        self.worker_deaths = 0
        self._looked_ms = now_ms
        self._last: CleanStats | None = None
        self._runs = 0
        self._bytes_read = self._bytes_kept = 0
        self._records_read = self._records_kept = 0

    def looked(self, now_ms: int) -> None:
        self._looked_ms = now_ms

    def add(self, stats: CleanStats) -> None:
        """A pass is done."""
        self._last = stats
        self._runs += 1
        self._bytes_read += stats.bytes_read
        self._bytes_kept += stats.bytes_kept
        self._records_read += stats.records_read
        self._records_kept += stats.records_kept

    def totals(
        self, *, workers: int, busy: int, set_aside: int, set_aside_bytes: int, failing: int, now_ms: int
    ) -> CleanerTotals:
        last = self._last
        return CleanerTotals(
            workers=workers,
            workers_busy=busy,
            worker_deaths=self.worker_deaths,
            uncleanable_partitions=set_aside,
            uncleanable_bytes=set_aside_bytes,
            failing_partitions=failing,
            max_dirty_ratio=self.max_dirty_ratio,
            max_clean_seconds=0.0 if last is None else last.seconds,
            max_buffer_utilization=0.0 if last is None else last.map_utilization,
            recopy_ratio=0.0 if last is None else last.bytes_kept / max(1, last.bytes_read),
            ms_since_last_run=now_ms - self._looked_ms,
            runs=self._runs,
            bytes_read=self._bytes_read,
            bytes_kept=self._bytes_kept,
            records_read=self._records_read,
            records_kept=self._records_kept,
        )


def told(result: CleanResult) -> str:
    """What a pass did, behind the name of its log."""
    stats = result.stats
    return (
        f"is compacted up to offset {result.end_offset}: {stats.bytes_read / (1 << 20):.1f} MiB are "
        f"{stats.bytes_kept / (1 << 20):.1f} MiB now, {stats.records_read} records are {stats.records_kept}, in "
        f"{stats.seconds:.1f} s"
    )
