"""A cluster as commands and producers see it: its brokers, the leaders of its partitions, connections to each broker.

The first broker that can be reached names all others (Metadata). Each leader answers only for the partitions that it
leads, so that nothing is counted twice when responses are merged. A single broker is used over the first connection,
regardless of the address that it advertises. A lost connection is opened again when it is needed. Produces, and fetches
that wait for records, have connections of their own: other requests do not wait behind them.
Requests are retried after retriable errors: a leader that moves, a coordinator that loads.
Source: org.apache.kafka.clients.{Metadata, NetworkClient, producer.internals.ProducerMetadata},
org.apache.kafka.clients.admin.internals.CoordinatorStrategy.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite.client.blocking_client import BlockingClient, format_address, name_of_error, parse_address
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import COORDINATOR_MOVES, ConfigError, ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.configs import TOPIC_RESOURCE, DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.transactions import InitProducerIdRequest

if TYPE_CHECKING:
    from kafkalite.client.logins import ClientSecurity


class WriteFailed(Exception):
    """Rows could not be written; the text is for the user."""


class Retries:
    """Repeats an attempt every `backoff_s`, for `timeout_s` at most."""

    def __init__(
        self,
        timeout_s: float,
        backoff_s: float = 0.1,
        monotonic_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout_s = timeout_s
        self.backoff_s = backoff_s
        self.monotonic_s = monotonic_s
        self.sleep = sleep

    def persist(self, what: str, attempt: Callable[[], Any]) -> Any:
        """The first result of `attempt` that is no error code. Raises WriteFailed, which begins with `what`, for a code
        that is not retriable and when the time is over."""
        deadline_s = self.monotonic_s() + self.timeout_s
        while True:
            try:
                result = attempt()
                if not isinstance(result, int) or not result:
                    return result
                why = name_of_error(result)
                if not ErrorCode.of(result).is_retriable:
                    raise WriteFailed(f"{what}: {why}")
            except Unanswered as error:
                why = str(error)
            if self.monotonic_s() >= deadline_s:
                raise WriteFailed(f"{what} within {self.timeout_s:g} s: {why}")
            self.sleep(self.backoff_s)

    def ask_coordinator(self, ask: Callable[[], Any]) -> Any:
        """The response; retries while its `error_code` is one of a coordinator that loads or moves, until the
        timeout."""
        deadline_s = self.monotonic_s() + self.timeout_s
        while True:
            response = ask()
            if response.error_code not in COORDINATOR_MOVES or self.monotonic_s() >= deadline_s:
                return response
            self.sleep(self.backoff_s)


GROUP_KEY, TRANSACTION_KEY = 0, 1  # types of keys in FindCoordinator
_METADATA_VERSION = 9
_COORDINATOR_KEPT_S = 0.5
_DESCRIBE_CONFIGS_VERSION = 2
_FIND_COORDINATOR_VERSION = 3
_INIT_PRODUCER_ID_VERSION = 2
_MAX_MESSAGE_BYTES = "max.message.bytes"
_MAX_MESSAGE_BYTES_DEFAULT = 1_048_588
_FIRST, _OTHERS, _PRODUCES = "first", "others", "produces"  # purposes of connections
_FETCHES, _REBALANCES = "fetches", "rebalances"
_Response = TypeVar("_Response")


class PartitionPlace(NamedTuple):
    """The leader, the replicas and the ISR of a partition; `leader` is NO_LEADER if no broker serves it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1


class ClusterClient:
    """`addresses`: HOST:PORT, or several with commas between them, of which the first reachable one is used. A
    response may take `timeout_s`. In a `with` statement and after `open` it has the metadata of all topics; otherwise
    `refresh` gets them. Raises Unanswered, ConfigError."""

    def __init__(self, addresses: str, timeout_s: float, security: ClientSecurity | None = None) -> None:
        self._bootstrap = [address.strip() for address in addresses.split(",") if address.strip()] or [addresses]
        for address in self._bootstrap:
            parse_address(address)
        self._timeout_s = timeout_s
        self._security = security
        self._clients: dict[tuple[str, str], BlockingClient] = {}  # by purpose and address
        self._coordinators: dict[tuple[str, int], tuple[int, float]] = {}  # by key and its type: broker id, until when
        self.address = addresses  # of the first connection
        self.controller_id = NO_LEADER
        self.cluster_id: str | None = None
        self.brokers: dict[int, str] = {}
        self.racks: dict[int, str | None] = {}
        self.places: dict[TopicPartition, PartitionPlace] = {}
        self.internal: frozenset[str] = frozenset()

    def __enter__(self) -> ClusterClient:
        return self.open()

    def open(self) -> ClusterClient:
        """Connect and get the metadata of all topics. Raises Unanswered."""
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    # --- metadata

    def refresh(self, topics: Iterable[str] | None = None) -> dict[str, int]:
        """Refresh brokers and leaders, of all topics or of these, which the broker creates if it does so automatically.
        Returns the error code of each topic. Raises Unanswered."""
        wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=wanted is not None)
        metadata = self.first.ask(request, _METADATA_VERSION)
        self.controller_id = metadata.controller_id
        self.cluster_id = metadata.cluster_id
        self.brokers = {broker.node_id: format_address(broker.host, broker.port) for broker in metadata.brokers}
        self.racks = {broker.node_id: broker.rack for broker in metadata.brokers}
        if wanted is None:
            self.internal = frozenset(topic.name or "" for topic in metadata.topics if topic.is_internal)
            self.places = {}
        for topic in metadata.topics:
            for one in topic.partitions:
                self.places[topic.name or "", one.partition_index] = PartitionPlace(
                    one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes), one.leader_epoch
                )
        return {topic.name or "": topic.error_code for topic in metadata.topics}

    @property
    def is_one(self) -> bool:
        """Whether there is no other broker now."""
        return len(self.brokers) <= 1

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.places}

    def partition_count(self, topic: str) -> int:
        return sum(name == topic for name, _ in self.places)

    def max_batch_bytes(self, topic: str) -> int:
        """The topic's max.message.bytes; Kafka's default if it may not be described."""
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_MAX_MESSAGE_BYTES]
        )
        response = self.first.ask(DescribeConfigsRequest(resources=[resource]), _DESCRIBE_CONFIGS_VERSION)
        for result in response.results:
            for config in result.configs:
                if config.name == _MAX_MESSAGE_BYTES and config.value is not None:
                    return int(config.value)
        return _MAX_MESSAGE_BYTES_DEFAULT

    # --- connections

    @property
    def first(self) -> BlockingClient:
        """The connection to the broker that was reached first; to another one if it was lost. Raises Unanswered with
        the fault of the last one if none can be reached."""
        for (purpose, _), client in self._clients.items():
            if purpose == _FIRST and not client.is_lost:
                return client
        addresses = list(dict.fromkeys([*self._bootstrap, *self.brokers.values()]))
        for address in addresses[:-1]:
            with contextlib.suppress(Unanswered):
                return self._connect(_FIRST, address)
        return self._connect(_FIRST, addresses[-1])

    @property
    def is_lost(self) -> bool:
        """Whether the first connection is lost and not opened again yet."""
        return all(client.is_lost for (purpose, _), client in self._clients.items() if purpose == _FIRST)

    def client(self, broker_id: int) -> BlockingClient:
        """The connection for requests to a broker. Raises Unanswered, ConfigError for an unknown broker."""
        if broker_id not in self.brokers:
            raise ConfigError(f"broker {broker_id} not found at {self.address}")
        return self.first if self.is_one else self._connect(_OTHERS, self.brokers[broker_id])

    def leader(self, broker_id: int) -> BlockingClient:
        """The connection for produces to this broker. Raises Unanswered if it is not in the cluster now."""
        if broker_id not in self.brokers:
            raise Unanswered(f"broker {broker_id} is not in the cluster now")
        return self._connect(_PRODUCES, self.address if self.is_one else self.brokers[broker_id])

    def reader(self, broker_id: int) -> BlockingClient:
        """The connection for fetches that wait for records. Raises Unanswered if the broker is not in the cluster
        now."""
        if broker_id not in self.brokers:
            raise Unanswered(f"broker {broker_id} is not in the cluster now")
        return self._connect(_FETCHES, self.address if self.is_one else self.brokers[broker_id])

    def member(self, broker_id: int) -> BlockingClient:
        """The connection for joins, which wait for other members. Raises Unanswered."""
        if broker_id not in self.brokers:
            raise Unanswered(f"broker {broker_id} is not in the cluster now")
        return self._connect(_REBALANCES, self.brokers[broker_id])

    def controller(self) -> BlockingClient:
        """The connection to the broker that changes topics and users. Raises Unanswered."""
        if self.controller_id not in self.brokers:
            self.refresh([])
        if self.controller_id in self.brokers:
            return self.client(self.controller_id)
        if self.is_one:
            return self.first
        raise Unanswered(f"the cluster of {self.address} has no controller now")

    def _connect(self, purpose: str, address: str) -> BlockingClient:
        client = self._clients.get((purpose, address))
        if client is not None and client.is_lost:
            self._clients.pop((purpose, address)).close()
            client = None
        if client is None:
            client = self._clients[purpose, address] = BlockingClient(address, self._timeout_s, self._security)
            if purpose == _FIRST:
                self.address = address
        return client

    # --- coordinators

    def find_coordinator(self, key: str, key_type: int) -> tuple[int, int]:
        """(error code, broker id) for a group or a transactional id, without a retry. Raises Unanswered."""
        if not self.brokers:
            self.refresh([])
        found = self.first.ask(FindCoordinatorRequest(key=key, key_type=key_type), _FIND_COORDINATOR_VERSION)
        if not found.error_code:
            self.brokers[found.node_id] = format_address(found.host, found.port)
        return found.error_code, found.node_id

    def ask_coordinator(self, key: str, key_type: int, request: Message, version: int) -> Any:
        """The response of the coordinator, or the error code if there is none now. Raises Unanswered."""
        responses = self.ask_coordinator_each(key, key_type, [(request, version)])
        return responses if isinstance(responses, int) else responses[0]

    def ask_coordinator_each(
        self, key: str, key_type: int, requests: Sequence[tuple[Message, int]]
    ) -> int | Sequence[Any]:
        """The responses of the coordinator to several requests, with their versions, in one round trip; or the error
        code if there is none now. Raises Unanswered. A coordinator is remembered for a moment: a retry after that finds
        one that has moved."""
        broker_id, until_s = self._coordinators.get((key, key_type), (NO_LEADER, 0.0))
        if broker_id not in self.brokers or monotonic_s() >= until_s:
            error_code, broker_id = self.find_coordinator(key, key_type)
            if error_code:
                return error_code
            self._coordinators[key, key_type] = broker_id, monotonic_s() + _COORDINATOR_KEPT_S
        try:
            client = self.client(broker_id)
            for request, version in requests:
                client.send(request, version)
            return [client.receive(type(request), version) for request, version in requests]
        except Unanswered:
            self._coordinators.pop((key, key_type), None)
            raise

    def init_producer_id(self, transactional_id: str | None, transaction_timeout_ms: int) -> tuple[int, int, int]:
        """(error code, producer id, epoch), from any broker or from the coordinator of the transactional id."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )
        if transactional_id is None:
            response = self.first.ask(request, _INIT_PRODUCER_ID_VERSION)
        else:
            response = self.ask_coordinator(transactional_id, TRANSACTION_KEY, request, _INIT_PRODUCER_ID_VERSION)
        if isinstance(response, int):
            return response, -1, -1
        return response.error_code, response.producer_id, response.producer_epoch

    # --- partitions and their leaders

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
        """The responses that `ask` returns about these topics, or all if there are none, and complaints about
        partitions that are left out. The argument of `ask` is the partitions to query; None for all that a single
        broker has.

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
        """The responses that `ask` returns from these brokers, and a complaint for each one that does not answer.
        Raises Unanswered if none does.
        """
        responses: list[_Response] = []
        complaints: list[str] = []
        for broker_id, keys in sorted(led.items()):
            try:
                responses.append(ask(self.client(broker_id), keys))
            except Unanswered as error:
                complaints.append(f"{_left_out(keys)}: broker {broker_id}: {error}")
        if complaints and not responses:
            raise Unanswered(complaints[0])
        return responses, complaints

    def leader_of(self, partition: TopicPartition) -> int:
        """The broker that leads a partition. Raises ConfigError, Unanswered."""
        place = self.places.get(partition)
        topic, index = partition
        if place is None:
            raise ConfigError(f"partition {topic}-{index} not found at {self.address}")
        if place.leader == NO_LEADER:
            raise Unanswered(f"{topic}-{index} has no leader")
        return place.leader

    def not_led(self, topics: Iterable[str]) -> list[str]:
        """Complaints about the partitions without a leader, of these topics or of all: one for each absent broker, and
        one for partitions whose brokers are all present."""
        wanted = set(topics)
        by_absent: dict[int | None, set[TopicPartition]] = {}
        for key, place in self.places.items():
            if place.leader == NO_LEADER and (not wanted or key[0] in wanted):
                absent = next((replica for replica in place.replicas if replica not in self.brokers), None)
                by_absent.setdefault(absent, set()).add(key)
        complaints = []
        for broker_id, keys in sorted(by_absent.items(), key=lambda one: -1 if one[0] is None else one[0]):
            why = "they have no leader" if broker_id is None else f"broker {broker_id} is away"
            complaints.append(f"{_left_out(keys)}: {why}")
        return complaints


def _left_out(keys: set[TopicPartition]) -> str:
    """The first half of a complaint; the reason follows."""
    topic, index = min(keys)
    if len(keys) == 1:
        return f"{topic}-{index} is left out here"
    return f"{len(keys)} partitions, such as {topic}-{index}, are left out here"


def require_topics(topics: Iterable[str], found: set[str], where: str) -> None:
    """Raises ConfigError for a topic that is not in `found`."""
    for topic in topics:
        if topic not in found:
            raise ConfigError(f"topic {topic} not found at {where}")
