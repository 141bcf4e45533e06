"""A cluster as commands see it: its brokers, the leaders of its partitions, and a connection to each leader.

The first broker that can be reached names all others (Metadata). From each leader only the partitions that it leads are
taken, so that nothing is counted twice when responses are put together. A single broker is asked over the first
connection, regardless of the address that it advertises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkalite.client.blocking_client import BlockingClient, Unanswered, parse_address
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from kafkalite.client.client_security import ClientSecurity

_METADATA_VERSION = 9
NO_LEADER = -1
_Response = TypeVar("_Response")


class PartitionPlace(NamedTuple):
    """The leader, the replicas and the ISR of a partition; `leader` is NO_LEADER if no broker serves it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1


class ClusterClient:
    """`addresses`: HOST:PORT, or several with commas between them, of which the first that can be reached is asked. A
    response may take `timeout_s`. Raises Unanswered, ConfigError."""

    def __init__(self, addresses: str, timeout_s: float, security: ClientSecurity | None = None) -> None:
        self._bootstrap = addresses
        self._timeout_s = timeout_s
        self._security = security
        self._undo = contextlib.ExitStack()
        self._clients: dict[int, BlockingClient] = {}
        self.first = self._undo.enter_context(_first_of(addresses, timeout_s, security))
        self.controller_id = NO_LEADER
        self.cluster_id: str | None = None
        self.brokers: dict[int, str] = {}
        self.racks: dict[int, str | None] = {}
        self.places: dict[TopicPartition, PartitionPlace] = {}
        self.internal: frozenset[str] = frozenset()
        try:
            self.refresh()
        except BaseException:
            self._undo.close()
            raise

    def refresh(self) -> None:
        """Ask again for brokers, topics and leaders, another broker if the first is gone. Raises Unanswered."""
        if self.first.is_lost:
            places = ",".join([self._bootstrap, *self.brokers.values()])
            self.first = self._undo.enter_context(_first_of(places, self._timeout_s, self._security))
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = self.first.ask(request, _METADATA_VERSION)
        self.controller_id = metadata.controller_id
        self.cluster_id = metadata.cluster_id
        self.brokers = {broker.node_id: _address(broker.host, broker.port) for broker in metadata.brokers}
        for broker_id, known in list(self._clients.items()):
            if known.is_lost or known.address != self.brokers.get(broker_id):
                del self._clients[broker_id]
        self.racks = {broker.node_id: broker.rack for broker in metadata.brokers}
        self.internal = frozenset(topic.name or "" for topic in metadata.topics if topic.is_internal)
        self.places = {
            (topic.name or "", one.partition_index): PartitionPlace(
                one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes), one.leader_epoch
            )
            for topic in metadata.topics
            for one in topic.partitions
        }

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    @property
    def address(self) -> str:
        return self.first.address

    @property
    def is_one(self) -> bool:
        """Whether there is no other broker now."""
        return len(self.brokers) <= 1

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.places}

    def led_by(self, topics: Iterable[str]) -> dict[int, set[TopicPartition]]:
        """The partitions of these topics, or of all if there are none, by the broker that leads them."""
        wanted = set(topics)
        led: dict[int, set[TopicPartition]] = {}
        for key, place in self.places.items():
            if place.leader != NO_LEADER and (not wanted or key[0] in wanted):
                led.setdefault(place.leader, set()).add(key)
        return led

    def ask_all(
        self, topics: Collection[str], ask: Callable[[BlockingClient, set[TopicPartition] | None], _Response]
    ) -> tuple[list[_Response], list[str]]:
        """The responses that `ask` gets about these topics, or all if there are none, and complaints about partitions
        that are left out. `ask` gets the partitions to ask for; None for all that a single broker has.

        Raises Unanswered, and ConfigError for a topic that is not in a cluster of several brokers.
        """
        if self.is_one:
            return [ask(self.first, None)], self.not_led(topics)
        require_topics(topics, self.topics, self.address)
        responses, missing = self.ask_leaders(self.led_by(topics), ask)
        return responses, missing + self.not_led(topics)

    def ask_leaders(
        self, led: Mapping[int, set[TopicPartition]], ask: Callable[[BlockingClient, set[TopicPartition]], _Response]
    ) -> tuple[list[_Response], list[str]]:
        """The responses that `ask` gets from these brokers, and a complaint for each one that cannot be asked. Raises
        Unanswered if none can."""
        responses: list[_Response] = []
        complaints: list[str] = []
        for broker_id, keys in sorted(led.items()):
            try:
                responses.append(ask(self.connect(broker_id), keys))
            except Unanswered as error:
                complaints.append(f"{_left_out(keys)}: broker {broker_id}: {error}")
        if complaints and not responses:
            raise Unanswered(complaints[0])
        return responses, complaints

    def connect(self, broker_id: int) -> BlockingClient:
        """A connection that is closed with the others. Raises Unanswered."""
        address = self.brokers[broker_id]
        return self._undo.enter_context(BlockingClient(address, self._timeout_s, self._security))

    def client(self, broker_id: int) -> BlockingClient:
        """As `connect`, one connection for all requests. Raises ConfigError for a broker that is not there."""
        if broker_id not in self.brokers:
            raise ConfigError(f"there is no broker {broker_id} in {self.address}")
        if self.is_one:
            return self.first
        if broker_id not in self._clients:
            self._clients[broker_id] = self.connect(broker_id)
        return self._clients[broker_id]

    def controller(self) -> BlockingClient:
        """The connection to the broker that changes topics and users. Raises Unanswered."""
        if self.controller_id in self.brokers:
            return self.client(self.controller_id)
        if self.is_one:
            return self.first
        raise Unanswered(f"the cluster of {self.address} has no controller now")

    def leader_of(self, partition: TopicPartition) -> int:
        """The broker that leads a partition. Raises ConfigError, Unanswered."""
        place = self.places.get(partition)
        topic, index = partition
        if place is None:
            raise ConfigError(f"there is no partition {topic}-{index} in {self.address}")
        if place.leader == NO_LEADER:
            raise Unanswered(f"nobody leads {topic}-{index}")
        return place.leader

    def not_led(self, topics: Iterable[str]) -> list[str]:
        """Complaints about the partitions without a leader, of these topics or of all: one for each absent broker, and
        one for partitions whose brokers are present."""
        wanted = set(topics)
        by_absent: dict[int | None, set[TopicPartition]] = {}
        for key, place in self.places.items():
            if place.leader == NO_LEADER and (not wanted or key[0] in wanted):
                absent = next((replica for replica in place.replicas if replica not in self.brokers), None)
                by_absent.setdefault(absent, set()).add(key)
        complaints = []
        for broker_id, keys in sorted(by_absent.items(), key=lambda one: -1 if one[0] is None else one[0]):
            why = "nobody leads them" if broker_id is None else f"broker {broker_id} is away"
            complaints.append(f"{_left_out(keys)}: {why}")
        return complaints


def _left_out(keys: set[TopicPartition]) -> str:
    """The first half of a complaint; the reason follows."""
    topic, index = min(keys)
    if len(keys) == 1:
        return f"{topic}-{index} is left out here"
    return f"{len(keys)} partitions, such as {topic}-{index}, are left out here"


def _first_of(addresses: str, timeout_s: float, security: ClientSecurity | None) -> BlockingClient:
    """A connection to the first that can be reached. Raises Unanswered with the fault of the last one."""
    named = [address.strip() for address in addresses.split(",") if address.strip()] or [addresses]
    for address in named:
        parse_address(address)
    for address in named[:-1]:
        with contextlib.suppress(Unanswered):
            return BlockingClient(address, timeout_s, security)
    return BlockingClient(named[-1], timeout_s, security)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def require_topics(topics: Iterable[str], found: set[str], where: str) -> None:
    """Raises ConfigError for a topic that is not among those that were found."""
    for topic in topics:
        if topic not in found:
            raise ConfigError(f"there is no topic {topic} in {where}")
