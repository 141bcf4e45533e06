"""Requests that wait for what ZooKeeper has: they share round trips, and its absence costs one of them a time-out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from kafkalite.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper
from kafkalite.zk.client.operations import Create, Unavailable
from kafkalite.zk.cluster.catch_up import LIMIT_MS, PAUSE_MS, CatchUp
from kafkalite.zk.cluster.zookeeper_metadata import ZooKeeperMetadata
from kafkalite.zk.znodes import znode_data, znode_paths
from tests.support.loop import idle, until
from tests.support.manual_clock import ManualClock
from tests.support.zk.visits import settings_for, visit


class Scene:
    """Round trips that end when a test says so, and requests that wait."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.round_trips: list[asyncio.Future[None]] = []
        self.catch_up = CatchUp(self.clock, self._round_trip)

    async def _round_trip(self) -> None:
        self.round_trips.append(asyncio.get_running_loop().create_future())
        await self.round_trips[-1]

    async def ask(self, count: int = 1) -> list[asyncio.Task[None]]:
        asked = [asyncio.ensure_future(self.catch_up.wait()) for _ in range(count)]
        await idle()
        return asked

    async def answer(self) -> None:
        self.round_trips[-1].set_result(None)
        await idle()

    async def lose(self) -> None:
        self.round_trips[-1].set_exception(Unavailable("the connection is lost"))
        await idle()

    async def advance(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)
        await idle()


def answered(asked: list[asyncio.Task[None]]) -> int:
    return sum(each.done() for each in asked)


def tell(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        scene = Scene()
        await story(scene)
        scene.catch_up.stop()
        await idle()
        assert len(asyncio.all_tasks()) == 1, "none is left"

    asyncio.run(run())


def test_requests_of_one_moment_share_a_round_trip() -> None:
    async def story(scene: Scene) -> None:
        asked = await scene.ask(100)
        assert len(scene.round_trips) == 1 and answered(asked) == 0
        await scene.answer()
        assert answered(asked) == 100 and len(scene.round_trips) == 1

    tell(story)


def test_requests_during_a_round_trip_wait_for_the_next() -> None:
    async def story(scene: Scene) -> None:
        first = await scene.ask()
        later = await scene.ask(50) + await scene.ask(50)
        assert len(scene.round_trips) == 1
        await scene.answer()
        assert answered(first) == 1 and answered(later) == 0, "a change after the first may be missing in its answer"
        later += await scene.ask()
        await scene.advance(PAUSE_MS - 1)
        assert len(scene.round_trips) == 1
        await scene.advance(1)
        assert len(scene.round_trips) == 2
        await scene.answer()
        assert answered(later) == 101 and len(scene.round_trips) == 2

    tell(story)


def test_without_an_answer_requests_wait_once() -> None:
    async def story(scene: Scene) -> None:
        first = await scene.ask()
        await scene.advance(LIMIT_MS - 1)
        second = await scene.ask()
        assert answered(first) == 0
        await scene.advance(1)
        assert answered(first) == answered(second) == 1, "the second has waited for 1 ms"
        assert answered(await scene.ask(10)) == 10, "nor do others wait"
        assert len(scene.round_trips) == 1
        await scene.answer()
        await scene.advance(PAUSE_MS)
        third = await scene.ask()
        assert answered(third) == 0 and len(scene.round_trips) == 2
        await scene.answer()
        assert answered(third) == 1

    tell(story)


def test_no_request_waits_longer_than_the_limit_for_two_round_trips() -> None:
    async def story(scene: Scene) -> None:
        first = await scene.ask()
        second = await scene.ask()
        await scene.advance(LIMIT_MS - 100)
        await scene.answer()
        assert answered(first) == 1
        await scene.advance(100)
        assert answered(second) == 1 and answered(await scene.ask()) == 1
        await scene.answer()
        assert answered(await scene.ask()) == 0

    tell(story)


def test_a_lost_connection_ends_the_wait() -> None:
    async def story(scene: Scene) -> None:
        asked = await scene.ask()
        await scene.lose()
        assert answered(asked) == 1
        await scene.advance(PAUSE_MS)
        assert answered(await scene.ask()) == 0 and len(scene.round_trips) == 2

    tell(story)


def test_after_a_time_out_only_an_answer_makes_requests_wait_again() -> None:
    async def story(scene: Scene) -> None:
        await scene.ask()
        await scene.advance(LIMIT_MS)
        await scene.lose()
        await scene.advance(PAUSE_MS)
        for number in (2, 3):
            assert answered(await scene.ask(10)) == 10 and len(scene.round_trips) == number
            await scene.lose()
            await scene.advance(PAUSE_MS)
        assert answered(await scene.ask()) == 1
        await scene.answer()
        await scene.advance(PAUSE_MS)
        assert answered(await scene.ask()) == 0 and len(scene.round_trips) == 5

    tell(story)


def test_a_request_that_is_cancelled_leaves_the_others_waiting() -> None:
    async def story(scene: Scene) -> None:
        asked = await scene.ask(2)
        asked[0].cancel()
        await idle()
        assert answered(asked) == 1
        await scene.answer()
        assert answered(asked) == 2 and not asked[1].cancelled()

    tell(story)


def test_a_stop_releases_all() -> None:
    async def story(scene: Scene) -> None:
        asked = await scene.ask() + await scene.ask()
        scene.catch_up.stop()
        await idle()
        assert answered(asked) == 2

    tell(story)


# -- of a broker, on a ZooKeeper that is slow or away

SETTING = {"log.cleaner.threads": "2"}


class Watching:
    """The metadata of a broker, and a session of another that changes a setting of its."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.zookeeper = InMemoryZooKeeper(self.clock)
        self.line = self.zookeeper.line()
        settings = settings_for("in-memory", dial=self.line.dial)
        self.metadata = ZooKeeperMetadata(settings, [directory], self.clock, broker_id=1)

    @property
    def has_setting(self) -> bool:
        return self.metadata.broker_configs.get("1") == SETTING

    async def change_elsewhere(self) -> None:
        async with visit("in-memory", dial=self.zookeeper.line().dial) as other:
            path = znode_paths.config(znode_paths.CONFIG_BROKERS, "1")
            await other.session.write([Create(path, znode_data.config_json(SETTING))])

    async def ask(self) -> asyncio.Task[None]:
        asked = asyncio.ensure_future(self.metadata.catch_up_with_others())
        await idle()
        return asked

    async def advance(self, delay_ms: int) -> None:
        for _ in range(delay_ms):
            self.clock.advance(1)
            await idle()


def watch(directory: Path, story: Callable[[Watching], Awaitable[None]]) -> None:
    async def run() -> None:
        watching = Watching(directory)
        await watching.metadata.start()
        try:
            await story(watching)
        finally:
            await watching.metadata.stop()

    asyncio.run(run())


def test_a_slow_zookeeper_is_waited_for(tmp_path: Path) -> None:
    async def story(watching: Watching) -> None:
        watching.line.delay_ms = 50, 50
        await watching.change_elsewhere()
        asked = await watching.ask()
        assert not watching.has_setting
        await watching.advance(LIMIT_MS // 2)
        assert asked.done() and watching.has_setting

    watch(tmp_path, story)


def test_a_silent_zookeeper_is_waited_for_once(tmp_path: Path) -> None:
    async def story(watching: Watching) -> None:
        watching.line.silence()
        await watching.change_elsewhere()
        asked = await watching.ask()
        await watching.advance(LIMIT_MS - 1)
        assert not asked.done()
        await watching.advance(1)
        assert asked.done() and (await watching.ask()).done() and not watching.has_setting
        watching.line.end_silence()
        await idle()
        assert watching.has_setting
        await watching.advance(PAUSE_MS)
        again = await watching.ask()
        assert again.done() and watching.metadata.session.is_connected

    watch(tmp_path, story)


def test_without_a_connection_nothing_is_waited_for(tmp_path: Path) -> None:
    async def story(watching: Watching) -> None:
        asked = await watching.ask()
        watching.line.cut()
        await watching.change_elsewhere()
        await until(lambda: not watching.metadata.session.is_connected)
        assert asked.done() and (await watching.ask()).done() and not watching.has_setting
        watching.line.mend()
        await until(lambda: watching.has_setting)

    watch(tmp_path, story)
