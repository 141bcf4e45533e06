"""The endpoints of brokers for their clients, and the leaders of partitions.

A client gets the addresses of the listener that it is connected to. A broker without a listener of that name is left
out of the answer. The answer is never empty: a client that takes it for the whole cluster, as librdkafka does from 2.10
on, would have no broker left to ask.
Source: kafka.server.MetadataCache (getAliveBrokerNodes, by listener name).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import BrokerRecord, ClusterMetadata
from kafkalite.network.client_connection import ClientConnection
from kafkalite.protocol.messages.metadata import NodeEndpoint
from kafkalite.replication.replica_manager import ReplicaManager


class BrokerEndpoint(NamedTuple):
    """The address and the rack of a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None


FindBroker = Callable[[int], BrokerEndpoint | None]
"""Maps the id of a live broker to its endpoint; None if the client cannot reach it."""


class BrokerEndpoints:
    """The endpoints of all live brokers. `broker_id` is this broker's; `own_address` maps a connection to the host and
    port that this broker advertises on its listener."""

    __slots__ = ("_metadata", "_own_address", "_rack", "_replica_manager", "broker_id")

    def __init__(
        self,
        metadata: ClusterMetadata,
        replica_manager: ReplicaManager,
        broker_id: int,
        rack: str | None,
        own_address: Callable[[ClientConnection], tuple[str, int]],
    ) -> None:
        self._metadata = metadata
        self._replica_manager = replica_manager
        self.broker_id = broker_id
        self._rack = rack
        self._own_address = own_address

    def all_for(self, connection: ClientConnection) -> list[BrokerEndpoint]:
        """All live brokers, as they are registered. Only this broker if none is registered: at a start while the others
        are down, after all sessions have expired, and without ZooKeeper, where it registers no endpoints.
        """
        found = (_endpoint(broker, connection.listener_name) for broker in self._metadata.brokers.values())
        return [each for each in found if each is not None] or [self._own_endpoint(connection)]

    def find(self, connection: ClientConnection, broker_id: int) -> BrokerEndpoint | None:
        """One live broker; None if the client cannot reach it."""
        return self.finder_for(connection)(broker_id)

    def finder_for(self, connection: ClientConnection) -> FindBroker:
        """A function that may outlive the connection, because it does not refer to it."""
        metadata, listener_name = self._metadata, connection.listener_name
        own = self._own_endpoint(connection)

        def find(broker_id: int) -> BrokerEndpoint | None:
            broker = metadata.brokers.get(broker_id)
            if broker is None:
                return None
            return _endpoint(broker, listener_name) if broker.endpoints else own

        return find

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """The leader's id and the leader epoch of a partition, as known here; (-1, -1) if it does not exist."""
        partition = self._replica_manager.partition(topic, index)
        if partition is not None:
            return self.broker_id, partition.leader_epoch
        record = self._metadata.topics.get(topic)
        state = record.partitions.get(index) if record is not None else None
        return (state.leader, state.leader_epoch) if state is not None else (NO_LEADER, NO_LEADER)

    def _own_endpoint(self, connection: ClientConnection) -> BrokerEndpoint:
        host, port = self._own_address(connection)
        return BrokerEndpoint(self.broker_id, host, port, self._rack)


def node_endpoints(leaders: Iterable[int], find: FindBroker) -> list[NodeEndpoint]:
    """The endpoints of the leaders that an answer names, of those that the client can reach (KIP-951)."""
    return [
        NodeEndpoint(node_id=it.broker_id, host=it.host, port=it.port, rack=it.rack)
        for it in map(find, sorted(set(leaders)))
        if it is not None
    ]


def _endpoint(broker: BrokerRecord, listener_name: str) -> BrokerEndpoint | None:
    for each in broker.endpoints:
        if each.name == listener_name:
            return BrokerEndpoint(broker.broker_id, each.host, each.port, broker.rack)
    return None
