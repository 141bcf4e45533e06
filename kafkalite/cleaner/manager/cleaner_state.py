"""The cleaner's state of each compacted log: cleaning state, last plan, and outcomes of cleanings.

A log whose data a cleaning refused is uncleanable until a request, new settings or the next start. A log at which
workers died is uncleanable for one hour at most, since memory may have been short. If the system refused (no space, no
memory), the log is tried again after a growing pause.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalite.cleaner.job.log_to_clean import LogFacts, LogToClean, depends_on_time, plan, unknown_plan
from kafkalite.cleaner.job.worker_messages import Ending, Outcome
from kafkalite.cleaner.manager.cleaner_health import Pause
from kafkalite.cleaner.manager.status import (
    CLEANING,
    ENTERED_FROM,
    FLUSHING,
    IDLE,
    QUEUED,
    UNCLEANABLE,
    CleaningState,
    PartitionCleaning,
)
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats
    from kafkalite.config.topic_config import TopicConfig
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

DEATHS_MAX = 2  # of workers at one log, until it is uncleanable
_UNCLEANABLE_MS_AFTER_DEATHS = 3_600_000


class CleanerState:
    """The state of one log. `plan` is the latest plan, and `unplanned` the reason why no newer one could be made.
    `uncleanable` is the reason, or None; it is kept during the hourly retry (QUEUED, CLEANING)."""

    __slots__ = (
        "_facts", "_failed_config", "_pause", "current", "deaths", "error", "key", "last", "last_run_ms", "log",
        "plan", "runs", "uncleanable", "unplanned",
    )  # fmt: skip

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.key: TopicPartition = (log.topic, log.partition)
        self.current = IDLE
        self.plan: LogToClean | None = None
        self.uncleanable: str | None = None
        self.unplanned: str | None = None
        self.error: str | None = None
        self.deaths = 0
        self.runs = 0
        self.last: CleanStats | None = None
        self.last_run_ms = -1
        self._pause = Pause()
        self._failed_config: TopicConfig | None = None
        self._facts: tuple[object, ...] | None = None  # of `plan`

    @property
    def is_failing(self) -> bool:
        return self.error is not None or self.unplanned is not None

    # states

    def enter(self, state: CleaningState) -> None:
        assert self.current in ENTERED_FROM[state], f"{self.key}: {self.current} -> {state}"
        self.current = state

    def rest(self) -> None:
        """Nothing is to be done with the log now."""
        state = IDLE if self.uncleanable is None else UNCLEANABLE
        if self.current is not state:
            self.enter(state)

    def may_run(self, now_monotonic_ms: int) -> bool:
        """Whether the failures of earlier cleanings permit another one."""
        if self.log.failure is not None:  # the log does not replace segments either
            self.error = self.log.failure
            return False
        if self.uncleanable is not None:
            if self.log.config is not self._failed_config and self.log.config != self._failed_config:
                self.forgive()
            elif self.deaths < DEATHS_MAX:
                return False
        return now_monotonic_ms >= self._pause.until_ms

    def forgive(self) -> None:
        """Forget the failures of earlier cleanings."""
        self.uncleanable = None
        self.deaths = 0
        self._pause = Pause()
        if self.current is UNCLEANABLE:
            self.enter(IDLE)

    def ended(self, outcome: Outcome, now_monotonic_ms: int, wall_ms: int, backoff_ms: int) -> None:
        """A cleaning has ended, or could not begin."""
        self.last_run_ms = wall_ms
        self.error = outcome.reason or None
        if outcome.result is not None:
            self.forgive()
            self.runs += 1
            self.last = outcome.result.stats
        elif outcome.ending is Ending.ABORTED:
            self.error = None
        elif outcome.ending is Ending.REFUSED:
            self._pause.begin(now_monotonic_ms, backoff_ms)
        elif outcome.ending is Ending.DIED:
            self.deaths += 1
            if self.deaths >= DEATHS_MAX:
                self._mark_uncleanable(outcome.reason)
                self._pause.until_ms = now_monotonic_ms + _UNCLEANABLE_MS_AFTER_DEATHS
        else:
            self.deaths = 0
            self._mark_uncleanable(outcome.reason)
        self.rest()

    def _mark_uncleanable(self, reason: str) -> None:
        self.uncleanable = reason
        self._failed_config = self.log.config

    # plans

    def make_plan(self, cleaned_to: int | None, now_ms: int, durable_offset: int | None = None) -> LogToClean:
        """With `durable_offset` for a cleaning that is not to go beyond it. Raises OSError, KafkaError."""
        log = self.log
        try:
            config = log.config
            stable_offset = min(log.committed_offset, log.producers.first_unstable_offset)
            if durable_offset is not None:
                stable_offset = min(stable_offset, durable_offset)
            facts = (log.segments, log.start_offset, log.end_offset, stable_offset, cleaned_to, config)
            # most logs have not changed since the last scan, and then the plan has not either: 1 us instead of 10
            if facts != self._facts or self.plan is None or depends_on_time(config):
                self.plan = plan(LogFacts(*facts), now_ms)
                self._facts = facts
        except (OSError, KafkaError) as error:
            self.unplanned = f"it cannot be seen whether it is due: {error}"
            raise
        self.unplanned = None
        return self.plan

    def row(self, why_nothing_runs: str | None, now_monotonic_ms: int) -> PartitionCleaning:
        """The row of the log in `kafkalite cleaner status`."""
        found = self.plan or unknown_plan(self.log.start_offset, self.log.size_bytes)
        state = IDLE
        why_not = found.why_not or why_nothing_runs
        if self.current is CLEANING:
            state, why_not = CLEANING, None
        elif self.uncleanable is not None:
            state, why_not = UNCLEANABLE, self.uncleanable
        elif self.unplanned is not None or (why_not is None and self.log.failure is not None):
            why_not = self.unplanned or self.log.failure
        elif why_not is None and self._pause.until_ms > now_monotonic_ms:
            pause_s = (self._pause.until_ms - now_monotonic_ms + 999) // 1000
            why_not = f"the last try failed; the next is in {pause_s} s"
        elif self.current in (QUEUED, FLUSHING):
            state = QUEUED
        return PartitionCleaning(
            topic=self.log.topic,
            partition=self.log.partition,
            state=state,
            dirty_ratio=found.dirty_ratio,
            clean_bytes=found.clean_bytes,
            dirty_bytes=found.dirty_bytes,
            uncleanable_bytes=found.uncleanable_bytes,
            first_dirty_offset=found.first_dirty_offset,
            first_uncleanable_offset=found.first_uncleanable_offset,
            why_not="; ".join(filter(None, (why_not, self.last.unread if self.last else None))) or None,
            last_run_ms=self.last_run_ms,
            last=self.last,
            runs=self.runs,
            error=self.unplanned or self.error,
        )


class CleanerStates:
    """The states of all compacted logs that the cleaner has met."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._by_key: dict[TopicPartition, CleanerState] = {}

    def __iter__(self) -> Iterator[CleanerState]:
        return iter(self._by_key.values())

    def get(self, key: TopicPartition) -> CleanerState | None:
        return self._by_key.get(key)

    def of(self, log: PartitionLog) -> CleanerState:
        key = (log.topic, log.partition)
        state = self._by_key.get(key)
        if state is None or state.log is not log:
            state = self._by_key[key] = CleanerState(log)
        return state

    def make_plan(self, state: CleanerState, now_ms: int, durable_offset: int | None = None) -> LogToClean:
        """Raises OSError, KafkaError."""
        return state.make_plan(self.cleaned_to(state), now_ms, durable_offset)

    def cleaned_to(self, state: CleanerState) -> int | None:
        """The offset in cleaner-offset-checkpoint."""
        return self._logs.directory_of(state.key).checkpoints.cleaner_offsets.get(state.key)

    def forget(self, key: TopicPartition) -> None:
        """The log is gone, or no longer compacted."""
        self._by_key.pop(key, None)


def is_compacted(log: PartitionLog) -> bool:
    return "compact" in log.config.cleanup_policy
