"""What is remembered of each compacted log between its passes: how they went, and when it may be tried again.

set aside   a pass failed for what is in the log: again when somebody asks, when its settings change, or at the next
            start. Where processes died, which may be the log or a machine short of memory, also after an hour
pausing     the system refused (no space, no memory): again after a pause, which grows
queued      due, and waiting for a worker
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalite.cleaner.job.log_to_clean import LogFacts, LogToClean, depends_on_time, nothing_seen, plan
from kafkalite.cleaner.manager.status import CleaningState, PartitionCleaning
from kafkalite.cleaner.workers.cleaning_task import CleaningTask, Ending, Outcome
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats
    from kafkalite.config.topic_config import TopicConfig
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

PAUSE_MS_MAX = 300_000
DEATHS_MAX = 2  # of workers at one log, until that is set aside
_PAUSE_OF_DEATHS_MS = 3_600_000


class CleanerState:
    """One log's. `plan` is the last that was made, and `unseen` why there is no newer one; `retry_ms` (monotonic): not
    before."""

    __slots__ = (
        "_failed_config", "_pause_ms", "_planned", "deaths", "error", "is_queued", "key", "last", "last_run_ms", "log",
        "plan", "retry_ms", "runs", "set_aside", "unseen",
    )  # fmt: skip

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.key: TopicPartition = (log.topic, log.partition)
        self.plan: LogToClean | None = None
        self.is_queued = False
        self.set_aside: str | None = None
        self.unseen: str | None = None
        self.error: str | None = None
        self.deaths = 0
        self.retry_ms = 0
        self.runs = 0
        self.last: CleanStats | None = None
        self.last_run_ms = -1
        self._pause_ms = 0
        self._failed_config: TopicConfig | None = None
        self._planned: tuple[object, ...] | None = None

    @property
    def is_failing(self) -> bool:
        return self.error is not None or self.unseen is not None

    def make_plan(self, cleaned_to: int | None, now_ms: int, footing: int | None = None) -> LogToClean:
        """With `footing` for a pass that is not to go beyond it. Raises OSError, KafkaError."""
        try:
            found = self._make_plan(cleaned_to, now_ms, footing)
        except (OSError, KafkaError) as error:
            self.unseen = f"it cannot be seen whether it is due: {error}"
            raise
        self.unseen = None
        return found

    def _make_plan(self, cleaned_to: int | None, now_ms: int, footing: int | None) -> LogToClean:
        log = self.log
        config = log.config
        unstable_offset = log.producers.first_unstable_offset if log.producers.ongoing else None
        stable_offset = log.committed_offset
        if unstable_offset is not None and unstable_offset < stable_offset:
            stable_offset = unstable_offset
        if footing is not None and footing < stable_offset:
            stable_offset = footing
        facts = (log.segments, log.start_offset, log.end_offset, stable_offset, cleaned_to, config)
        # nothing has happened to most logs since the last look, and that is all there is to see: 1 us instead of 10
        if facts != self._planned or self.plan is None or depends_on_time(config):
            self.plan = plan(LogFacts(*facts), now_ms)
            self._planned = facts
        return self.plan

    def may_run(self, now_monotonic_ms: int) -> bool:
        """Whether nothing that happened before speaks against a pass."""
        if self.log.failure is not None:  # it takes no segments either
            self.error = self.log.failure
            return False
        if self.set_aside is not None:
            if self.log.config is not self._failed_config and self.log.config != self._failed_config:
                self.forgive()
            elif self.deaths < DEATHS_MAX:
                return False
        return now_monotonic_ms >= self.retry_ms

    def forgive(self) -> None:
        """Try it again, whatever there was."""
        self.set_aside = None
        self.deaths = 0
        self.retry_ms = self._pause_ms = 0

    def ended(self, outcome: Outcome, now_monotonic_ms: int, wall_ms: int, backoff_ms: int) -> None:
        """A pass is over."""
        self.last_run_ms = wall_ms
        self.error = outcome.reason or None
        if outcome.result is not None:
            self.forgive()
            self.runs += 1
            self.last = outcome.result.stats
            return
        if outcome.ending is Ending.ABORTED:
            self.error = None  # nothing went wrong
        elif outcome.ending is Ending.REFUSED:
            self._pause_ms = min(2 * self._pause_ms or backoff_ms, max(backoff_ms, PAUSE_MS_MAX))
            self.retry_ms = now_monotonic_ms + self._pause_ms
        elif outcome.ending is Ending.DIED:
            self.deaths += 1
            if self.deaths >= DEATHS_MAX:
                self._put_aside(outcome.reason)
                self.retry_ms = now_monotonic_ms + _PAUSE_OF_DEATHS_MS
        else:
            self.deaths = 0
            self._put_aside(outcome.reason)

    def _put_aside(self, reason: str) -> None:
        self.set_aside = reason
        self._failed_config = self.log.config

    def row(
        self, running: CleaningTask | None, why_nothing_runs: str | None, now_monotonic_ms: int
    ) -> PartitionCleaning:
        """As people are shown it."""
        found = self.plan or nothing_seen(self.log.start_offset, self.log.size_bytes)
        state = CleaningState.IDLE
        why_not = found.why_not or why_nothing_runs
        if running is not None:
            state, why_not = CleaningState.CLEANING, None
        elif self.set_aside is not None:
            state, why_not = CleaningState.SET_ASIDE, self.set_aside
        elif self.unseen is not None or (why_not is None and self.log.failure is not None):
            why_not = self.unseen or self.log.failure
        elif why_not is None and self.retry_ms > now_monotonic_ms:
            pause_s = (self.retry_ms - now_monotonic_ms + 999) // 1000
            why_not = f"the last try failed; the next is in {pause_s} s"
        elif self.is_queued:
            state = CleaningState.QUEUED
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
            why_not=why_not,
            last_run_ms=self.last_run_ms,
            last=self.last,
            runs=self.runs,
            error=self.unseen or self.error,
        )


class CleanerStates:
    """Those of all logs that were compacted topics' since they are here."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._by_key: dict[TopicPartition, CleanerState] = {}

    def __iter__(self) -> Iterator[CleanerState]:
        return iter(self._by_key.values())

    def get(self, key: TopicPartition) -> CleanerState | None:
        return self._by_key.get(key)

    def of(self, log: PartitionLog) -> CleanerState:
        key = (log.topic, log.partition)
        standing = self._by_key.get(key)
        if standing is None or standing.log is not log:
            standing = self._by_key[key] = CleanerState(log)
        return standing

    def make_plan(self, standing: CleanerState, now_ms: int, footing: int | None = None) -> LogToClean:
        """Raises OSError, KafkaError."""
        return standing.make_plan(self.cleaned_to(standing), now_ms, footing)

    def cleaned_to(self, standing: CleanerState) -> int | None:
        """What the checkpoint says."""
        key = standing.key
        return self._logs.directory_of(key).checkpoints.cleaner_offsets.get(key)

    def forget(self, key: TopicPartition) -> None:
        """The log is gone, or not compacted any more."""
        self._by_key.pop(key, None)


def is_compacted(log: PartitionLog) -> bool:
    return "compact" in log.config.cleanup_policy
