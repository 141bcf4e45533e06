"""Restores lost topic ids: tools of before 2.8 rewrite /brokers/topics/T without the id.

A broker that has the id in its view restores it at once. If no broker was running meanwhile, brokers with the topic's
logs restore it from partition.metadata when they start. A log without an id belongs to a topic that never had one, and
a new id is generated. A topic without partition states is new and gets its first id from the controller, as does a
topic of which no broker has a log (`controller.pending_changes`).
Source: partition.metadata (KIP-516). Kafka's controller gives such a topic another id, and its brokers then refuse it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kafkalite.common.names import TopicPartition, random_uuid
from kafkalite.zk.client.operations import BadVersion, NoNode, SetData
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession
    from kafkalite.zk.cluster.cluster_view import ClusterView

Held = Mapping[TopicPartition, uuid.UUID | None]
"""The partitions of a broker's logs, with the ids of their topics, or None if they never had one."""


def remembered(view: ClusterView) -> dict[str, uuid.UUID]:
    """The earlier ids of topics whose nodes lost them."""
    known = {name: view.assignments[name].value.topic_id for name in view.without_id}
    return {name: topic_id for name, topic_id in known.items() if topic_id is not None}


def held_by(view: ClusterView, broker_id: int, held: Held) -> dict[str, uuid.UUID]:
    """The ids of topics whose nodes have none, according to a broker's logs. A log does not count when its partition is
    not the broker's, or has no state yet: then it was left behind by an older topic."""
    told: dict[str, uuid.UUID | None] = {}
    for (name, number), topic_id in sorted(held.items(), key=lambda item: item[0]):
        if name in view.without_id and number in view.states.get(name, {}):
            replicas = view.assignments[name].value.partitions.get(number, ())
            told |= {name: told.get(name) or topic_id} if broker_id in replicas else {}
    return {name: topic_id or random_uuid() for name, topic_id in told.items()}


async def give_back(session: ZooKeeperSession, view: ClusterView, ids: Mapping[str, uuid.UUID]) -> bool:
    """Writes ids unless the nodes have changed meanwhile. False: some are to be tried again, because topics were
    deleted meanwhile. Raises Unavailable, OperationFailed."""
    fence, are_written = view.deletion_fence, True
    for write in list(_writes(view, ids)):
        try:
            await session.write([*fence, write])
        except (BadVersion, NoNode) as refusal:
            are_written &= refusal.path == write.path
    return are_written


def _writes(view: ClusterView, ids: Mapping[str, uuid.UUID]) -> Iterator[SetData]:
    for name, topic_id in ids.items():
        known = view.assignments.get(name)
        if known is not None:
            data = znode_data.topic_json(known.value._replace(topic_id=topic_id))
            yield SetData(znode_paths.topic(name), data, known.node.version)
