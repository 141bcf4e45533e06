"""The cluster id and, for a broker without a configured id, its broker id.

The first broker of a cluster creates /cluster/id; a broker with another id in its meta.properties belongs to another
cluster. The version of /brokers/seqid counts the generated broker ids, which are above `reserved.broker.max.id`.
Source: kafka.server.KafkaServer (getOrGenerateClusterId, getOrGenerateBrokerId), kafka.zk.KafkaZkClient
(createOrGetClusterId, generateBrokerSequenceId).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import format_uuid, random_uuid
from kafkalite.zk.client.operations import BadVersion, Create, NodeExists, SetData
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession


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
