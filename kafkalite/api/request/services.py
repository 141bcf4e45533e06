"""The services that request handlers use, assembled by the broker at its start, and the addresses of brokers for their
clients.

A client gets the addresses of the listener that it is connected to. A broker without a listener of that name is left
out of the answer. The answer is never empty: a client that takes it for the whole cluster, as librdkafka does from 2.10
on, would have no broker left to ask.
Source: kafka.server.KafkaApis (constructor), kafka.server.MetadataCache (getAliveBrokerNodes, by listener name).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalite.common.names import NO_LEADER
from kafkalite.security.delegation_tokens import TokenHmacs

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

    from kafkalite.api.request.admission import AdmissionEpoch, ProduceAdmission
    from kafkalite.api.request.fetch_sessions import FetchSessions, FollowerFetches
    from kafkalite.api.request.request_watch import ReportSources
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.common.clock import Clock
    from kafkalite.common.log_lines import RateLimitedLogger
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.coordinator.add_partitions_manager import AddPartitionsToTxnManager
    from kafkalite.coordinator.group_coordinator import GroupCoordinator
    from kafkalite.coordinator.internal_topic import InternalTopic
    from kafkalite.coordinator.marker_writer import MarkerAppender
    from kafkalite.coordinator.transaction_coordinator import ProducerIdManager, TransactionCoordinator
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.metadata.cluster_metadata import BrokerRecord, ClusterMetadata, PartitionAdmin
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.replication.topic_admin import TopicAdmin
    from kafkalite.zk.cluster.legacy_offsets import LegacyOffsets


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

    __slots__ = ("_metadata", "_own_address", "_rack", "broker_id")

    def __init__(
        self,
        metadata: ClusterMetadata,
        broker_id: int,
        rack: str | None,
        own_address: Callable[[ClientConnection], tuple[str, int]],
    ) -> None:
        self._metadata = metadata
        self.broker_id = broker_id
        self._rack = rack
        self._own_address = own_address

    def all_for(self, connection: ClientConnection) -> list[BrokerEndpoint]:
        """All live brokers, as they are registered. This broker by itself if there is none: it begins and the others
        are away, or the sessions of all have ended; and without ZooKeeper, where it registers no endpoints."""
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

    def _own_endpoint(self, connection: ClientConnection) -> BrokerEndpoint:
        host, port = self._own_address(connection)
        return BrokerEndpoint(self.broker_id, host, port, self._rack)


def _endpoint(broker: BrokerRecord, listener_name: str) -> BrokerEndpoint | None:
    for each in broker.endpoints:
        if each.name == listener_name:
            return BrokerEndpoint(broker.broker_id, each.host, each.port, broker.rack)
    return None


class DynamicConfig(Protocol):
    """The broker's settings, which may change at runtime."""

    @property
    def now(self) -> BrokerConfig: ...

    def change(
        self, broker: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> Awaitable[None]:
        """Replace the dynamic settings of `broker` ("": of all) by the result of `change`. Raises ConfigError."""
        ...


class Runtime:
    """The event loop, its clock, and `readers`: threads for long reads, which get files and values, never a log."""

    __slots__ = ("clock", "loop", "readers")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, readers: Executor) -> None:
        self.loop = loop
        self.clock = clock
        self.readers = readers


class CleanerAccess:
    """The log cleaner, created at its first use, and the number of RunCleaner requests under way."""

    __slots__ = ("get", "pending_runs")

    def __init__(self, get: Callable[[], LogCleaner]) -> None:
        self.get = get
        self.pending_runs = 0


class Services:
    """The parts of the broker that handlers use. `topic_admin` creates, changes and deletes topics, `partition_admin`
    elects leaders and reassigns replicas. `legacy_offsets` are the offsets in ZooKeeper (None without ZooKeeper).
    `reports` is what the console asks about. `error_log` logs errors that clients may cause repeatedly."""

    __slots__ = (
        "add_partitions", "admission_epoch", "brokers", "cleaner", "dynamic_config", "error_log",
        "fetch_sessions", "follower_fetches", "groups", "legacy_offsets", "logs", "markers", "metadata",
        "offsets_topic", "partition_admin", "produce_admission", "producer_ids", "replica_manager", "reports",
        "runtime", "token_hmacs", "topic_admin", "transaction_topic", "transactions",
    )  # fmt: skip

    def __init__(
        self,
        *,
        runtime: Runtime,
        dynamic_config: DynamicConfig,
        metadata: ClusterMetadata,
        brokers: BrokerEndpoints,
        replica_manager: ReplicaManager,
        topic_admin: TopicAdmin,
        partition_admin: PartitionAdmin,
        logs: LogManager,
        admission_epoch: AdmissionEpoch,
        produce_admission: ProduceAdmission,
        fetch_sessions: FetchSessions,
        follower_fetches: FollowerFetches,
        groups: GroupCoordinator,
        offsets_topic: InternalTopic,
        legacy_offsets: LegacyOffsets | None,
        transactions: TransactionCoordinator,
        add_partitions: AddPartitionsToTxnManager,
        transaction_topic: InternalTopic,
        markers: MarkerAppender,
        producer_ids: ProducerIdManager,
        cleaner: CleanerAccess,
        error_log: RateLimitedLogger,
        reports: ReportSources,
    ) -> None:
        self.runtime = runtime
        self.dynamic_config = dynamic_config
        self.metadata = metadata
        self.brokers = brokers
        self.replica_manager = replica_manager
        self.topic_admin = topic_admin
        self.partition_admin = partition_admin
        self.logs = logs
        self.admission_epoch = admission_epoch
        self.produce_admission = produce_admission
        self.fetch_sessions = fetch_sessions
        self.follower_fetches = follower_fetches
        self.groups = groups
        self.offsets_topic = offsets_topic
        self.legacy_offsets = legacy_offsets
        self.transactions = transactions
        self.add_partitions = add_partitions
        self.transaction_topic = transaction_topic
        self.markers = markers
        self.producer_ids = producer_ids
        self.cleaner = cleaner
        self.error_log = error_log
        self.reports = reports
        self.token_hmacs = TokenHmacs(lambda: metadata.delegation_tokens)

    @property
    def config(self) -> BrokerConfig:
        """The current settings."""
        return self.dynamic_config.now

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """The leader's id and the leader epoch of a partition, as known here; (-1, -1) if it does not exist."""
        partition = self.replica_manager.partition(topic, index)
        if partition is not None:
            return self.brokers.broker_id, partition.leader_epoch
        record = self.metadata.topics.get(topic)
        state = record.partitions.get(index) if record is not None else None
        return (state.leader, state.leader_epoch) if state is not None else (NO_LEADER, NO_LEADER)
