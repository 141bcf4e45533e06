"""Transactions of a cluster for an administrator: requests to coordinators and to leaders of partitions.

The coordinator of a transactional id describes it; all coordinators together list all ids. The leader of a partition
lists the producers with an open transaction there. A transaction that is open at a leader and unknown to the
coordinators hangs: only a marker that an administrator writes ends it.
Source: org.apache.kafka.clients.admin.{KafkaAdminClient, internals.DescribeProducersHandler, AbortTransactionHandler},
org.apache.kafka.tools.TransactionsCommand (3.9); KIP-664.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import TRANSACTION_KEY, ClusterClient, Retries
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ConfigError, ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.protocol.messages import transactions as wire

ANY_DURATION = -1
ONGOING = "Ongoing"
_FENCED_TIMEOUT_MS = 60_000
_LIST_VERSION = 0
_LIST_BY_DURATION_VERSION = 1
_DESCRIBE_VERSION = 0
_WRITE_MARKERS_VERSION = 1
_PARTITIONS_MAX = 500  # in one DescribeProducers


class ListedTransaction(NamedTuple):
    """A transactional id in the list of its coordinator, a broker id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class OpenTransaction(NamedTuple):
    """A producer with an open transaction in a partition. `start_offset` is that of its first record there."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # -1: the producer has no marker in this partition yet
    start_offset: int
    last_timestamp_ms: int


class TransactionAdmin:
    """The requests. Raises Unanswered for a refusal, with its reason; ConfigError for what does not exist."""

    def __init__(
        self,
        cluster: ClusterClient,
        timeout_s: float,
        *,
        monotonic_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._retries = Retries(timeout_s, monotonic_s=monotonic_s, sleep=sleep)

    # --- transactional ids

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int = ANY_DURATION,
    ) -> list[ListedTransaction]:
        """The transactional ids of all coordinators: in these states, with these producer ids, with a transaction that
        has been open for longer than this. By default all."""
        request = wire.ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=min_duration_ms
        )
        version = _LIST_BY_DURATION_VERSION if min_duration_ms >= 0 else _LIST_VERSION
        found = []
        for broker_id in sorted(self._cluster.brokers):
            client = self._cluster.client(broker_id)
            response = self._retries.ask_coordinator(partial(client.ask, request, version))
            if response.error_code:
                raise Unanswered(f"broker {broker_id} does not list transactions: {name_of_error(response.error_code)}")
            if response.unknown_state_filters:
                raise ConfigError(f"there is no state {', '.join(response.unknown_state_filters)} of a transaction")
            found += [
                ListedTransaction(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
                for each in response.transaction_states
            ]
        return sorted(found)

    def describe(self, transactional_id: str) -> tuple[int, wire.DescribedTransaction] | None:
        """The coordinator and the state of a transactional id. None: it does not exist."""
        coordinator = NO_LEADER

        def ask() -> wire.DescribedTransaction:
            nonlocal coordinator
            error_code, coordinator = self._cluster.find_coordinator(transactional_id, TRANSACTION_KEY)
            if error_code:
                return wire.DescribedTransaction(error_code=error_code)
            ids = wire.DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response = self._cluster.client(coordinator).ask(ids, _DESCRIBE_VERSION)
            state: wire.DescribedTransaction = response.transaction_states[0]
            return state

        described: wire.DescribedTransaction = self._retries.ask_coordinator(ask)
        if described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        if described.error_code:
            raise Unanswered(f"{transactional_id} cannot be described: {name_of_error(described.error_code)}")
        return coordinator, described

    def fence(self, transactional_id: str) -> None:
        """Aborts the open transaction of a transactional id, if there is one, and fences its producer, as a new
        producer of the id does. Raises WriteFailed. Source: KafkaAdminClient (fenceProducers)."""
        self._retries.persist(
            f"the transaction of {transactional_id} is not aborted",
            lambda: self._cluster.init_producer_id(transactional_id, _FENCED_TIMEOUT_MS)[0],
        )

    # --- partitions

    def producers(self, partition: TopicPartition, broker_id: int | None = None) -> list[wire.DescribedProducer]:
        """The active producers of a partition, from its leader, or from the replica on `broker_id`."""
        broker_id = self._cluster.leader_of(partition) if broker_id is None else broker_id
        return next(iter(self._describe_producers(broker_id, [partition])))[1]

    def abort(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Append an abort marker for the producer's transaction to this one partition."""
        topic, index = partition
        marker = wire.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=max(coordinator_epoch, 0),  # without one: not greater than that of any coordinator
            transaction_result=False,
            topics=[wire.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        )
        leader = self._cluster.client(self._cluster.leader_of(partition))
        response = leader.ask(wire.WriteTxnMarkersRequest(markers=[marker]), _WRITE_MARKERS_VERSION)
        for each in (one for marker in response.markers for topic in marker.topics for one in topic.partitions):
            if each.error_code:
                name = name_of_error(each.error_code)
                raise Unanswered(f"the transaction in {topic}-{index} cannot be aborted: {name}")

    def open_transactions(self, partitions: Iterable[TopicPartition], broker_id: int | None) -> list[OpenTransaction]:
        """The open transactions in these partitions, from their leaders or from the replicas on `broker_id`."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for each in sorted(partitions):
            by_broker.setdefault(self._cluster.leader_of(each) if broker_id is None else broker_id, []).append(each)
        return sorted(
            OpenTransaction(
                *key,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp,
            )
            for broker, keys in by_broker.items()
            for key, producers in self._describe_producers(broker, keys)
            for producer in producers
            if producer.current_txn_start_offset >= 0
        )

    def hanging(self, open_transactions: Collection[OpenTransaction]) -> list[OpenTransaction]:
        """The subset of `open_transactions` that no coordinator will end: the transactional id is not known, or its
        current transaction does not include the partition."""
        if not open_transactions:
            return []
        producer_ids = {each.producer_id for each in open_transactions}
        expected: dict[int, set[TopicPartition]] = {}  # the partitions that get a marker, by producer id
        for listed in self.list_transactions(producer_ids=sorted(producer_ids)):
            described = self.describe(listed.transactional_id)
            if described is not None:
                expected.setdefault(listed.producer_id, set()).update(partitions_of(described[1]))
        return [
            each for each in open_transactions if (each.topic, each.partition) not in expected.get(each.producer_id, ())
        ]

    def partitions(self, topic: str | None, index: int | None, broker_id: int | None) -> list[TopicPartition]:
        """The partitions to search: of a topic, or one of them, or all; those with a replica on `broker_id`, if it is
        given."""
        found = [
            key
            for key, place in self._cluster.places.items()
            if topic in (None, key[0])
            and index in (None, key[1])
            and (place.leader != NO_LEADER if broker_id is None else broker_id in place.replicas)
        ]
        if topic is not None and not any(key[0] == topic for key in self._cluster.places):
            raise ConfigError(f"topic {topic} not found at {self._cluster.address}")
        if index is not None and (topic, index) not in self._cluster.places:
            raise ConfigError(f"partition {topic}-{index} not found at {self._cluster.address}")
        return found

    def not_led(self, topic: str | None) -> list[str]:
        """Complaints about the partitions, of a topic or of all, that `partitions` leaves out because they have no
        leader."""
        return self._cluster.not_led([] if topic is None else [topic])

    def _describe_producers(
        self, broker_id: int, partitions: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, list[wire.DescribedProducer]]]:
        client = self._cluster.client(broker_id)
        for start in range(0, len(partitions), _PARTITIONS_MAX):
            topics: dict[str, wire.DescribeProducersTopicRequest] = {}
            for name, index in partitions[start : start + _PARTITIONS_MAX]:
                topics.setdefault(name, wire.DescribeProducersTopicRequest(name=name)).partition_indexes.append(index)
            response = client.ask(wire.DescribeProducersRequest(topics=list(topics.values())), _DESCRIBE_VERSION)
            for topic in response.topics:
                for one in topic.partitions:
                    if one.error_code:
                        where = f"{topic.name}-{one.partition_index}"
                        why = one.error_message or name_of_error(one.error_code)
                        raise Unanswered(f"broker {broker_id} does not describe the producers of {where}: {why}")
                    yield (topic.name, one.partition_index), one.active_producers


def partitions_of(described: wire.DescribedTransaction) -> list[TopicPartition]:
    """The partitions of the current transaction; while it ends, the ones that still lack their marker."""
    return [(topic.topic, index) for topic in described.topics for index in topic.partitions]
