"""The line of logs that wait for a worker: those that somebody asked for, and behind them those that a look found due.

A log whose footing is being seen to steps out of the line, and comes back before those who have not been at its head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.cleaner.manager.cleaner_state import CleanerState, CleanerStates, is_compacted
from kafkalite.common.clock import Clock
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats


class CleaningQueue:
    """`is_running` says which logs a worker has, whom they need not wait for. `away`: those whose footing is being seen
    to; `ready`: those that are back from that."""

    def __init__(
        self, standings: CleanerStates, requests: RunRequests, is_running: Callable[[TopicPartition], bool]
    ) -> None:
        self.away: set[TopicPartition] = set()
        self.ready: set[TopicPartition] = set()
        self._standings = standings
        self._requests = requests
        self._is_running = is_running
        self._due: deque[TopicPartition] = deque()
        self._back: deque[TopicPartition] = deque()

    @property
    def is_empty(self) -> bool:
        return not (self._due or self._back or self._requests.is_anybody_waiting)

    def found(self, due: Sequence[TopicPartition]) -> None:
        """What a look has found takes the place of what the one before has."""
        for standing in self._standings:
            standing.is_queued = standing.key in self.away
        self.clear()
        for key in due:
            found = self._standings.get(key)
            if found is not None and not self._is_taken(key):
                found.is_queued = True
                self._due.append(key)
        self.ready.intersection_update(due)

    def step_out(self, standing: CleanerState) -> None:
        standing.is_queued = True
        self.away.add(standing.key)

    def come_back(self, standing: CleanerState) -> None:
        standing.is_queued = True
        self.ready.add(standing.key)
        self._requests.wait_on(standing.key)
        self._back.append(standing.key)

    def put_first(self, standing: CleanerState) -> None:
        """It is to have another turn, and those who wait for it wait on."""
        self._requests.serve_again(standing.key)
        standing.is_queued = True
        self._due.appendleft(standing.key)

    def next(self) -> TopicPartition | None:
        for key in self._requests.waiting:
            if not self._is_taken(key):
                return key
        while self._back or self._due:
            key = (self._back or self._due).popleft()
            standing = self._standings.get(key)
            # it may have had its turn because somebody asked
            if standing is not None and standing.is_queued and not self._is_taken(key):
                return key
        return None

    def clear(self) -> None:
        self._due.clear()
        self._back.clear()

    def _is_taken(self, key: TopicPartition) -> bool:
        return key in self.away or self._is_running(key)


class RunOutcome(NamedTuple):
    """What came of it for one partition: `stats` of the passes, or `why_not` there was nothing to do, or `error`."""

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

    def tell(self, outcome: RunOutcome) -> None:
        self._left.discard((outcome.topic, outcome.partition))
        self._outcomes.append(outcome)
        if not self._left:
            self._done(sorted(self._outcomes, key=lambda one: one.partition))


class RunRequests:
    """Who waits for which log, in the order in which the logs are to have their turn. A pass serves those who were
    there when it began."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, list[RunRequest]] = {}
        self._served: dict[TopicPartition, list[RunRequest]] = {}

    @property
    def waiting(self) -> Iterable[TopicPartition]:
        return self._waiting

    @property
    def is_anybody_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, key: TopicPartition, request: RunRequest) -> None:
        self._waiting.setdefault(key, []).append(request)

    def serve(self, key: TopicPartition) -> bool:
        """A pass begins; whether anybody waits for it."""
        served = self._waiting.pop(key, None)
        if served is not None:
            self._served[key] = served
        return served is not None

    def serve_again(self, key: TopicPartition) -> None:
        """It takes another pass; first of all."""
        served = self._served.pop(key, None)
        if served is not None:
            self._waiting = {key: served + self._waiting.pop(key, []), **self._waiting}

    def wait_on(self, key: TopicPartition) -> None:
        """It could not begin yet; behind the others."""
        served = self._served.pop(key, None)
        if served is not None:
            self._waiting[key] = served + self._waiting.pop(key, [])

    def tell(self, outcome: RunOutcome) -> None:
        """Those whom the pass has served need not wait any more."""
        for request in self._served.pop((outcome.topic, outcome.partition), ()):
            request.tell(outcome)

    def give_up(self, reason: str) -> None:
        """Nobody needs to wait any more."""
        for keys in (self._served, self._waiting):
            for key, requests in list(keys.items()):
                del keys[key]
                for request in requests:
                    request.tell(RunOutcome(*key, error=reason))


_PER_TURN = 32


class Admission:
    """`why_none` says why nothing can be compacted at all, if so."""

    def __init__(
        self, logs: LogManager, standings: CleanerStates, clock: Clock, why_none: Callable[[], str | None]
    ) -> None:
        self._logs = logs
        self._standings = standings
        self._clock = clock
        self._why_none = why_none

    def take(
        self,
        keys: Iterable[TopicPartition],
        roll: bool,
        decided: Callable[[TopicPartition, str | None], None],
        after_turn: Callable[[], None],
    ) -> None:
        """`decided` hears of each log why it is refused, or None; the first of them before this returns."""
        left = deque(keys)

        def turn() -> None:
            for _ in range(min(len(left), 1 if roll else _PER_TURN)):  # a new segment takes 1 ms
                key = left.popleft()
                decided(key, self._refusal(key, roll))
            if left:
                self._clock.call_later(0, turn)
            after_turn()

        turn()

    def _refusal(self, key: TopicPartition, roll: bool) -> str | None:
        if (why_none := self._why_none()) is not None:
            return why_none
        log = self._logs.logs.get(key)
        if log is None:
            return "there is no such partition, or it is offline"
        if not is_compacted(log):
            return f"it is not compacted: its cleanup.policy is {','.join(log.config.cleanup_policy)}"
        if log.failure is not None:
            return log.failure
        try:
            if roll:
                log.roll(self._clock.wall_ms())
        except KafkaError as error:
            return str(error)
        self._standings.of(log).forgive()
        return None
