"""The lease of a session: as long as ZooKeeper cannot have ended it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.zk.client.operations import Unavailable
from kafkalite.zk.cluster.broker_lifecycle import SessionLease
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock

TIMEOUT_MS = 900


class Session:
    session_timeout_ms = TIMEOUT_MS

    def __init__(self) -> None:
        self.is_away = False
        self.answered = asyncio.Event()
        self.answered.set()

    async def sync(self) -> None:
        if self.is_away:
            raise Unavailable("away")
        await self.answered.wait()


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.session = Session()
        session: Any = self.session
        self.lease = SessionLease(session, self.clock)
        self.lease.begin()

    async def pass_ms(self, step_ms: int) -> bool:
        self.clock.advance(step_ms)
        await idle()
        return self.lease.is_held


def test_it_is_renewed_by_answers_and_counts_from_the_request() -> None:
    async def story() -> None:
        scene = Scene()
        assert not scene.lease.is_held
        assert [await scene.pass_ms(step) for step in (0, 300, 300, 300, 300)] == [True] * 5
        scene.session.answered.clear()
        assert await scene.pass_ms(300), "asked, and not answered yet"
        assert await scene.pass_ms(599)
        scene.session.answered.set()
        assert await scene.pass_ms(0), "answered in time"
        scene.session.is_away = True
        assert [await scene.pass_ms(step) for step in (300, 1)] == [True, False], (
            "asked 900 ms ago, answered 301 ms ago"
        )

    asyncio.run(story())


@pytest.mark.parametrize("returns", [True, False])
def test_without_an_answer_it_ends(returns: bool) -> None:
    async def story() -> None:
        scene = Scene()
        assert await scene.pass_ms(0)
        scene.session.is_away = True
        assert [await scene.pass_ms(step) for step in (300, 300, 299, 1)] == [True, True, True, False]
        scene.session.is_away = not returns
        assert await scene.pass_ms(300) is returns

    asyncio.run(story())


def test_a_process_that_stood_still_has_lost_it_before_it_hears_of_anything() -> None:
    async def story() -> None:
        scene = Scene()
        assert await scene.pass_ms(0)
        scene.clock.advance(0)
        scene.session.answered.clear()
        assert not await scene.pass_ms(TIMEOUT_MS)
        scene.lease.end()
        assert not await scene.pass_ms(300)

    asyncio.run(story())
