"""The ids of the cluster, of a broker without a configured id, and of topics that have lost theirs.

The first broker of a cluster creates /cluster/id; a broker with another id in its meta.properties belongs to another
cluster. The version of /brokers/seqid counts the generated broker ids, which are above `reserved.broker.max.id`.
Source: kafka.server.KafkaServer (getOrGenerateClusterId, getOrGenerateBrokerId), kafka.zk.KafkaZkClient
(createOrGetClusterId, generateBrokerSequenceId).

Tools of before 2.8 rewrite /brokers/topics/T without the topic id. A broker that has it in its view restores it at
once. If no broker was running meanwhile, brokers with the topic's logs restore it from partition.metadata (KIP-516)
when they start. A log without an id belongs to a topic that never had one, and a new id is generated. A topic without
partition states is new and gets its first id from the controller, as does a topic of which no broker has a log
(`controller.pending_changes`). Kafka's controller gives such a topic another id, and its brokers then refuse it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition, format_uuid, random_uuid
from kafkalite.zk.client.operations import BadVersion, Create, NodeExists, NoNode, SetData
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession
    from kafkalite.zk.cluster.cluster_view import ClusterView


async def agree_on_cluster_id(session: ZooKeeperSession, stored: str | None, *, founds: bool) -> str:
    """The id of the cluster. `stored` is the one in meta.properties.

    `founds`: this broker may found a cluster with its id, since it brings the topics that belong to it. Otherwise a
    broker with an id and a ZooKeeper without one mean that the address is wrong or that ZooKeeper lost its data. Raises
    ConfigError.
    """
    where = f"zookeeper.connect={session.settings.connect}"
    while True:
        found = await read_cluster_id(session)
        if found is not None:
            if stored is not None and stored != found:
                raise ConfigError(
                    f"the data in log.dirs belongs to the cluster {stored} (meta.properties), and {where} leads to the "
                    f"cluster {found}: correct zookeeper.connect, or give this broker other directories"
                )
            return found
        if stored is not None and not founds:
            raise ConfigError(
                f"the data in log.dirs belongs to the cluster {stored} (meta.properties), and {where} knows no "
                "cluster: correct zookeeper.connect and its chroot; if ZooKeeper is to begin with this data, or has "
                "lost its own, start with --adopt"
            )
        await session.make_paths([znode_paths.CLUSTER])
        proposed = znode_data.cluster_id_json(stored or format_uuid(random_uuid()))
        with suppress(NodeExists):  # another broker was first, and its id counts
            await session.write([Create(znode_paths.CLUSTER_ID, proposed)])


async def read_cluster_id(session: ZooKeeperSession) -> str | None:
    """The id in ZooKeeper, None if there is none. Raises ConfigError for data that are no id."""
    (node,) = await session.read([znode_paths.CLUSTER_ID])
    if node is None:
        return None
    try:
        return znode_data.parse_cluster_id(node.data)
    except ValueError as fault:
        raise ConfigError(
            f"zookeeper.connect={session.settings.connect}: {znode_paths.CLUSTER_ID} is not understood: {fault}"
        ) from None


async def generate_broker_id(session: ZooKeeperSession, reserved_max: int) -> int:
    """A broker id that was never generated before."""
    await session.make_paths([znode_paths.BROKER_SEQUENCE_ID])
    while True:
        (node,) = await session.read([znode_paths.BROKER_SEQUENCE_ID])
        assert node is not None
        try:
            await session.write([SetData(znode_paths.BROKER_SEQUENCE_ID, b"", node.version)])
        except BadVersion:
            continue
        return reserved_max + node.version + 1


HeldTopicIds = Mapping[TopicPartition, uuid.UUID | None]
"""The partitions of a broker's logs, with the ids of their topics, or None if they never had one."""


def remembered_topic_ids(view: ClusterView) -> dict[str, uuid.UUID]:
    """The earlier ids of topics whose nodes lost them."""
    known = {name: view.assignments[name].value.topic_id for name in view.without_id}
    return {name: topic_id for name, topic_id in known.items() if topic_id is not None}


def topic_ids_of_logs(view: ClusterView, broker_id: int, held: HeldTopicIds) -> dict[str, uuid.UUID]:
    """The ids of topics whose nodes have none, according to a broker's logs. A log does not count when its partition is
    not the broker's, or has no state yet: then it was left behind by an older topic."""
    found: dict[str, uuid.UUID | None] = {}
    for (name, number), topic_id in sorted(held.items(), key=lambda item: item[0]):
        if name in view.without_id and number in view.states.get(name, {}):
            replicas = view.assignments[name].value.partitions.get(number, ())
            found |= {name: found.get(name) or topic_id} if broker_id in replicas else {}
    return {name: topic_id or random_uuid() for name, topic_id in found.items()}


async def restore_topic_ids(session: ZooKeeperSession, view: ClusterView, ids: Mapping[str, uuid.UUID]) -> bool:
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
