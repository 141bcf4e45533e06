"""Ids that nodes of topics have lost, and a broker's logs still have: on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kafkalite.common.names import random_uuid
from kafkalite.zk.client.operations import Create, Operation, SetData
from kafkalite.zk.znodes import znode_data, znode_paths
from kafkalite.zk.znodes.znode_data import StateNode, TopicNode
from tests.support.zk.members import apart
from tests.support.zk.visits import visit


def without_id(name: str) -> list[Operation]:
    """A topic of one partition, as a tool of before 2.8 leaves it."""
    return [
        Create(znode_paths.topic(name), znode_data.topic_json(TopicNode({0: (1,)}))),
        Create(znode_paths.partitions(name)),
        Create(znode_paths.partition(name, 0)),
        Create(znode_paths.state(name, 0), znode_data.state_json(StateNode(1, 0, (1,), 1))),
    ]


def test_ids_are_given_back_though_other_topics_are_deleted_meanwhile(place: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with visit(place) as somebody:
            await somebody.session.make_paths(znode_paths.PERSISTENT)
            for name in held:
                await somebody.session.write(without_id(name))
            async with apart(place, tmp_path) as one:
                metadata, write = one.metadata, one.metadata.session.write
                assert metadata.view.without_id == set(held) and not metadata.topics
                deletions = [SetData(znode_paths.TOPIC_DELETIONS, b"")] * 3

                async def beside_a_deletion(operations: Sequence[Operation]) -> list[str]:
                    if deletions:
                        await somebody.session.write([deletions.pop()])
                    return await write(operations)

                metadata.session.write = beside_a_deletion  # type: ignore[method-assign]
                await metadata.return_ids({(name, 0): topic_id for name, topic_id in held.items()})
                assert {name: topic.topic_id for name, topic in metadata.topics.items()} == held and not deletions

    held = {"a": random_uuid(), "b": random_uuid()}
    asyncio.run(story())
