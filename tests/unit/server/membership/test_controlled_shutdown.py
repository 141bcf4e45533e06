"""The hand-over of leadership before a stop."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.common.names import random_uuid
from kafkalite.metadata.cluster_metadata import PartitionRecord, TopicRecord
from kafkalite.server.membership.cluster_member import hand_over
from tests.support.in_memory_cluster import InMemoryCluster, InMemoryMetadata
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock

TIMEOUT_MS = 15_000


class Scene:
    """Brokers 1 to 3, and the partitions of one topic; nobody is elected but by the story."""

    def __init__(self, *partitions: tuple[tuple[int, ...], int]) -> None:
        self.clock = ManualClock()
        self.cluster = InMemoryCluster(elects=False)
        self.members = {broker: self.cluster.metadata(broker) for broker in (1, 2, 3)}
        states = {
            index: PartitionRecord(replicas, leader, 0, (leader,), 0)
            for index, (replicas, leader) in enumerate(partitions)
        }
        self.cluster.topics["orders"] = TopicRecord("orders", random_uuid(), states, {})

    async def begin(self, *brokers: int) -> asyncio.Task[None]:
        """Broker 1 begins to stop, in a cluster of these."""
        for broker in brokers:
            await self.members[broker].register((), None)
        stopping = asyncio.ensure_future(hand_over(self.members[1], 1, self.clock, TIMEOUT_MS))
        await self.turns()
        return stopping

    async def turns(self) -> None:
        await idle()

    @property
    def one(self) -> InMemoryMetadata:
        return self.members[1]


def test_a_broker_waits_until_others_lead_what_they_have() -> None:
    async def story() -> None:
        scene = Scene(((1, 2), 1), ((1,), 1), ((2, 1), 2), ((3, 1), 1))
        stopping = await scene.begin(1, 2, 3)
        assert scene.cluster.brokers[1].stopping and not stopping.done()
        scene.cluster.lead("orders", 0, 2)
        await scene.turns()
        assert not stopping.done()
        scene.cluster.lead("orders", 3, 3)
        await asyncio.wait_for(stopping, 10)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("partitions", "is_announced"),
    [
        ([((1,), 1)], False),  # nobody else has it
        ([((2, 3), 2)], False),  # not its own
        ([((2, 1), 2)], True),  # leaders need not wait for it any more
        ([((1, 3), 1)], True),  # the other one is away
    ],
)
def test_a_broker_without_heirs_stops_at_once(
    partitions: list[tuple[tuple[int, ...], int]], is_announced: bool
) -> None:
    async def story() -> None:
        scene = Scene(*partitions)
        stopping = await scene.begin(1, 2)
        assert stopping.done() and scene.cluster.brokers[1].stopping is is_announced

    asyncio.run(story())


def test_the_last_of_several_that_stop_does_not_wait_for_the_others() -> None:
    async def story() -> None:
        scene = Scene(((1, 2), 1))
        stopping = await scene.begin(1, 2)
        assert not stopping.done()
        await scene.members[2].begin_to_stop()
        await asyncio.wait_for(stopping, 10)

    asyncio.run(story())


def test_patience_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        scene = Scene(((1, 2), 1))
        stopping = await scene.begin(1, 2)
        scene.clock.advance(TIMEOUT_MS - 1)
        await scene.turns()
        assert not stopping.done()
        scene.clock.advance(1)
        await asyncio.wait_for(stopping, 10)

    asyncio.run(story())
    assert "1 partitions are still led here" in caplog.text


def test_a_broker_that_loses_its_session_meanwhile_has_nothing_to_hand_over() -> None:
    async def story() -> None:
        scene = Scene(((1, 2), 1))
        stopping = await scene.begin(1, 2)
        scene.one.fence("it was away")
        await asyncio.wait_for(stopping, 10)

    asyncio.run(story())
