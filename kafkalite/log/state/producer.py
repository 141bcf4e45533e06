"""One producer of a partition, as the log remembers it.

Source: org.apache.kafka.storage.internals.log.{ProducerStateEntry, BatchMetadata}; KIP-98.
"""

from __future__ import annotations

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.state.producer_snapshots import SnapshotEntry
from kafkalite.record.batch import SEQUENCE_MAX

BATCHES_REMEMBERED = 5  # Java clients have at most as many in flight


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers shows it. `last_sequence` is -1 without a batch, `coordinator_epoch` without a
    marker, `txn_first_offset` without an open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_first_offset: int


class AppendedBatch(NamedTuple):
    """A batch in the log, as its producer may send it again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """One producer id. Invariant: `batches` are all of `epoch`, oldest first, at most five.

    `last_sequence` is that of the last batch, -1 without one. `txn_first_offset` is -1 without an open transaction.
    `is_from_snapshot`: the log may have batches of this epoch before the first of `batches`, of which no one knows yet.
    """

    __slots__ = (
        "batches", "coordinator_epoch", "epoch", "is_from_snapshot", "last_sequence", "last_timestamp_ms",
        "txn_first_offset",
    )  # fmt: skip

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = -1
        self.batches: list[AppendedBatch] = []
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.txn_first_offset = -1
        self.is_from_snapshot = False

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.is_from_snapshot = False
            self.batches.clear()
            self.last_sequence = -1

    def find(self, first_sequence: int, offset_delta: int) -> AppendedBatch | None:
        """The batch with these sequence numbers, if it is one of `batches`."""
        last_sequence = (first_sequence + offset_delta) & SEQUENCE_MAX
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == offset_delta:
                return batch
        return None

    def add(self, batch: AppendedBatch) -> None:
        batches = self.batches
        if len(batches) == BATCHES_REMEMBERED:
            del batches[0]
        batches.append(batch)
        self.last_sequence = batch[0]
        self.last_timestamp_ms = batch[3]

    def to_snapshot(self, producer_id: int) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else AppendedBatch(-1, -1, 0, -1)
        return SnapshotEntry(
            producer_id, self.epoch, last.last_sequence, last.last_offset, last.offset_delta, self.last_timestamp_ms,
            self.coordinator_epoch, self.txn_first_offset,
        )  # fmt: skip

    @classmethod
    def from_snapshot(cls, entry: SnapshotEntry) -> Producer:
        producer = cls(entry.epoch)
        if entry.last_offset >= 0:
            producer.add(AppendedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms))
            producer.is_from_snapshot = True
        producer.last_timestamp_ms = entry.timestamp_ms
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.txn_first_offset = entry.txn_first_offset
        return producer

    def describe(self, producer_id: int) -> ActiveProducer:
        return ActiveProducer(
            producer_id, self.epoch, self.last_sequence, self.last_timestamp_ms, self.coordinator_epoch,
            self.txn_first_offset,
        )  # fmt: skip


def stale_epoch(producer_id: int, epoch: int, last_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {producer_id} is smaller than the last seen epoch {last_epoch}",
    )


def no_beginning(producer_id: int, epoch: int, first_sequence: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {producer_id} begins epoch {epoch} with sequence number {first_sequence} instead of 0",
    )
