"""Time as a parameter: the wall clock, timers, and a clock for tests that moves only when told.

Milliseconds everywhere. Deadlines are absolute (`wall_ms() + x`). A `Timer` that was cancelled never fires.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Something that will happen once."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the broker asks of time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps and retention count them."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` once on the owner's event loop, `delay_ms` from now (at once if not positive)."""
        ...


class LoopTimers(Protocol):
    """The two methods of an asyncio loop that a `SystemClock` needs."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer: ...


class SystemClock:
    """The machine's clock, with timers on an asyncio loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: LoopTimers) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(max(0.0, delay_ms) / 1000.0, callback)


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock for tests: time stands still until `advance` moves it, firing what falls due in order."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._queue: list[tuple[float, int, _ManualTimer]] = []
        self._count = 0

    def wall_ms(self) -> int:
        return self._now_ms

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
