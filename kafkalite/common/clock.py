"""Time as a parameter: two clocks, timers, and a clock for tests that moves only when told.

Milliseconds everywhere. The wall clock is for stored and shown times; it may be set, so deadlines and timers
follow the monotonic one. Deadlines are absolute (`monotonic_ms() + x`). A `Timer` that was cancelled never fires.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Timer(Protocol):
    """A callback that will run once."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The broker's source of time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps and retention count them. May be set, also backwards."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment in the past, for differences. Never goes back."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` once on the owner's event loop, `delay_ms` from now (at once if not positive)."""
        ...


class Moment(NamedTuple):
    """Both clocks at one moment, for pure functions that decide by time."""

    monotonic_ms: int  # for deadlines
    wall_ms: int  # for dates


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

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(max(0.0, delay_ms) / 1000.0, callback)


class TimerGroup:
    """The timers of one owner, which are cancelled together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[Timer, None] = {}

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> None:
        def fire() -> None:
            del self._timers[timer]
            callback()

        timer = self._clock.call_later(delay_ms, fire)
        self._timers[timer] = None

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


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
