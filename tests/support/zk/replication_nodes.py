"""Samples of the nodes of replicas, and Kafka's own bytes for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kafkalite.zk.znodes import znode_data
from kafkalite.zk.znodes.znode_data import StateNode, TopicNode
from tests.support.places import GOLDEN

_MOVING = TopicNode(
    {0: (3, 4, 1, 2), 1: (1, 2), 2: (2, 1)}, uuid.UUID(int=7), adding={0: (4,)}, removing={0: (1, 2), 2: (1,)}
)
SAMPLES: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "topic": (_MOVING, znode_data.topic_json, znode_data.parse_topic),
    "topic-without-id": (_MOVING._replace(topic_id=None), znode_data.topic_json, znode_data.parse_topic),
    "reassign": ({("t", 0): (3, 4)}, znode_data.reassignment_json, znode_data.parse_reassignment),
    "elect": ([("t", 5)], znode_data.partitions_json, znode_data.parse_partitions),
    "isr-change": ([("t", 5)], znode_data.partitions_json, znode_data.parse_partitions),
    "state": (StateNode(1, 2, (1, 3, 2), 7), znode_data.state_json, znode_data.parse_state),
    "state-recovering": (StateNode(3, 4, (3,), 7, 1), znode_data.state_json, znode_data.parse_state),
    "state-offline": (StateNode(-1, 5, (1, 2), 7), znode_data.state_json, znode_data.parse_state),
}


def kafkas() -> dict[str, bytes]:
    lines = (GOLDEN / "zookeeper" / "replication.txt").read_text().splitlines()
    return {name: data.encode() for name, _, data in (line.partition(" ") for line in lines)}
