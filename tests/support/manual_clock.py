"""A clock for tests that moves only when told."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from kafkalite.common.clock import Timer


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


_UPTIME_MS = 86_400_000


class ManualClock:
    """A clock for tests: time stands still until `advance` moves it, firing what falls due in order.

    Its two clocks show different numbers, so that a test notices a read of the wrong one.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = _UPTIME_MS
        self._wall_ahead_ms = now_ms - _UPTIME_MS
        self._queue: list[tuple[float, int, _ManualTimer]] = []
        self._count = 0

    def wall_ms(self) -> int:
        return self._now_ms + self._wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def step_wall(self, delta_ms: int) -> None:
        """Set the wall clock `delta_ms` forward, or back if negative. No time passes."""
        self._wall_ahead_ms += delta_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = _ManualTimer(callback)
        self._count += 1  # equal deadlines fire in the order they were set
        heapq.heappush(self._queue, (self._now_ms + max(0.0, delay_ms), self._count, timer))
        return timer

    def advance(self, delay_ms: int) -> None:
        """Move `delay_ms` on. Each timer sees its own deadline as the time, and may set further timers."""
        end_ms = self._now_ms + delay_ms
        while self._queue and self._queue[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._queue)
            self._now_ms = max(self._now_ms, int(due_ms))
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now_ms = end_ms
