"""A log is deleted only when somebody ordered it: what vanishes from ZooKeeper, or is written there by half, costs no
records. Three brokers on a real ZooKeeper, and somebody with a shell for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafkalite.common.names import format_uuid
from kafkalite.zk.client.operations import Create, Delete, SetData
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.znodes import znode_paths
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.zk.visits import visit
from tests.support.zookeeper import ZooKeeper

Story = Callable[[ThreeBrokers, "Hand"], Awaitable[None]]
T = "orders"


class Hand:
    """A client that changes nodes at will."""

    def __init__(self, session: ZooKeeperSession, directory: Path) -> None:
        self.session = session
        self._directory = directory

    async def remove(self, root: str) -> None:
        """deleteall, at once: else the controller would put some of it there again meanwhile."""
        await self.session.write([Delete(path) for path in reversed(await self._tree(root))])

    async def _tree(self, root: str) -> list[str]:
        (names,) = await self.session.children([root])
        return [root, *[path for name in names or () for path in await self._tree(f"{root}/{name}")]]

    async def change(self, path: str, change: Callable[[dict[str, object]], object]) -> None:
        (node,) = await self.session.read([path])
        assert node is not None
        value = json.loads(node.data)
        change(value)
        await self.session.write([SetData(path, json.dumps(value).encode())])

    def logs(self, suffix: str, name: str = T) -> int:
        """How many directories of the topic's logs end like this, on all brokers; with "" those that are served."""
        found = [each.name for number in IDS for each in (self._directory / f"broker-{number}").glob(f"{name}-*")]
        return sum(each.endswith(suffix) if suffix else "." not in each for each in found)


@pytest.fixture
def tell(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> Callable[[Story], None]:
    def tell(story: Story) -> None:
        async def life() -> None:
            connect = zookeeper.connect + chroot
            async with three_brokers(connect, tmp_path) as cluster, visit(connect) as visitor:
                await cluster.until(lambda: all(len(cluster.metadata(each).brokers) == 3 for each in IDS))
                await cluster.create(T, 3)
                assert sorted(cluster.leaders(T).values()) == list(IDS)
                for index, leader in cluster.leaders(T).items():
                    assert (await cluster.produce(leader, T, index)).error_code == 0
                await story(cluster, Hand(visitor.session, tmp_path))

        asyncio.run(life())

    return tell


async def all_is_there(cluster: ThreeBrokers, name: str = T) -> None:
    """Each partition is led and has its one record."""
    await cluster.until(lambda: cluster.is_led(name, 3))
    for index, leader in cluster.leaders(name).items():
        assert (await cluster.fetch(leader, name, index)).high_watermark == 1


def is_gone(cluster: ThreeBrokers, name: str = T) -> bool:
    return all(name not in cluster.topics(number).by_name for number in cluster.crowds)


async def stop_all(cluster: ThreeBrokers) -> None:
    for number in IDS:
        await cluster.stop(number)


async def start_all(cluster: ThreeBrokers, *order: int) -> None:
    for number in order or IDS:
        await cluster.start(number)


def test_what_somebody_orders_to_be_deleted_is(tell):
    async def story(cluster, hand):
        await hand.session.write([Create(znode_paths.delete_topic(T))])
        await cluster.until(lambda: is_gone(cluster))
        assert (hand.logs("-delete"), hand.logs("-stray"), hand.logs("")) == (3, 0, 0)

    tell(story)


def test_what_vanishes_is_kept(tell, caplog):
    async def story(cluster, hand):
        deleted = []
        cluster.topics(1).when_deleted.subscribe(deleted.append)
        await hand.remove(znode_paths.topic(T))
        await cluster.until(lambda: is_gone(cluster))
        assert (hand.logs("-delete"), hand.logs("-stray"), hand.logs("")) == (0, 3, 0)
        assert not deleted and "its deletion was not requested" in caplog.text

    tell(story)


def test_a_topic_made_anew_after_that_can_be_deleted_and_no_order_outlives_its_topic(tell):
    async def story(cluster, hand):
        for _ in range(2):
            await cluster.topic_admin(2).delete(T)
            await cluster.until(lambda: is_gone(cluster) and T not in cluster.metadata(3).view.deletions)
            await cluster.create(T, 3, at=3)
        assert (hand.logs("-delete"), hand.logs("-stray"), hand.logs("")) == (6, 0, 3)
        assert [T in cluster.metadata(number).lifecycle.reader.ordered for number in IDS] == [False] * 3
        await hand.remove(znode_paths.topic(T))
        await cluster.until(lambda: is_gone(cluster))
        assert (hand.logs("-delete"), hand.logs("-stray"), hand.logs("")) == (6, 3, 0)

    tell(story)


def test_an_order_that_is_taken_back_counts_no_more(tell):
    async def story(cluster, hand):
        await cluster.stop(3)
        await hand.session.write([Create(znode_paths.delete_topic(T))])
        await cluster.until(lambda: all(T in cluster.metadata(each).lifecycle.reader.ordered for each in (1, 2)))
        await hand.session.write([Delete(znode_paths.delete_topic(T))])
        await cluster.until(lambda: not any(T in cluster.metadata(each).lifecycle.reader.ordered for each in (1, 2)))
        await cluster.start(3)
        await all_is_there(cluster)
        await hand.remove(znode_paths.topic(T))
        await cluster.until(lambda: is_gone(cluster))
        assert (hand.logs("-delete"), hand.logs("-stray")) == (0, 3)

    tell(story)


def test_deleted_while_a_broker_is_away_it_goes_when_that_returns(tell):
    async def story(cluster, hand):
        await cluster.stop(2)
        await hand.session.write([Create(znode_paths.delete_topic(T))])
        await cluster.until(lambda: T in cluster.metadata(1).view.deletions)
        await cluster.start(2)
        await cluster.until(lambda: is_gone(cluster))
        assert (hand.logs("-delete"), hand.logs("-stray"), hand.logs("")) == (3, 0, 0)

    tell(story)


def test_an_id_that_a_tool_leaves_out_comes_back(tell):
    async def story(cluster, hand):
        before = cluster.metadata(1).topics[T].topic_id
        await hand.change(znode_paths.topic(T), lambda topic: topic.pop("topic_id"))
        views = [cluster.metadata(each).view for each in IDS]
        await cluster.until(lambda: all(view.node(znode_paths.topic(T)).version == 2 for view in views))
        (node,) = await hand.session.read([znode_paths.topic(T)])
        assert json.loads(node.data)["topic_id"] == format_uuid(before)
        await all_is_there(cluster)

    tell(story)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1)])
def test_an_id_that_is_left_out_while_nobody_runs_comes_back(tell, order):
    async def story(cluster, hand):
        before = cluster.metadata(1).topics[T].topic_id
        await cluster.topic_admin(1).change_overrides(T, lambda _: {"retention.ms": "86400001"})
        await stop_all(cluster)
        await hand.change(znode_paths.topic(T), lambda topic: topic.pop("topic_id"))
        await start_all(cluster, *order)
        assert cluster.metadata(1).topics[T].topic_id == before
        await all_is_there(cluster)
        logs = [cluster.topics(leader).partition(T, index).log for index, leader in cluster.leaders(T).items()]
        assert [log.config.retention_ms for log in logs] == [86_400_001] * 3
        assert hand.logs("-stray") == 0

    tell(story)


def test_one_who_has_nothing_of_a_topic_gives_it_no_id(tell):
    async def story(cluster, hand):
        await cluster.create("single", 1)
        (leader,) = cluster.leaders("single").values()
        before = cluster.metadata(1).topics["single"].topic_id
        await cluster.produce(leader, "single", 0)
        await stop_all(cluster)
        await hand.change(znode_paths.topic("single"), lambda topic: topic.pop("topic_id"))
        others = [number for number in IDS if number != leader]
        await start_all(cluster, *others)
        assert all("single" not in cluster.metadata(number).topics for number in others)
        await cluster.start(leader)
        assert cluster.metadata(leader).topics["single"].topic_id == before
        await cluster.until(lambda: cluster.is_led("single", 1))
        assert (await cluster.fetch(leader, "single", 0)).high_watermark == 1

    tell(story)


def test_topics_of_before_there_were_ids_get_one(tell, tmp_path):
    async def story(cluster, hand):
        await stop_all(cluster)
        await hand.change(znode_paths.topic(T), lambda topic: topic.pop("topic_id"))
        for metadata in tmp_path.glob(f"*/{T}-*/partition.metadata"):
            metadata.unlink()
        await start_all(cluster)
        await all_is_there(cluster)
        topic_id = cluster.metadata(1).topics[T].topic_id
        kept = [each.read_text() for each in tmp_path.glob(f"*/{T}-*/partition.metadata")]
        assert len(kept) == 3 and all(format_uuid(topic_id) in text for text in kept)

    tell(story)


@pytest.mark.parametrize("nonsense", [b"", b'{"version":3}', b'{"partitions":{"1":[1]}}'])
def test_nonsense_in_a_topics_node_takes_nothing_away_and_is_forgotten_when_mended(tell, nonsense):
    async def story(cluster, hand):
        (good,) = await hand.session.read([znode_paths.topic(T)])
        await hand.session.write([SetData(znode_paths.topic(T), nonsense)])
        version = good.version + 1
        await cluster.until(
            lambda: all(cluster.metadata(each).view.node(znode_paths.topic(T)).version == version for each in IDS)
        )
        await all_is_there(cluster)
        await cluster.stop(2)
        await cluster.start(2)
        assert hand.logs("-stray") + hand.logs("-delete") == 0
        assert [log.config.retention_ms for log in cluster.server(2).logs.logs.values() if log.topic == T] == [-1]
        await hand.session.write([SetData(znode_paths.topic(T), good.data)])
        await all_is_there(cluster)
        assert cluster.topics(2).by_name[T].config.retention_ms > 0
        assert all(
            partition.log.config.retention_ms > 0 for partition in cluster.topics(2).by_name[T].partitions.values()
        )

    tell(story)


def test_a_state_that_vanishes_comes_back_with_a_later_epoch(tell):
    async def story(cluster, hand):
        leader, path = cluster.leaders(T)[0], znode_paths.state(T, 0)
        await hand.change(path, lambda state: state.update(leader_epoch=7))
        await cluster.until(lambda: cluster.topics(leader).partition(T, 0).leader_epoch == 7)
        # the controller, too: one that has not seen this epoch goes on from the one before it
        await cluster.until(
            lambda: all(cluster.metadata(each).topics[T].partitions[0].leader_epoch == 7 for each in IDS)
        )
        await hand.session.write([Delete(path)])
        await cluster.until(lambda: (led := cluster.topics(leader).partition(T, 0)) and led.leader_epoch == 8)
        await all_is_there(cluster)

    tell(story)


@pytest.mark.parametrize("nonsense", [b"", b"{", b'{"leader":"x"}'])
def test_nonsense_in_a_state_makes_nobody_resign_and_is_forgotten_when_mended(tell, nonsense):
    async def story(cluster, hand):
        path = znode_paths.state(T, 0)
        (good,) = await hand.session.read([path])
        await hand.session.write([SetData(path, nonsense)])
        version = good.version + 1
        await cluster.until(lambda: all(cluster.metadata(each).view.node(path).version == version for each in IDS))
        await all_is_there(cluster)
        moved = json.loads(good.data)
        moved["leader_epoch"] += 4
        await hand.session.write([SetData(path, json.dumps(moved).encode())])
        leader = moved["leader"]
        await cluster.until(lambda: cluster.topics(leader).partition(T, 0).leader_epoch == moved["leader_epoch"])

    tell(story)
