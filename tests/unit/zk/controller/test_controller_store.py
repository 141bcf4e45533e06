"""The controller's writes on a real ZooKeeper: who is elected, what fencing keeps out, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from kafkalite.zk.client.operations import Create, Delete, Operation, SetData, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.controller.controller_store import ControllerMoved, ControllerStore, Step, elect, removals
from kafkalite.zk.znodes import znode_data, znode_paths
from tests.support.controller_members import Place, topic
from tests.unit.zk.controller.conftest import Tell


@asynccontextmanager
async def session(place: Place) -> AsyncIterator[ZooKeeperSession]:
    settings = ZooKeeperConfig(connect=place.connect, session_timeout_ms=6000)
    one = ZooKeeperSession(settings, on_change=lambda changed: None, on_state=lambda connection: None)
    await one.start()
    await one.make_paths(znode_paths.PERSISTENT)
    try:
        yield one
    finally:
        await one.stop()


async def elected(of: ZooKeeperSession, broker_id: int) -> ControllerStore:
    store = await elect(of, broker_id, znode_data.controller_json(broker_id, 0))
    assert store is not None
    return store


def makes(path: str) -> Step:
    return Step((Create(path),))


def test_one_of_those_who_try_at_once_wins(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one, session(place) as two, session(place) as three:
            candidates = {1: one, 2: two, 3: three}
            elections = [
                elect(each, number, znode_data.controller_json(number, 0)) for number, each in candidates.items()
            ]
            won = [store for store in await asyncio.gather(*elections) if store is not None]
            assert [store.epoch for store in won] == [1]

    tell(story)


def test_a_claim_whose_answer_was_lost_is_found_by_the_next(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one, session(place) as two:
            write = one.write

            async def deaf(operations: Sequence[Operation]) -> list[str]:
                await write(operations)
                if len(operations) == 2:
                    raise Unavailable("no answer")
                return []

            one.write = deaf  # type: ignore[method-assign]
            with pytest.raises(Unavailable):
                await elected(one, 1)
            one.write = write  # type: ignore[method-assign]
            assert await elect(two, 2, b"{}") is None
            store = await elected(one, 1)
            assert store.epoch == 1
            assert await store.write([makes("/made")]) == []

    tell(story)


def test_what_another_session_of_the_same_broker_holds_is_not_ours(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as old, session(place) as new:
            await elected(old, 1)
            assert await elect(new, 1, znode_data.controller_json(1, 0)) is None

    tell(story)


def test_a_former_controller_writes_nothing_and_takes_nothing_away(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one, session(place) as two:
            former = await elected(one, 1)
            await two.write([Delete(znode_paths.CONTROLLER)])
            assert (await elected(two, 2)).epoch == 2
            with pytest.raises(ControllerMoved):
                await former.write([makes("/made")])
            await former.resign()
            made, controller = await two.read(["/made", znode_paths.CONTROLLER])
            assert made is None
            assert controller is not None and znode_data.parse_controller(controller.data) == 2

    tell(story)


def test_what_is_refused_does_not_keep_back_the_rest(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one:
            store = await elected(one, 1)
            stale = Step((Create("/half"), SetData(znode_paths.FEATURE, b"", 7)))
            double = makes("/a")
            assert await store.write([makes("/a"), stale, makes("/b"), double, makes("/c")]) == [stale, double]
            there = await one.read(["/a", "/b", "/c", "/half"])
            assert [node is not None for node in there] == [True, True, True, False]

    tell(story)


def test_a_controller_whose_view_is_altogether_stale_is_refused_soon(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one:
            store = await elected(one, 1)
            steps = removals(f"/nothing-{number}" for number in range(500))
            assert sorted(await store.write(steps)) == sorted(steps)

    tell(story)


def test_more_than_zookeeper_takes_at_once_goes_in_pieces(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one:
            store = await elected(one, 1)
            large = [Step((Create(f"/large-{number}", b"x" * 100_000),)) for number in range(25)]
            assert await store.write(large) == []
            await one.write(topic("orders", [(1,)] * 2000))
            states = {("orders", number): b"{}" for number in range(2000)}
            assert await store.write(await store.creations(states)) == []
            assert await store.write(await store.creations({("orders", 2000): b"{}"})) == []
            found = await one.read([znode_paths.state("orders", number) for number in range(2001)])
            assert None not in found
            await one.write([Create(znode_paths.delete_topic("orders"))])
            assert await store.write(await store.deletions(["orders", "nobody's"])) != []  # nobody asked for that
            assert await one.children([znode_paths.TOPICS, znode_paths.DELETE_TOPICS]) == [[], []]

    tell(story)


def test_every_deletion_is_counted(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one:
            store = await elected(one, 1)
            for count in (1, 2):
                await one.write(topic("orders", [(1,)]))
                await one.write([Create(znode_paths.delete_topic("orders"))])
                assert await store.write(await store.deletions(["orders"])) == []
                (counter,) = await one.read([znode_paths.TOPIC_DELETIONS])
                assert counter is not None and counter.version == count and counter.data == b""

    tell(story)


def test_an_order_is_not_taken_down_when_its_topic_has_been_made_since(tell: Tell) -> None:
    async def story(place: Place) -> None:
        async with session(place) as one:
            store = await elected(one, 1)
            await one.write([Create(znode_paths.delete_topic("orders"))])
            of_nothing = await store.deletions(["orders"])
            await one.write(topic("orders", [(1,)]))
            assert await store.write(of_nothing) == of_nothing
            assert await one.children([znode_paths.TOPICS, znode_paths.DELETE_TOPICS]) == [["orders"], ["orders"]]
            assert await store.write(await store.deletions(["orders"])) == []
            await one.write([Create(znode_paths.delete_topic("orders"))])
            assert await store.write(await store.deletions(["orders"])) == []
            assert await one.children([znode_paths.TOPICS, znode_paths.DELETE_TOPICS]) == [[], []]

    tell(story)
