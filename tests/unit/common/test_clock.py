"""Two clocks and timers: who is moved by what."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.common.clock import SystemClock, Timer
from tests.support.manual_clock import ManualClock


def test_time_that_passes_moves_both_clocks_and_the_wall_clock_can_be_set_by_itself() -> None:
    clock = ManualClock(now_ms=5_000)
    started_ms = clock.monotonic_ms()
    clock.advance(100)
    assert (clock.wall_ms(), clock.monotonic_ms() - started_ms) == (5_100, 100)
    clock.step_wall(-1_000)
    assert (clock.wall_ms(), clock.monotonic_ms() - started_ms) == (4_100, 100)


def test_timers_follow_the_monotonic_clock() -> None:
    clock = ManualClock()
    fired: list[str] = []
    clock.call_later(10, lambda: fired.append("second"))
    clock.call_later(5, lambda: fired.append("first"))
    clock.call_later(5, lambda: fired.append("never")).cancel()
    clock.step_wall(3_600_000)
    assert fired == []
    clock.step_wall(-7_200_000)
    clock.advance(10)
    assert fired == ["first", "second"]


def test_a_timer_sees_its_own_deadline_and_may_set_the_next() -> None:
    clock = ManualClock()
    started_ms = clock.monotonic_ms()
    seen: list[int] = []

    def tick() -> None:
        seen.append(clock.monotonic_ms() - started_ms)
        clock.call_later(10, tick)

    clock.call_later(10, tick)
    clock.advance(35)
    assert seen == [10, 20, 30]


class _Loop:
    def __init__(self) -> None:
        self.delays: list[float] = []

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        self.delays.append(delay)
        return ManualClock().call_later(0, callback)


def test_the_machines_monotonic_clock_never_goes_back_and_its_timers_never_have_a_negative_delay() -> None:
    loop = _Loop()
    clock = SystemClock(loop)
    shown = [clock.monotonic_ms() for _ in range(1_000)]
    assert shown == sorted(shown)
    clock.call_later(1_500, lambda: None)
    clock.call_later(-1, lambda: None)
    assert loop.delays == [1.5, 0.0]
