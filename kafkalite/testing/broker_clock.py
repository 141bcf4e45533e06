"""The clock of a broker for tests, which can be advanced and frozen: `broker.clock`.

    broker.clock.advance(days=8)        # retention, expiry and timeouts that fall due in that time have happened
    broker.clock.freeze()               # time stands still until `resume`, except by `advance`

Until then it follows the process's date, which a test may freeze or set with freezegun or time-machine, and the
machine's time for waits. Clients have clocks of their own, which do not advance: a consumer that is to stay in its
group across a session timeout has to send a heartbeat in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from kafkalite.common.clock import date_ms, monotonic_ms

STEPS_MAX = 100
"""The most steps of an `advance`, which go from timer to timer: of two timers that are less than a hundredth of it
apart, the second fires late."""

_TURNS = 8  # turns of the loop, in which a timer's tasks wake each other
_PAUSE_S = 0.001  # between polls of work that other threads do
_POLLS_MAX = 10_000
_UNITS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
_LAST_MS = round(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1000


class _Timer:
    __slots__ = ("_clock", "callback", "due_ms", "handle")

    def __init__(self, clock: BrokerClock, due_ms: float, callback: Callable[[], None]) -> None:
        self._clock = clock
        self.due_ms = due_ms
        self.callback = callback
        self.handle: asyncio.Handle | None = None

    def cancel(self) -> None:
        self._clock._forget(self)

    def fire(self) -> None:
        self._clock._forget(self)
        self.callback()


class BrokerClock:
    """A `Clock` that belongs to the loop of its broker. `is_busy`: whether other threads work for the broker, for which
    an `advance` waits."""

    def __init__(self, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._is_busy = is_busy
        self._timers: dict[_Timer, None] = {}
        self._ahead_ms = 0  # of the machine's clocks
        self._wall_ahead_ms = 0  # of the machine's wall clock, besides
        self._stands_at: tuple[int, int] | None = None  # both clocks of the machine, while frozen

    # as any clock

    def wall_ms(self) -> int:
        return self._machine()[1] + self._ahead_ms + self._wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self._machine()[0] + self._ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(self, self.monotonic_ms() + max(0.0, delay_ms), callback)
        self._timers[timer] = None
        self._arm(timer)
        return timer

    def _machine(self) -> tuple[int, int]:
        return self._stands_at or (monotonic_ms(), date_ms())

    def _forget(self, timer: _Timer) -> None:
        self._timers.pop(timer, None)
        if timer.handle is not None:
            timer.handle.cancel()
            timer.handle = None

    def _arm(self, timer: _Timer) -> None:
        left_ms = timer.due_ms - self.monotonic_ms()
        loop = asyncio.get_running_loop()
        if left_ms <= 0:
            timer.handle = loop.call_soon(timer.fire)
        elif self._stands_at is None:
            timer.handle = loop.call_later(left_ms / 1000, timer.fire)

    def _arm_all(self) -> None:
        for timer in list(self._timers):
            if timer.handle is not None:
                timer.handle.cancel()
                timer.handle = None
            self._arm(timer)

    def forget_timers(self) -> None:
        """Drops the timers of an earlier start of the broker."""
        self._timers.clear()

    # for tests

    @property
    def now(self) -> datetime:
        """The broker's wall clock, in UTC."""
        return datetime.fromtimestamp(self.wall_ms() / 1000, UTC)

    @property
    def is_frozen(self) -> bool:
        return self._stands_at is not None

    def freeze(self) -> None:
        """Freeze time. Timers fire when `advance` reaches them."""
        if self._stands_at is None:
            self._stands_at = self._machine()
            self._arm_all()

    def resume(self) -> None:
        """Let time continue from the frozen moment."""
        if self._stands_at is not None:
            before, self._stands_at = self._stands_at, None
            now = self._machine()
            self._ahead_ms -= now[0] - before[0]
            self._wall_ahead_ms -= (now[1] - before[1]) - (now[0] - before[0])
            self._arm_all()

    def set(self, moment: datetime) -> None:
        """Set the date, also back, as an administrator would: no timer fires for that. Raises ValueError,
        TypeError."""
        if not isinstance(moment, datetime):
            raise TypeError(f"the date is a datetime, not {moment!r}")
        if moment.tzinfo is None:
            raise ValueError("give the date with its time zone, as in datetime(2030, 1, 1, tzinfo=UTC)")
        self._wall_ahead_ms += round(moment.timestamp() * 1000) - self.wall_ms()

    def reset(self) -> None:
        """Follow the machine's date again. For timers time never goes back."""
        self.resume()
        self._wall_ahead_ms = -self._ahead_ms

    async def advance(self, /, delta: timedelta | float | None = None, **units: float) -> None:
        """Let time pass: `advance(days=8)`, `advance(minutes=5, seconds=1)`, a timedelta, or seconds. Work that falls
        due is done when this returns, also by the cleaner and by timers set meanwhile. Raises ValueError if it is
        negative or goes beyond the year 9999, TypeError for an unknown unit."""
        forward_ms = _milliseconds(delta, units)
        if self.wall_ms() + forward_ms > _LAST_MS:
            raise ValueError(f"it is {self.now:%Y-%m-%d}, and the broker's time ends with the year 9999")
        end_ms = self.monotonic_ms() + forward_ms
        step_ms = (end_ms - self.monotonic_ms()) // STEPS_MAX
        was_frozen = self.is_frozen
        self.freeze()
        try:
            await self._run_due_tasks()
            while (due_ms := self._next_due_ms()) <= end_ms:
                self._go_to(min(end_ms, max(int(due_ms), self.monotonic_ms() + step_ms)))
                await self._run_due_tasks()
            self._go_to(end_ms)
        finally:
            if not was_frozen:
                self.resume()

    def _next_due_ms(self) -> float:
        return min((timer.due_ms for timer in self._timers), default=float("inf"))

    def _go_to(self, now_ms: int) -> None:
        """Fire the timers that are due then, in the order of their deadlines."""
        self._ahead_ms += max(0, now_ms - self.monotonic_ms())
        for timer in sorted((timer for timer in self._timers if timer.due_ms <= now_ms), key=lambda one: one.due_ms):
            if timer in self._timers:  # no earlier one has cancelled it
                timer.fire()

    async def _run_due_tasks(self) -> None:
        """Let the loop run the tasks that the timers have started."""
        quiet = 0
        for _ in range(_POLLS_MAX):
            if self._is_busy():
                quiet = 0
                await asyncio.sleep(_PAUSE_S)
                continue
            quiet = 0 if self._next_due_ms() <= self.monotonic_ms() else quiet + 1
            if quiet == _TURNS:
                return
            await asyncio.sleep(0)


def _milliseconds(delta: timedelta | float | None, units: dict[str, float]) -> int:
    unknown = units.keys() - _UNITS
    if unknown:
        raise TypeError(f"no unit is named {', '.join(map(repr, sorted(unknown)))}; there are {', '.join(_UNITS)}")
    try:
        given = delta if isinstance(delta, timedelta) else timedelta(seconds=delta or 0)
        total_ms = round((given + timedelta(**units)) / timedelta(milliseconds=1))
    except OverflowError as error:
        raise ValueError(f"that is too long: {error}") from None
    if total_ms < 0:
        raise ValueError("time goes forward only; the date can be set back: clock.set")
    return total_ms
