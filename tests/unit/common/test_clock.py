"""Two clocks, timers, and waits for a condition on the state in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafkalite.common.clock import ConditionWaiters, SystemClock, Timer, within
from tests.support.loop import idle
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


Story = Callable[[ConditionWaiters, ManualClock], Awaitable[None]]


def tell(story: Story) -> None:
    clock = ManualClock()
    asyncio.run(story(ConditionWaiters(clock), clock))


def test_a_condition_is_evaluated_at_once_and_after_each_change() -> None:
    async def story(waiters: ConditionWaiters, clock: ManualClock) -> None:
        known = {"a"}
        assert await waiters.until(lambda: "a" in known, clock.monotonic_ms())
        waiting = asyncio.create_task(waiters.until(lambda: "b" in known, clock.monotonic_ms() + 100))
        await asyncio.sleep(0)
        waiters.check()
        assert not waiting.done()
        known.add("b")
        waiters.check()
        assert await waiting

    tell(story)


def test_a_deadline_and_the_end_answer_no() -> None:
    async def story(waiters: ConditionWaiters, clock: ManualClock) -> None:
        late, ended = (
            asyncio.create_task(waiters.until(lambda: False, clock.monotonic_ms() + delay)) for delay in (100, 200)
        )
        await asyncio.sleep(0)
        clock.advance(100)
        assert not await late and not ended.done()
        waiters.close()
        assert not await ended
        assert not await waiters.until(lambda: False, clock.monotonic_ms() + 100)

    tell(story)


def test_a_condition_that_fails_fails_for_its_own_waiter() -> None:
    async def story(waiters: ConditionWaiters, clock: ManualClock) -> None:
        known: dict[str, bool] = {"good": False, "bad": False}
        bad, good = (
            asyncio.create_task(waiters.until(lambda name=name: known[name], clock.monotonic_ms() + 100))
            for name in ("bad", "good")
        )
        await asyncio.sleep(0)
        del known["bad"]
        known["good"] = True
        waiters.check()
        assert await good
        with pytest.raises(KeyError):
            await bad

    tell(story)


def test_work_within_its_time_has_its_result_and_late_work_is_cancelled() -> None:
    async def story() -> None:
        clock = ManualClock()
        done = asyncio.get_running_loop().create_future()

        async def work() -> str:
            return str(await done)

        quick = asyncio.ensure_future(within(clock, 100, work()))
        await idle()
        clock.advance(99)
        done.set_result("done")
        assert await quick == "done"

        late = asyncio.ensure_future(within(clock, 100, asyncio.Event().wait()))
        await idle()
        clock.advance(100)
        with pytest.raises(TimeoutError):
            await late

    asyncio.run(story())
