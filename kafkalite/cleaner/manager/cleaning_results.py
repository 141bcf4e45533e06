"""What came of a pass: it is remembered with its log, summed up, written into the broker's log, and told to whoever
waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.cleaner.manager.cleaner_state import DEATHS_MAX, CleanerState
from kafkalite.cleaner.manager.cleaning_queue import CleaningQueue, RunOutcome, RunRequests
from kafkalite.cleaner.manager.status import CleanerTotals
from kafkalite.cleaner.workers.cleaning_task import Ending, Outcome
from kafkalite.common.clock import Clock

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanResult, CleanStats

logger = logging.getLogger(__name__)


class CleaningResults:
    """`fault` is told when whoever waits cannot hear it."""

    def __init__(
        self,
        line: CleaningQueue,
        requests: RunRequests,
        sums: CleanerSums,
        clock: Clock,
        fault: Callable[[str, Exception], None],
    ) -> None:
        self._line = line
        self._requests = requests
        self._sums = sums
        self._clock = clock
        self._fault = fault

    def ended(self, standing: CleanerState, outcome: Outcome, backoff_ms: int, *, is_partial: bool = False) -> None:
        """A pass of a log ended, or could not begin. One of which only a part is done has another turn first."""
        key = standing.key
        standing.ended(outcome, self._clock.monotonic_ms(), self._clock.wall_ms(), backoff_ms)
        if outcome.result is not None:
            self._sums.add(outcome.result.stats)
            logger.info("%s-%d %s", *key, told(outcome.result))
            if is_partial:
                self._requests.serve_again(key)
            else:
                self.tell(RunOutcome(*key, stats=outcome.result.stats))
        elif outcome.ending is Ending.ABORTED:
            logger.info("compacting %s-%d was given up: %s", *key, outcome.reason)
            self.tell(RunOutcome(*key, error=outcome.reason))
        elif outcome.ending is Ending.DIED and standing.deaths < DEATHS_MAX:
            logger.error("%s; it is tried once more", outcome.reason)
            self._line.put_first(standing)
        else:
            what_next = "it is tried again later" if standing.set_aside is None else "it is set aside"
            if outcome.ending is Ending.DIED:
                what_next += " for an hour"
            logger.error("cannot compact %s-%d: %s; %s", *key, outcome.reason, what_next)
            self.tell(RunOutcome(*key, error=outcome.reason))

    def tell(self, outcome: RunOutcome) -> None:
        """Those whom the pass was to serve."""
        try:
            self._requests.tell(outcome)
        except Exception as error:
            self._fault("telling what came of a run", error)


class CleanerSums:
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
