"""A ZooKeeper that has lost its data, or never had them: a start with --adopt brings what the directories hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.server.broker import Broker
from tests.support.three_brokers import three_brokers
from tests.support.zookeeper import ZooKeeper


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_dir()}


def test_topics_that_zookeeper_does_not_know_are_made_there(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        settings: dict[str, Any] = {
            "zookeeper_connect": zookeeper.connect + chroot,
            "data_dir": tmp_path / "data",
            "port": 0,
        }
        async with Broker(**settings) as broker:  # its number is made up, and above what may be configured
            topic = await broker._require().topic_admin.create("orders", 3, {})
            assert topic is not None
        settings["zookeeper_connect"] += "-lost"
        with pytest.raises(ConfigError, match="start with --adopt"):
            await Broker(**settings).start()
        for adopt in (True, False):
            async with Broker(**settings, adopt=adopt) as broker:
                assert (broker.adopted is not None) is adopt
                found = broker._require().metadata.topics["orders"]
                assert (found.topic_id, set(found.partitions)) == (topic.topic_id, {0, 1, 2})
                assert set(broker._require().replica_manager.by_name["orders"].partitions) == {0, 1, 2}
        assert names(tmp_path / "data") == {"orders-0", "orders-1", "orders-2"}

    asyncio.run(story())


def test_a_part_of_a_topic_is_not_taken_for_all_of_it(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
            await cluster.create("orders", 6)
        before = names(tmp_path / "broker-1")
        settings: dict[str, Any] = {
            "zookeeper_connect": zookeeper.connect + chroot + "-lost",
            "data_dir": tmp_path / "broker-1",
        }
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"does not know of orders, whose partitions [0-9, ]+ are not in"):
                await Broker(**settings, broker_id=1, port=0, adopt=True).start()
            with pytest.raises(ConfigError, match="knows no cluster"):
                await Broker(**settings, broker_id=1, port=0).start()
        assert names(tmp_path / "broker-1") == before

    asyncio.run(story())
