"""Time as a parameter: two clocks, timers, and waits for a condition on the state in memory.

All times are milliseconds. The wall clock is for stored and displayed times. It may be set, so deadlines and timers use
the monotonic clock. Deadlines are absolute (`monotonic_ms() + x`). A cancelled `Timer` never fires.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkalite.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    import asyncio
    from asyncio import AbstractEventLoop


monotonic_s: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
"""Seconds since some moment in the past, for differences. A test that freezes time with freezegun has another
`time.monotonic` meanwhile, under every name that a module has for it: the deadlines of a broker in its process would
never come, or come at once. `clock_gettime` is left alone."""


def monotonic_ms() -> int:
    """As `monotonic_s`, in milliseconds."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


def date_ms() -> int:
    """Milliseconds since 1970 by the date of this process, which a test may have set with freezegun or time-machine."""
    if isinstance(time.time_ns, BuiltinFunctionType):  # time-machine changes what it returns
        now_ns: int = time.time_ns()
        return now_ns // 1_000_000
    try:
        # freezegun's time_ns returns the real date to callers near the beginning of a thread, such as a broker's timers
        return round(datetime.datetime.now().timestamp() * 1000)
    except IndexError:  # the freeze ends at this moment
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000


class Timer(Protocol):
    """A callback that will run once."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The broker's source of time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for record timestamps and retention. May be set, also backwards."""
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


class SystemClock:
    """The machine's clock, with timers on an asyncio loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_ms = staticmethod(monotonic_ms)

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


_T = TypeVar("_T")


async def within(clock: Clock, timeout_ms: float, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of `work`. After `timeout_ms` of `clock`, `work` is cancelled and TimeoutError raised."""
    import asyncio  # workers of the cleaner have a clock and no event loop

    task = asyncio.ensure_future(work)
    is_late = False

    def expire() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = clock.call_later(timeout_ms, expire)
    try:
        return await task
    except asyncio.CancelledError:
        if is_late:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


class ConditionWaiters:
    """Coroutines that wait for conditions on the state of one owner, which calls `check` after each change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._closed = False

    async def until(self, condition: Callable[[], bool], deadline_ms: int) -> bool:
        """Waits until the condition is true; returns False at a deadline of the monotonic clock, or after `close`."""
        if condition():
            return True
        if self._closed:
            return False
        import asyncio

        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters[future] = condition
        timer = self._clock.call_later(
            deadline_ms - self._clock.monotonic_ms(), lambda: None if future.done() else future.set_result(False)
        )
        try:
            return await future
        finally:
            timer.cancel()
            self._waiters.pop(future, None)

    def check(self) -> None:
        """Evaluate all conditions. One that raises fails its own waiter only."""
        for future, condition in list(self._waiters.items()):
            try:
                is_true = not future.done() and condition()
            except Exception as error:
                future.set_exception(error)
            else:
                if is_true:
                    future.set_result(True)

    def close(self) -> None:
        """End all waiting."""
        self._closed = True
        for future in self._waiters:
            if not future.done():
                future.set_result(False)


logger = logging.getLogger(__name__)


class PeriodicTasks:
    """Runs from `add` to `stop`. A task that fails is logged, and runs again at its time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[str, Timer] = {}

    def add(
        self, name: str, interval_ms: int, work: Callable[[], object], *, first_after_ms: int | None = None
    ) -> None:
        """Call `work` every `interval_ms`, for the first time after `first_after_ms` if that is given. An interval of 0
        means once."""

        def run() -> None:
            if interval_ms > 0:
                self._timers[name] = self._clock.call_later(interval_ms, run)
            try:
                work()
            except Exception:
                logger.exception("%s failed; it will be tried again in %d ms", name, interval_ms)

        first_ms = interval_ms if first_after_ms is None else first_after_ms
        self._timers[name] = self._clock.call_later(first_ms, run)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
