"""A virtual clock and its events: the order of everything follows from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Simulator:
    """Times are virtual milliseconds. Events at the same time come in the order in which they were planned."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.events = 0
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time: float, action: Callable[..., None], *args: Any) -> None:
        self.events += 1
        heappush(self._planned, (time, self.events, action, args))

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        self.at(self.now + delay, action, *args)

    def run_for(self, duration: float) -> None:
        self.run_until(lambda: False, duration)

    def run_until(self, is_reached: Callable[[], bool], limit: float) -> bool:
        """Whether the condition was reached before `limit` milliseconds had passed."""
        end, planned = self.now + limit, self._planned
        while not is_reached():
            if not planned or planned[0][0] > end:
                self.now = end
                return is_reached()
            self.now, _, action, args = heappop(planned)
            action(*args)
        return True
