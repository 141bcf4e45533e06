"""The schedule of the cleaner: which logs are due, which is cleaned next, and what earlier cleanings permit.

    CleanerState     one compacted log: its cleaning state, last plan, and the outcomes of its cleanings
    scan_for_due     checks all logs for due ones, some in each turn of the loop
    CleaningQueue    the logs that wait for a worker: those that `kafkalite cleaner run` has named come first, then the
                     due logs of the last scan, the filthiest first

A log whose data a cleaning refused is uncleanable until a request, new settings or the next start. A log at which
workers died is uncleanable for one hour at most, since memory may have been short. If the system refused (no space, no
memory), the log is tried again after a growing pause.
Source: kafka.log.LogCleanerManager (grabFilthiestCompactedLog, which checks all logs at once in a thread).
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from kafkalite.cleaner import status
from kafkalite.cleaner.job.job import Ending, Outcome
from kafkalite.cleaner.job.log_to_clean import LogFacts, LogToClean, depends_on_time, plan, unknown_plan
from kafkalite.common.clock import Clock
from kafkalite.common.errors import KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats
    from kafkalite.config.topic_config import TopicConfig
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

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
        self.current = status.IDLE
        self.plan: LogToClean | None = None
        self.uncleanable: str | None = None
        self.unplanned: str | None = None
        self.error: str | None = None
        self.deaths = 0
        self.runs = 0
        self.last: CleanStats | None = None
        self.last_run_ms = -1
        self._pause = status.Pause()
        self._failed_config: TopicConfig | None = None
        self._facts: tuple[object, ...] | None = None  # of `plan`

    @property
    def is_failing(self) -> bool:
        return self.error is not None or self.unplanned is not None

    # states

    def enter(self, state: status.CleaningState) -> None:
        assert self.current in status.ENTERED_FROM[state], f"{self.key}: {self.current} -> {state}"
        self.current = state

    def become_idle(self) -> None:
        """Nothing is to be done with the log now."""
        state = status.IDLE if self.uncleanable is None else status.UNCLEANABLE
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
        self._pause = status.Pause()
        if self.current is status.UNCLEANABLE:
            self.enter(status.IDLE)

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
        self.become_idle()

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

    def row(self, why_nothing_runs: str | None, now_monotonic_ms: int) -> status.PartitionCleaning:
        """The row of the log in `kafkalite cleaner status`."""
        found = self.plan or unknown_plan(self.log.start_offset, self.log.size_bytes)
        state = status.IDLE
        why_not = found.why_not or why_nothing_runs
        if self.current is status.CLEANING:
            state, why_not = status.CLEANING, None
        elif self.uncleanable is not None:
            state, why_not = status.UNCLEANABLE, self.uncleanable
        elif self.unplanned is not None or (why_not is None and self.log.failure is not None):
            why_not = self.unplanned or self.log.failure
        elif why_not is None and self._pause.until_ms > now_monotonic_ms:
            pause_s = (self._pause.until_ms - now_monotonic_ms + 999) // 1000
            why_not = f"the last try failed; the next is in {pause_s} s"
        elif self.current in (status.QUEUED, status.FLUSHING):
            state = status.QUEUED
        return status.PartitionCleaning(
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


class RunOutcome(NamedTuple):
    """The outcome for one partition: `stats` of its last cleaning, or `why_not`: nothing was to be done, or `error`."""

    topic: str
    partition: int
    stats: CleanStats | None = None
    why_not: str | None = None
    error: str | None = None


Done = Callable[[list[RunOutcome]], None]


class RunRequest:
    """`done` is called once, when the last partition has its outcome, with all of them in the order of partitions."""

    def __init__(self, keys: Iterable[TopicPartition], done: Done) -> None:
        self._left = set(keys)
        self._outcomes: list[RunOutcome] = []
        self._done = done
        if not self._left:
            done([])

    def add(self, outcome: RunOutcome) -> None:
        self._left.discard((outcome.topic, outcome.partition))
        self._outcomes.append(outcome)
        if not self._left:
            self._done(sorted(self._outcomes, key=lambda one: one.partition))


class QueueEntry:
    """`requests` wait for the outcome of this entry's cleaning; a later request gets an entry of its own. `is_durable`:
    its dirty range has been flushed."""

    __slots__ = ("dirty_ratio", "is_durable", "key", "requests")

    def __init__(self, key: TopicPartition, dirty_ratio: float = 0.0, *, is_durable: bool = False) -> None:
        self.key = key
        self.dirty_ratio = dirty_ratio
        self.is_durable = is_durable
        self.requests: list[RunRequest] = []

    def answer(self, outcome: RunOutcome) -> None:
        """Answers the requests."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.add(outcome)


class CleaningQueue:
    """An entry that was taken stays known until `finish` or `put_back`: no other of its log is taken meanwhile."""

    def __init__(self) -> None:
        self._requested: dict[TopicPartition, QueueEntry] = {}  # in order
        self._due: list[QueueEntry] = []  # the filthiest last
        self._taken: dict[TopicPartition, QueueEntry] = {}

    @property
    def is_empty(self) -> bool:
        return not (self._requested or self._due)

    def replace_due(self, due: Iterable[tuple[float, TopicPartition]]) -> list[TopicPartition]:
        """Replace the findings of the last scan, by (dirty ratio, log); the logs that wait now."""
        durable = {entry.key for entry in self._due if entry.is_durable}
        self._due = [QueueEntry(key, ratio, is_durable=key in durable) for ratio, key in due if key not in self._taken]
        self._due.sort(key=_filth)
        return [entry.key for entry in self._due]

    def request(self, key: TopicPartition, request: RunRequest) -> None:
        self._requested.setdefault(key, QueueEntry(key)).requests.append(request)

    def take(self) -> QueueEntry | None:
        """The next entry whose log is not taken already."""
        for key in self._requested:
            if key not in self._taken:
                return self._take(self._requested.pop(key))
        while self._due:
            entry = self._due.pop()
            if entry.key not in self._taken:
                return self._take(entry)
        return None

    def _take(self, entry: QueueEntry) -> QueueEntry:
        self._taken[entry.key] = entry
        return entry

    def put_back(self, entry: QueueEntry, *, is_durable: bool = False) -> None:
        """Its log needs another turn: the first one, or behind other requests if it was FLUSHING."""
        key = entry.key
        self._taken.pop(key, None)
        entry.is_durable = is_durable
        later = self._requested.pop(key, None)
        if later is not None:
            entry.requests += later.requests
        if not entry.requests:
            insort(self._due, entry, key=_filth)
        elif is_durable:
            self._requested[key] = entry
        else:
            self._requested = {key: entry, **self._requested}

    def finish(self, entry: QueueEntry) -> None:
        """Its cleaning has ended, so that another entry of its log may be taken."""
        self._taken.pop(entry.key, None)

    def clear(self, reason: str) -> None:
        """Empties the queue and answers all requests, also of taken entries."""
        entries = [*self._taken.values(), *self._requested.values()]
        self._requested = {}
        self._due = []
        for entry in entries:
            entry.answer(RunOutcome(*entry.key, error=reason))


def _filth(entry: QueueEntry) -> tuple[float, TopicPartition]:
    return entry.dirty_ratio, entry.key


def refusal(log: PartitionLog | None, roll: bool, now_ms: int) -> str | None:
    """The reason why the log cannot be cleaned at all, or None; then the log is rolled if requested."""
    if log is None:
        return "there is no such partition, or it is offline"
    if not is_compacted(log):
        return f"it is not compacted: its cleanup.policy is {','.join(log.config.cleanup_policy)}"
    if log.failure is not None:
        return log.failure
    try:
        if roll:
            log.roll(now_ms)
    except KafkaError as error:
        return str(error)
    return None


_WORK_PER_TURN = 500  # a log counts for 4 and each of its segments for 1: 0.5 to 1 ms
_WORK_OF_A_LOG = 4


def scan_for_due(
    logs: LogManager, states: CleanerStates, clock: Clock, health: status.CleanerHealth
) -> Generator[None, None, list[tuple[float, TopicPartition]]]:
    """Scans all logs, some in each step; returns the dirty ratio and name of each due log. An unexpected exception (a
    bug) at one log is reported to `health`, and the scan continues. Logs that are being cleaned, or are on the move to
    another directory, are skipped."""
    due: list[tuple[float, TopicPartition]] = []
    work = _WORK_PER_TURN
    for log in list(logs.logs.values()):
        if work <= 0:
            yield
            work = _WORK_PER_TURN
        key = (log.topic, log.partition)
        try:
            work -= _WORK_OF_A_LOG + len(log.segments)
            if not is_compacted(log):
                states.forget(key)
            elif (
                logs.logs.get(key) is log
                and key not in logs.moves
                and (state := states.of(log)).current is not status.CLEANING
                and (dirty_ratio := _due_ratio(state, states, logs, clock)) is not None
            ):
                due.append((dirty_ratio, key))
        except Exception as error:  # the other logs are still scanned
            health.fault(f"looking at {log!r}", error)
    return due


def _due_ratio(state: CleanerState, states: CleanerStates, logs: LogManager, clock: Clock) -> float | None:
    """The dirty ratio of a log that is due; None for another."""
    try:
        plan = states.make_plan(state, clock.wall_ms())
    except (OSError, KafkaError) as error:
        logger.warning("cannot see whether %s-%d is to be compacted: %s", *state.key, error)
        return None
    if plan.must_reset:
        log, cleaned_to = state.log, states.cleaned_to(state) or 0
        if cleaned_to > log.end_offset or "delete" not in log.config.cleanup_policy:
            logger.warning(
                "the checkpoint says that %s-%d is compacted up to offset %d, but it has %d to %d: all of it is dirty",
                *state.key, cleaned_to, log.start_offset, log.end_offset,
            )  # fmt: skip
        logs.directory_of(state.key).write_cleaner_offset(state.key, plan.first_dirty_offset, _checkpointed)
    return plan.dirty_ratio if plan.is_due and state.may_run(clock.monotonic_ms()) else None


def _checkpointed(error: Exception | None) -> None:
    if error is not None:
        logger.error("cannot checkpoint how far a log is compacted: %s", error)
