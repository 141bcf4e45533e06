"""The line of logs that wait for a worker: those that somebody asked for, and behind them those that a look found due.

A log whose footing is being seen to steps out of the line, and comes back before those who have not been at its head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kafkalite.cleaner.run_request import RunRequests
from kafkalite.cleaner.standing import Standing, Standings

Key = tuple[str, int]


class Line:
    """`is_running` says which logs a worker has, whom they need not wait for. `away`: those whose footing is being seen
    to; `ready`: those that are back from that."""

    def __init__(self, standings: Standings, requests: RunRequests, is_running: Callable[[Key], bool]) -> None:
        self.away: set[Key] = set()
        self.ready: set[Key] = set()
        self._standings = standings
        self._requests = requests
        self._is_running = is_running
        self._due: deque[Key] = deque()
        self._back: deque[Key] = deque()

    @property
    def is_empty(self) -> bool:
        return not (self._due or self._back or self._requests.is_anybody_waiting)

    def found(self, due: Sequence[Key]) -> None:
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

    def step_out(self, standing: Standing) -> None:
        standing.is_queued = True
        self.away.add(standing.key)

    def come_back(self, standing: Standing) -> None:
        standing.is_queued = True
        self.ready.add(standing.key)
        self._requests.wait_on(standing.key)
        self._back.append(standing.key)

    def put_first(self, standing: Standing) -> None:
        """It is to have another turn, and those who wait for it wait on."""
        self._requests.serve_again(standing.key)
        standing.is_queued = True
        self._due.appendleft(standing.key)

    def next(self) -> Key | None:
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

    def _is_taken(self, key: Key) -> bool:
        return key in self.away or self._is_running(key)
