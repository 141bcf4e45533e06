"""What a request handler is given: the rooms of the broker, and who is asking."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.network.complaints import Complaints

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

    from kafkalite.api.fetch_sessions import FetchSessions
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.clock import Clock
    from kafkalite.config import BrokerConfig
    from kafkalite.coordinator.group_coordinator import GroupCoordinator
    from kafkalite.coordinator.producer_ids import ProducerIds
    from kafkalite.log.log_manager import LogManager
    from kafkalite.network.peer import Peer
    from kafkalite.topics import Topics
    from kafkalite.zk.registry import Registry


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
        registry: Registry,
        logs: LogManager,
        topics: Topics,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        readers: Executor,
        sessions: FetchSessions,
        broker_id: int,
        endpoint: Callable[[Peer], tuple[str, int]],
        group_topic_is_ready: Callable[[], bool],
        ensure_group_topic: Callable[[], Awaitable[None]],
        reconfigure: Callable[[str, Callable[[Mapping[str, str]], dict[str, str]], bool], Awaitable[None]],
        cleaner: Callable[[], LogCleaner],
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
        self.complaints = Complaints(clock, logger.error)
        self.sessions = sessions
        self.broker_id = broker_id
        self._endpoint = endpoint
        self.group_topic_is_ready = group_topic_is_ready
        self.ensure_group_topic = ensure_group_topic
        self.reconfigure = reconfigure
        self._cleaner = cleaner
        self.cleaner_runs = 0  # that clients have asked for and that are not done

    @property
    def cleaner(self) -> LogCleaner:
        return self._cleaner()

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
