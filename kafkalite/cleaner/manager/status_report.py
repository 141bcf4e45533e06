"""What people and scrapers are shown of compaction: a row for each compacted partition, and totals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kafkalite.cleaner.manager.cleaner_state import CleanerStates, is_compacted
from kafkalite.common.clock import Clock
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.cleaner.manager.cleaning_results import CleanerSums
    from kafkalite.cleaner.manager.status import CleanerTotals, PartitionCleaning
    from kafkalite.cleaner.workers.cleaning_task import CleaningTask
    from kafkalite.cleaner.workers.worker_pool import WorkerPool
    from kafkalite.log.directories.log_manager import LogManager


class StatusReport:
    """`why_nothing_runs` says what is wrong with the cleaner as a whole, if so. Nothing is changed here."""

    def __init__(
        self,
        logs: LogManager,
        standings: CleanerStates,
        running: Mapping[TopicPartition, CleaningTask],
        crew: WorkerPool,
        sums: CleanerSums,
        clock: Clock,
        why_nothing_runs: Callable[[], str | None],
    ) -> None:
        self._logs = logs
        self._standings = standings
        self._running = running
        self._crew = crew
        self._sums = sums
        self._clock = clock
        self._why_nothing_runs = why_nothing_runs

    def status(self, topic: str | None = None) -> list[PartitionCleaning]:
        """A row for each compacted partition (of one topic), as it is now."""
        return list(self.rows(None if topic is None else [key for key in self._logs.logs if key[0] == topic]))

    def rows(
        self, keys: Iterable[TopicPartition] | None = None, *, as_last_seen: bool = False
    ) -> Iterator[PartitionCleaning]:
        """The rows of those of `keys` (None: all) that are compacted, each made when it is asked for: whoever wants
        many takes them with pauses. `as_last_seen`: what the last look found is good enough."""
        for key in list(self._logs.logs) if keys is None else keys:
            log = self._logs.logs.get(key)
            if log is None or not is_compacted(log):
                continue
            standing = self._standings.of(log)
            if standing.plan is None or not as_last_seen:
                with contextlib.suppress(OSError, KafkaError):  # the row says so
                    self._standings.make_plan(standing, self._clock.wall_ms())
            yield standing.row(self._running.get(key), self._why_nothing_runs(), self._clock.monotonic_ms())

    def totals(self) -> CleanerTotals:
        aside = [standing for standing in self._standings if standing.set_aside is not None]
        return self._sums.totals(
            workers=len(self._crew.seats),
            busy=len(self._crew.busy),
            set_aside=len(aside),
            set_aside_bytes=sum(standing.plan.dirty_bytes for standing in aside if standing.plan is not None),
            failing=sum(standing.is_failing for standing in self._standings),
            now_ms=self._clock.monotonic_ms(),
        )
