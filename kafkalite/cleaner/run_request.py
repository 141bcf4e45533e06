"""Somebody wants some logs to be compacted now, and to hear what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalite.cleaner.job import CleanStats

Key = tuple[str, int]


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

    def __init__(self, keys: Iterable[Key], done: Done) -> None:
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
        self._waiting: dict[Key, list[RunRequest]] = {}
        self._served: dict[Key, list[RunRequest]] = {}

    @property
    def waiting(self) -> Iterable[Key]:
        return self._waiting

    @property
    def is_anybody_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, key: Key, request: RunRequest) -> None:
        self._waiting.setdefault(key, []).append(request)

    def serve(self, key: Key) -> bool:
        """A pass begins; whether anybody waits for it."""
        served = self._waiting.pop(key, None)
        if served is not None:
            self._served[key] = served
        return served is not None

    def serve_again(self, key: Key) -> None:
        """It takes another pass; first of all."""
        served = self._served.pop(key, None)
        if served is not None:
            self._waiting = {key: served + self._waiting.pop(key, []), **self._waiting}

    def wait_on(self, key: Key) -> None:
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
