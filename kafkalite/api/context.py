"""What a request handler is given: the rooms of the broker, and who is asking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from kafkalite.api.fetch_sessions import FetchSessions
    from kafkalite.clock import Clock
    from kafkalite.config import BrokerConfig
    from kafkalite.coordinator.group_coordinator import GroupCoordinator
    from kafkalite.coordinator.producer_ids import ProducerIds
    from kafkalite.log.log_manager import LogManager
    from kafkalite.network.peer import Peer
    from kafkalite.topics import Topics
    from kafkalite.zk.registry import Registry


class BrokerEndpoint(NamedTuple):
    """A broker as clients are to dial it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class Services:
    """The rooms behind the handlers, put together by the broker."""

    __slots__ = (
        "_endpoint",
        "broker_id",
        "clock",
        "config",
        "ensure_group_topic",
        "group_topic_is_ready",
        "groups",
        "logs",
        "loop",
        "producer_ids",
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
        registry: Registry,
        logs: LogManager,
        topics: Topics,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        sessions: FetchSessions,
        broker_id: int,
        endpoint: Callable[[Peer], tuple[str, int]],
        group_topic_is_ready: Callable[[], bool],
        ensure_group_topic: Callable[[], Awaitable[None]],
        reconfigure: Callable[[str, Callable[[Mapping[str, str]], dict[str, str]], bool], Awaitable[None]],
    ) -> None:
        self.config = config
        self.clock = clock
        self.loop = loop
        self.registry = registry
        self.logs = logs
        self.topics = topics
        self.groups = groups
        self.producer_ids = producer_ids
        self.sessions = sessions
        self.broker_id = broker_id
        self._endpoint = endpoint
        self.group_topic_is_ready = group_topic_is_ready
        self.ensure_group_topic = ensure_group_topic
        self.reconfigure = reconfigure

    def endpoint_for(self, peer: Peer) -> BrokerEndpoint:
        """This broker as `peer` reaches it: the advertised address of its listener, or the one that it dialled."""
        host, port = self._endpoint(peer)
        return BrokerEndpoint(self.broker_id, host, port, self.config.broker_rack)

    def brokers_for(self, peer: Peer) -> Iterable[BrokerEndpoint]:
        """All live brokers as `peer` reaches them."""
        return (self.endpoint_for(peer),)


class Call:
    """One request: who sent it, in which version."""

    __slots__ = ("api_version", "client_id", "peer")

    def __init__(self, peer: Peer, api_version: int, client_id: str | None) -> None:
        self.peer = peer
        self.api_version = api_version
        self.client_id = client_id
