"""Waiting until something in memory is true, or until a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafkalite.common.condition_waiters import ConditionWaiters
from tests.support.manual_clock import ManualClock

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
        waiters.look()
        assert not waiting.done()
        known.add("b")
        waiters.look()
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
        waiters.look()
        assert await good
        with pytest.raises(KeyError):
            await bad

    tell(story)
