"""Notifications of changed ISRs for others: together, after quiet seconds, and never too late."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from kafkalite.zk.client.operations import Create, Unavailable
from kafkalite.zk.cluster.isr_writes import IsrChangeNotification
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.written: list[Create] = []
        self.is_away = False
        self.notification = IsrChangeNotification(self, self.clock)  # type: ignore[arg-type]

    async def write(self, operations: Sequence[Create]) -> list[str]:
        if self.is_away:
            raise Unavailable
        self.written += operations
        return [""]

    async def pass_s(self, seconds: int) -> None:
        """In ticks of half a second, each followed by what the loop has to do."""
        for _ in range(2 * seconds):
            self.clock.advance(500)
            await idle()

    def told(self) -> list[list[tuple[str, int]]]:
        found = [json.loads(each.data)["partitions"] for each in self.written]
        return [[(row["topic"], row["partition"]) for row in rows] for rows in found]


def test_changes_of_some_seconds_go_into_one_node():
    async def story():
        world = World()
        world.notification.add(("t", 1))
        await world.pass_s(4)
        world.notification.add(("t", 0))
        world.notification.add(("t", 1))
        await world.pass_s(4)
        assert not world.written, "it is not quiet yet"
        await world.pass_s(4)
        assert world.told() == [[("t", 1), ("t", 0)]]
        (node,) = world.written
        assert node.path == "/isr_change_notification/isr_change_" and node.sequential and not node.ephemeral
        assert node.data == b'{"version":1,"partitions":[{"topic":"t","partition":1},{"topic":"t","partition":0}]}'
        await world.pass_s(120)
        assert len(world.written) == 1

    asyncio.run(story())


def test_without_quiet_it_is_told_after_a_minute():
    async def story():
        world = World()
        for second in range(59):
            world.notification.add(("t", second))
            await world.pass_s(1)
        assert not world.written
        for second in range(59, 66):
            world.notification.add(("t", second))
            await world.pass_s(1)
        assert len(world.written) == 1

    asyncio.run(story())


def test_nothing_is_lost_while_zookeeper_is_away():
    async def story():
        world = World()
        world.is_away = True
        world.notification.add(("t", 1))
        await world.pass_s(10)
        world.notification.add(("t", 2))
        world.is_away = False
        await world.pass_s(10)
        assert sorted(key for node in world.told() for key in node) == [("t", 1), ("t", 2)]

    asyncio.run(story())


def test_many_are_told_in_nodes_that_zookeeper_takes_and_none_after_the_stop():
    async def story():
        world = World()
        for number in range(5_000):
            world.notification.add(("t", number))
        await world.pass_s(10)
        assert [len(keys) for keys in world.told()] == [2_000, 2_000, 1_000]
        world.notification.add(("t", 1))
        world.notification.stop()
        await world.pass_s(10)
        assert len(world.written) == 3

    asyncio.run(story())
