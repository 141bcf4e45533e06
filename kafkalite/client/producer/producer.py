"""A producer for bulk loads: several requests in flight, batches in order per partition, none lost or duplicated.

Batches of a partition have ascending sequences of one producer id, so a broker recognises a duplicate. After a
retriable error or a lost connection the producer waits for everything in flight, returns batches without an
acknowledgement to the front of their partition's queue, refreshes the leaders, and sends them again in their order.
Without idempotence (acks 0 or 1) a retry may store a batch twice, as with any Kafka producer.
Source: org.apache.kafka.clients.producer.internals.{Sender, RecordAccumulator, TransactionManager}; KIP-98, KIP-185.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.producer.options import ProducerOptions
from kafkalite.client.producer.transactions import Identity, Transactions
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC,
    SEQUENCE_MAX,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    assemble_header,
)
from kafkalite.record.compression import NONE, compress

_PRODUCE_VERSION = 9
_BACKOFF_MAX_S = 1.0
_ACKNOWLEDGED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class RecordRun(NamedTuple):
    """The records of one batch, uncompressed, and the header's fields about them."""

    records: memoryview
    record_count: int
    base_timestamp: int
    max_timestamp: int


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch that waits or is in flight. `number` counts the batches of its partition. Header and records are not
    joined.
    """

    partition: TopicPartition
    number: int
    header: bytearray
    records: Buffer

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self.records)


class _Request(NamedTuple):
    """A produce in flight."""

    client: BlockingClient
    batches: list[_Batch]


Stored = Callable[[TopicPartition, int, int], None]
"""Notified of an acknowledged batch: its partition, its number there, and its base offset, -1 if that is unknown."""


class Producer:
    """Sends batches; after `flush` all are acknowledged. With an `identity` they belong to its transaction.

    Raises WriteFailed, which names the partition and the reason; the producer is of no use then."""

    def __init__(
        self,
        options: ProducerOptions,
        cluster: ClusterClient,
        retries: Retries,
        identity: Identity | None = None,
        on_stored: Stored | None = None,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._retries = retries
        self._transactions = Transactions(cluster, retries)
        self._identity = identity
        self._waiting: dict[TopicPartition, deque[_Batch]] = {}
        self._in_flight: dict[BlockingClient, deque[_Request]] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._numbers: dict[TopicPartition, int] = {}
        self._failing_since_s: float | None = None
        self._on_stored = on_stored
        self._added: set[TopicPartition] = set()  # to the transaction
        self._begun: set[TopicPartition] = set()  # with an acknowledged batch
        self.partition_counts: dict[str, int] = {}
        self._max_batch_bytes: dict[str, int] = {}
        if options.idempotent and identity is None:
            self._identity = self._transactions.begin(None, options.transaction_timeout_ms)

    def open_topic(self, topic: str) -> None:
        """Get the partitions and limits of a topic. Raises WriteFailed if it is not created in time."""
        if topic in self.partition_counts:
            return

        def refresh() -> int:
            code = self._cluster.refresh([topic])[topic]
            if code:
                return code
            self._max_batch_bytes[topic] = self._cluster.max_batch_bytes(topic)
            self.partition_counts[topic] = self._cluster.partition_count(topic)
            return ErrorCode.NONE

        self._retries.persist(f"topic {topic!r} cannot be written", refresh)

    def batch_bytes(self, topic: str) -> int:
        """The bytes that a batch of this topic may have before compression; only a single large row may have more."""
        return min(self._options.batch_bytes, self._options.max_request_bytes, self._max_batch_bytes[topic])

    def row_bytes(self, topic: str) -> tuple[int, str]:
        """The bytes that a batch with one row may have, and the name of the setting that says so. A compressed one may
        be smaller than its row, so the topic's limit is left to `add` then."""
        limits = [(self._options.max_request_bytes, "kafka.max.request.size")]
        if self._options.codec == NONE:
            limits.append((self._max_batch_bytes[topic], f"max.message.bytes of topic {topic!r}"))
        return min(limits)

    def add(self, partition: TopicPartition, run: RecordRun) -> None:
        """Queue the records of a batch; `flush` sends it at the latest."""
        codec = self._options.codec
        records = run.records if codec == NONE else compress(codec, run.records, self._options.level)
        self.add_batch(partition, codec, run.record_count, run.base_timestamp, run.max_timestamp, records)

    def add_batch(
        self,
        partition: TopicPartition,
        codec: int,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
        records: Buffer,
    ) -> int:
        """Queue a batch whose records are compressed already, with the offset deltas from 0 on. Returns its number in
        the partition."""
        number = self._numbers.get(partition, 0)
        self._numbers[partition] = number + 1
        header = self._header(partition, codec & CODEC_MASK, record_count, base_timestamp, max_timestamp)
        batch = _Batch(partition, number, assemble_header(header, records), records)
        most = self._max_batch_bytes[partition[0]]
        if batch.size_bytes > most:
            raise WriteFailed(
                f"a row for {partition[0]}-{partition[1]} makes a batch of {batch.size_bytes} bytes, and the topic's "
                f"max.message.bytes is {most}; raise it, or write smaller rows"
            )
        self._waiting.setdefault(partition, deque()).append(batch)
        return number

    def begin_transaction(self) -> None:
        """Begin the identity's next transaction, after the last one has ended."""
        self._added.clear()

    def add_to_transaction(self, group_id: str = "") -> None:
        """Make the partitions of queued batches part of the transaction, and with them the offsets of a group. Without
        this `send` adds the partitions."""
        if self._identity is None or self._identity.transactional_id is None:
            return
        waiting = {partition for partition, batches in self._waiting.items() if batches}
        new = sorted(waiting - self._added)
        if new or group_id:
            self._transactions.add(self._identity, new, group_id)
            self._added.update(new)

    def send(self) -> None:
        """Send the queued batches; at most in_flight_max requests per broker are in flight."""
        while any(self._waiting.values()):
            try:
                self.add_to_transaction()
                for broker_id, partitions in self._by_leader().items():
                    self._send_to(self._cluster.leader(broker_id), partitions)
            except Unanswered as error:
                self._drain()
                self._back_off(str(error))

    def flush(self) -> None:
        """Send all batches, and wait until they are acknowledged."""
        while True:
            self.send()
            if not (why := self._drain()):
                return
            self._back_off(why)

    # --- sending

    def _header(
        self, partition: TopicPartition, codec: int, record_count: int, base_timestamp: int, max_timestamp: int
    ) -> BatchHeader:
        identity = self._identity
        attributes, producer_id, epoch, sequence = codec, -1, -1, -1
        if identity is not None:
            attributes |= TRANSACTIONAL if identity.transactional_id is not None else 0
            producer_id, epoch = identity.producer_id, identity.producer_epoch
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = (sequence + record_count) & SEQUENCE_MAX
        return BatchHeader(
            0, 0, -1, MAGIC, 0, attributes, record_count - 1, base_timestamp, max_timestamp,
            producer_id, epoch, sequence, record_count,
        )  # fmt: skip

    def _by_leader(self) -> dict[int, list[TopicPartition]]:
        """The partitions with waiting batches by the broker that leads them. Raises Unanswered without a leader."""
        leaders: dict[int, list[TopicPartition]] = {}
        for partition, batches in self._waiting.items():
            if batches:
                leaders.setdefault(self._cluster.leader_of(partition), []).append(partition)
        return leaders

    def _send_to(self, client: BlockingClient, partitions: list[TopicPartition]) -> None:
        """Send one batch of each partition, as many as a request takes; then the next ones, until none waits."""
        in_flight = self._in_flight.setdefault(client, deque())
        while any(self._waiting[partition] for partition in partitions):
            while len(in_flight) >= self._options.in_flight_max:
                self._receive(client)
            batches = self._next_batches(partitions)
            if not batches:
                self._receive(client)
                continue
            in_flight.append(_Request(client, batches))  # before it is sent: it may arrive though sending fails
            if self._options.acks:
                client.send(self._request(batches), _PRODUCE_VERSION)
            else:
                client.send_unanswered(self._request(batches), _PRODUCE_VERSION)
                in_flight.pop()

    def _next_batches(self, partitions: list[TopicPartition]) -> list[_Batch]:
        """The next batch of each partition. Behind the very first one of a partition none is sent until it is
        acknowledged: a broker accepts any first sequence of a producer that it does not know, so a second batch that
        overtakes a first one that is refused would take its place."""
        batches: list[_Batch] = []
        size = 0
        for partition in partitions:
            waiting = self._waiting[partition]
            if not waiting or (self._options.acks and waiting[0].number and partition not in self._begun):
                continue
            if not batches or size + waiting[0].size_bytes <= self._options.max_request_bytes:
                batches.append(waiting.popleft())
                size += batches[-1].size_bytes
        return batches

    def _request(self, batches: Iterable[_Batch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic, index = batch.partition
            parts: Any = [batch.header, batch.records]  # the encoder sends them one behind the other
            data = PartitionProduceData(index=index, records=parts)
            topics.setdefault(topic, TopicProduceData(name=topic)).partition_data.append(data)
        return ProduceRequest(
            transactional_id=self._identity.transactional_id if self._identity is not None else None,
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # --- responses

    def _receive(self, client: BlockingClient) -> None:
        """Handle the response to the oldest request. Raises Unanswered if a batch must be sent again; it is queued
        then.
        """
        request = self._in_flight[client][0]
        response = client.receive(ProduceRequest, _PRODUCE_VERSION)
        self._in_flight[client].popleft()
        answers = {(topic.name, one.index): one for topic in response.responses for one in topic.partition_responses}
        again: list[str] = []
        for batch in request.batches:
            answer = answers.get(batch.partition)
            code = ErrorCode.NETWORK_EXCEPTION if answer is None else answer.error_code
            if code in _ACKNOWLEDGED:
                self._failing_since_s = None
                self._begun.add(batch.partition)
                if self._on_stored is not None:
                    base_offset = -1 if answer is None or code else answer.base_offset
                    self._on_stored(batch.partition, batch.number, base_offset)
                continue
            where = f"{batch.partition[0]}-{batch.partition[1]}"
            why = f"{where}: {name_of_error(code)}"
            if not self._may_retry(batch, code):
                said = f" ({answer.error_message})" if answer is not None and answer.error_message else ""
                raise WriteFailed(f"the broker refuses a batch for {why}{said}")
            self._wait_again(batch)
            again.append(why)
        if again:
            raise Unanswered(again[0])

    def _may_retry(self, batch: _Batch, code: int) -> bool:
        """Whether a refused batch is retried: OUT_OF_ORDER, too, if it follows one that is sent again."""
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return any(each.number < batch.number for each in self._waiting.get(batch.partition, ()))
        return ErrorCode.of(code).is_retriable

    def _wait_again(self, batch: _Batch) -> None:
        waiting = self._waiting.setdefault(batch.partition, deque())
        place = next((at for at, each in enumerate(waiting) if each.number > batch.number), len(waiting))
        waiting.insert(place, batch)

    def _drain(self) -> str:
        """Wait for everything in flight; batches to be sent again are queued. Returns the reason for that, or ""."""
        why = ""
        for client in list(self._in_flight):
            self._give_up(client)
            while self._in_flight.get(client):
                try:
                    self._receive(client)
                except Unanswered as error:
                    why = why or str(error)
                    self._give_up(client)
            self._in_flight.pop(client, None)
        return why

    def _give_up(self, client: BlockingClient) -> None:
        """Queue the batches of a lost connection's requests again, in their order."""
        if client.is_lost:
            for request in self._in_flight.pop(client, ()):
                for batch in request.batches:
                    self._wait_again(batch)

    def _back_off(self, why: str) -> None:
        """Wait, and refresh the leaders. Raises WriteFailed when nothing has succeeded for too long."""
        now_s = self._retries.monotonic_s()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        failing_s = now_s - self._failing_since_s
        if failing_s * 1000 >= self._options.delivery_timeout_ms:
            raise WriteFailed(f"nothing could be written for {failing_s:.0f} s (kafka.delivery.timeout.ms): {why}")
        first_s = self._retries.backoff_s
        self._retries.sleep(min(max(first_s, failing_s / 2), max(first_s, _BACKOFF_MAX_S)))
        try:
            self._cluster.refresh(self.partition_counts)
        except Unanswered as error:
            self._back_off(str(error))
