"""Records one by one into a topic, for `kafkalite produce` and the console: idempotent, acks=all, without Arrow.

Records are collected in a batch for each partition and sent by `flush`, which waits for the responses. A record with a
key has the partition that Java's clients choose, one without a partition that changes with each flush.
Source: org.apache.kafka.clients.producer.KafkaProducer, KIP-98, KIP-480.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.common.checksum import partition_for_key
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.compression import NONE

_PRODUCE_VERSION = 8
_ALL = -1
_SEQUENCE_MASK = 0x7FFFFFFF
_BATCH_OVERHEAD_BYTES = 512
_RECORD_OVERHEAD_BYTES = 24
_BATCH_BYTES = 512 * 1024


class RecordWriter:
    """Writes into one topic. Raises WriteFailed, whose text is for the user, Unanswered and ConfigError."""

    def __init__(self, cluster: ClusterClient, topic: str, retries: Retries, codec: int = NONE) -> None:
        self._cluster = cluster
        self._topic = topic
        self._retries = retries
        self._codec = codec
        self._waiting: dict[int, list[NewRecord]] = {}
        self._waiting_bytes = 0
        self._sequences: dict[int, int] = {}
        self._sticky = 0
        self.written = 0
        self.base_offsets: dict[int, int] = {}  # of the last batch in each partition
        retries.persist(f"topic {topic} cannot be written to", self._refresh)
        self._partitions = cluster.partition_count(topic)
        self._batch_bytes = min(_BATCH_BYTES, cluster.max_batch_bytes(topic) - _BATCH_OVERHEAD_BYTES)
        self._producer_id, self._epoch = retries.persist("no producer id is available", self._identify)

    def add(self, record: NewRecord, partition: int | None = None) -> None:
        """Buffers a record; flushes first if the batch is full. Raises ValueError for a partition that does not
        exist."""
        if partition is None:
            partition = self._sticky if record.key is None else partition_for_key(record.key, self._partitions)
        elif not 0 <= partition < self._partitions:
            last = self._partitions - 1
            raise ValueError(f"is for partition {partition}, and topic {self._topic} has the partitions 0 to {last}")
        size = _size(record)
        if self._waiting_bytes and self._waiting_bytes + size > self._batch_bytes:
            self.flush()
        self._waiting.setdefault(partition, []).append(record)
        self._waiting_bytes += size

    def flush(self) -> None:
        """Returns when all added records are on every in-sync replica."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        batches = {}
        for partition, records in waiting.items():
            first = self._sequences.get(partition, 0)
            self._sequences[partition] = first + len(records) & _SEQUENCE_MASK
            batches[partition] = build_batch(
                records,
                codec=self._codec,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=first,
            )
        if batches:
            self._retries.persist(f"records for {self._topic} are not written", lambda: self._attempt(batches))
            self.written += sum(map(len, waiting.values()))
        self._sticky = random.randrange(self._partitions)

    def _attempt(self, batches: dict[int, bytearray]) -> int:
        """Sends the remaining `batches`, and removes those that are stored. Returns the code of a retriable error, or
        0. Raises Unanswered, WriteFailed."""
        try:
            code = self._send(batches)
        except Unanswered:
            self._refresh()
            raise
        if code:
            self._refresh()
        return code

    def _send(self, batches: dict[int, bytearray]) -> int:
        last = int(ErrorCode.NONE)
        for leader, mine in self._by_leader(batches).items():
            data = [PartitionProduceData(index=index, records=memoryview(batch)) for index, batch in mine.items()]
            request = ProduceRequest(
                acks=_ALL,
                timeout_ms=int(self._retries.timeout_s * 1000),
                topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
            )
            answer = self._cluster.leader(leader).ask(request, _PRODUCE_VERSION)
            for one in answer.responses[0].partition_responses:
                if one.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    del batches[one.index]
                    self.base_offsets[one.index] = one.base_offset
                elif not ErrorCode.of(one.error_code).is_retriable:
                    why = one.error_message or ""
                    name = name_of_error(one.error_code)
                    raise WriteFailed(f"{self._topic}-{one.index} refuses records: {name} {why}".rstrip())
                else:
                    last = one.error_code
        return last

    def _by_leader(self, batches: Mapping[int, bytearray]) -> dict[int, dict[int, bytearray]]:
        led: dict[int, dict[int, bytearray]] = {}
        for index, batch in batches.items():
            led.setdefault(self._cluster.leader_of((self._topic, index)), {})[index] = batch
        return led

    def _refresh(self) -> int:
        """Refreshes the leaders. Returns the error code of the topic."""
        return self._cluster.refresh([self._topic]).get(self._topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _identify(self) -> int | tuple[int, int]:
        code, producer_id, epoch = self._cluster.init_producer_id(None, 0)
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return -1, -1  # no InitProducerId permission: without idempotence, so a retry may duplicate
        return code or (producer_id, epoch)


def _size(record: NewRecord) -> int:
    """About the bytes in a batch."""
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD_BYTES
