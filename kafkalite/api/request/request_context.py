"""What a request handler is given: the rooms of the broker, and who is asking."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.common.throttled_log import RateLimitedLogger
from kafkalite.metadata.cluster_metadata import NO_LEADER

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

    from kafkalite.api.request.fetch_sessions import FetchSessions
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.coordinator.group_coordinator import GroupCoordinator
    from kafkalite.coordinator.producer_id_manager import ProducerIdManager
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.metadata.cluster_metadata import BrokerRecord, ClusterMetadata
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.replication.topic_admin import TopicAdmin
    from kafkalite.zk.cluster.legacy_offsets import LegacyOffsets


logger = logging.getLogger(__name__)


class BrokerEndpoint(NamedTuple):
    """A broker as clients are to dial it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class Services:
    """The rooms behind the handlers, put together by the broker. `readers` are threads for what takes a reader's time
    rather than the loop's: they get files and values, never a log. `complaints` are for what clients ask for again and
    again while it cannot be done."""

    __slots__ = (
        "_cleaner",
        "_endpoint",
        "broker_id",
        "cleaner_runs",
        "clock",
        "complaints",
        "config",
        "ensure_group_topic",
        "group_topic_is_ready",
        "groups",
        "legacy_offsets",
        "logs",
        "loop",
        "producer_ids",
        "readers",
        "reconfigure",
        "registry",
        "sessions",
        "topics",
    )

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        registry: ClusterMetadata,
        logs: LogManager,
        topics: TopicAdmin,
        groups: GroupCoordinator,
        producer_ids: ProducerIdManager,
        readers: Executor,
        sessions: FetchSessions,
        broker_id: int,
        endpoint: Callable[[ClientConnection], tuple[str, int]],
        group_topic_is_ready: Callable[[], bool],
        ensure_group_topic: Callable[[], Awaitable[None]],
        reconfigure: Callable[[str, Callable[[Mapping[str, str]], dict[str, str]], bool], Awaitable[None]],
        cleaner: Callable[[], LogCleaner],
        legacy_offsets: LegacyOffsets | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.loop = loop
        self.registry = registry
        self.logs = logs
        self.topics = topics
        self.groups = groups
        self.producer_ids = producer_ids
        self.readers = readers
        self.complaints = RateLimitedLogger(clock, logger.error)
        self.sessions = sessions
        self.broker_id = broker_id
        self._endpoint = endpoint
        self.group_topic_is_ready = group_topic_is_ready
        self.ensure_group_topic = ensure_group_topic
        self.reconfigure = reconfigure
        self._cleaner = cleaner
        self.legacy_offsets = legacy_offsets  # None: there is no ZooKeeper
        self.cleaner_runs = 0  # that clients have asked for and that are not done

    @property
    def cleaner(self) -> LogCleaner:
        return self._cleaner()

    def endpoint_for(self, peer: ClientConnection) -> BrokerEndpoint:
        """This broker as `peer` reaches it: the advertised address of its listener, or the one that it dialled."""
        host, port = self._endpoint(peer)
        return BrokerEndpoint(self.broker_id, host, port, self.config.broker_rack)

    def brokers_for(self, peer: ClientConnection) -> list[BrokerEndpoint]:
        """All live brokers as `peer` reaches them. One that has no listener of the name that `peer` came in on is left
        out; in a cluster this broker is told as the others tell it too."""
        if not self.registry.is_shared:
            return [self.endpoint_for(peer)]
        found = (_endpoint(broker, peer.listener_name) for broker in self.registry.brokers.values())
        return [each for each in found if each is not None]

    def broker_for(self, peer: ClientConnection, broker_id: int) -> BrokerEndpoint | None:
        """One live broker as `peer` reaches it; None if it cannot."""
        return self.broker_finder(peer)(broker_id)

    def broker_finder(self, peer: ClientConnection) -> Callable[[int], BrokerEndpoint | None]:
        """`broker_for` of one peer, for keeping: it does not hold the peer."""
        me = self.endpoint_for(peer)
        registry, listener_name = self.registry, peer.listener_name

        def find(broker_id: int) -> BrokerEndpoint | None:
            if not registry.is_shared:
                return me if broker_id == me.broker_id else None
            broker = registry.brokers.get(broker_id)
            return None if broker is None else _endpoint(broker, listener_name)

        return find

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """The id and the epoch of a partition's leader, as far as this broker knows: (-1, -1) for no partition."""
        partition = self.topics.partition(topic, index)
        if partition is not None:
            return self.broker_id, partition.leader_epoch
        record = self.registry.topics.get(topic)
        state = record.partitions.get(index) if record is not None else None
        return (state.leader, state.leader_epoch) if state is not None else (NO_LEADER, NO_LEADER)


def _endpoint(broker: BrokerRecord, listener_name: str) -> BrokerEndpoint | None:
    for each in broker.endpoints:
        if each.name == listener_name:
            return BrokerEndpoint(broker.broker_id, each.host, each.port, broker.rack)
    return None


class Call:
    """One request: who sent it, in which version."""

    __slots__ = ("api_version", "client_id", "peer")

    def __init__(self, peer: ClientConnection, api_version: int, client_id: str | None) -> None:
        self.peer = peer
        self.api_version = api_version
        self.client_id = client_id
