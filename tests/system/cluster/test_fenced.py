"""Three brokers on a real ZooKeeper, each over a wire of its own that can be cut: who leads, and who gives way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.metadata.cluster_metadata import RegistrationState
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.wait import DEADLINE_S
from tests.support.zookeeper import Cut, ZooKeeper

Story = Callable[[ThreeBrokers, dict[int, Cut]], Awaitable[None]]
T = "orders"


@pytest.fixture
def tell(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> Callable[[Story], None]:
    def tell(story: Story) -> None:
        async def life() -> None:
            with contextlib.ExitStack() as stack:
                wires = {number: stack.enter_context(Cut(zookeeper.connect)) for number in IDS}
                own = {number: {"zookeeper_connect": wires[number].connect + chroot} for number in IDS}
                async with three_brokers("", tmp_path, own, zookeeper_session_timeout_ms=1_000) as cluster:
                    try:
                        await cluster.until(lambda: all(len(cluster.metadata(each).brokers) == 3 for each in IDS))
                        await cluster.create(T, 3)
                        await story(cluster, wires)
                    finally:
                        for wire in wires.values():
                            wire.mend()

        asyncio.run(life())

    return tell


def standing(cluster: ThreeBrokers, number: int) -> RegistrationState:
    found = cluster.metadata(number).registration_state
    assert isinstance(found, RegistrationState)
    return found


def index_led_by(cluster: ThreeBrokers, number: int) -> int:
    return next(index for index, leader in cluster.leaders(T).items() if leader == number)


def test_one_who_is_apart_gives_way_and_whoever_waits_there_is_told(tell):
    async def story(cluster, wires):
        index = index_led_by(cluster, 3)
        assert (await cluster.produce(3, T, index)).error_code == 0
        epoch = cluster.topics(3).partition(T, index).leader_epoch
        wanted = FetchPartition(partition=index, fetch_offset=1, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=T, partitions=[wanted])]
        )
        parked = asyncio.ensure_future(cluster.ask(3, request, 11))
        wires[3].cut()
        await cluster.until(lambda: standing(cluster, 3) is RegistrationState.DISCONNECTED)
        assert (await cluster.fetch(3, T, index)).error_code == 0
        await cluster.until(lambda: standing(cluster, 3) is RegistrationState.FENCED)
        answer = await asyncio.wait_for(parked, DEADLINE_S)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused = await cluster.produce(3, T, index)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        wires[3].mend()
        await cluster.until(lambda: cluster.is_led(T, 3))
        assert (await cluster.produce(3, T, index)).base_offset == 1
        assert cluster.topics(3).partition(T, index).leader_epoch > epoch

    tell(story)


def test_when_zookeeper_is_away_for_all_nobody_gives_way_to_one_who_knew_less(tell):
    """Broker 1 lost ZooKeeper before broker 3 came, so it has it not in its list."""

    async def story(cluster, wires):
        index = index_led_by(cluster, 3)
        await cluster.stop(3)
        await cluster.until(lambda: 3 not in cluster.metadata(1).brokers)
        wires[1].cut()
        await cluster.until(lambda: standing(cluster, 1) is RegistrationState.DISCONNECTED)
        await cluster.until(lambda: 1 not in cluster.metadata(2).brokers)  # and is the controller
        await cluster.start(3)
        await cluster.until(lambda: 3 in cluster.metadata(2).brokers)
        asked = []
        fencing = cluster.server(3)._member._fencing
        find_witness = fencing._find_witness

        async def ask():
            witness = await find_witness()
            asked.append(witness)
            return witness

        fencing._find_witness = ask
        wires[2].cut()
        wires[3].cut()
        await cluster.until(lambda: len(asked) == 2)
        assert asked == [None, None] and standing(cluster, 3) is RegistrationState.DISCONNECTED
        assert (await cluster.produce(3, T, index)).error_code == 0

    tell(story)
