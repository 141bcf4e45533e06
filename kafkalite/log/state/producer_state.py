"""State of the idempotent producers of a partition: epoch, last sequence and the last five batches of each.

A duplicate is recognised by (epoch, first and last sequence) and answered with its first offset; a batch that does not
follow the last is refused. The state is written to `<offset>.snapshot` when a segment is rolled and when the log closes
(`producer_snapshot`); a start takes the newest snapshot and applies the batches behind it. A snapshot holds only the
last batch of each producer.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager, ProducerStateEntry, ProducerAppendInfo; KIP-98.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left, insort
from typing import NamedTuple

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.state.producer_snapshot import SnapshotEntry, decode_snapshot, encode_snapshot
from kafkalite.log.storage.file_names import SNAPSHOT, segment_stem
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import SEQUENCE_MAX, BatchHeader
from kafkalite.record.record import read_records

logger = logging.getLogger(__name__)

BATCHES_REMEMBERED = 5  # Java clients have at most as many in flight
EXPIRATION_MS = 86_400_000

_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
ABORT, COMMIT = 0, 1


class EndTxnMarker(NamedTuple):
    """The end of a transaction. `kind` is ABORT or COMMIT."""

    kind: int
    coordinator_epoch: int
    timestamp_ms: int


def read_marker(batch: memoryview) -> EndTxnMarker | None:
    """The marker in a control batch; None for another control record, and where compaction took the transaction.

    Raises Malformed.
    """
    records = read_records(batch)
    if not records:
        return None
    try:
        _, kind = _CONTROL_KEY.unpack_from(records[0].key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(records[0].value or b"")
    except struct.error as error:
        raise Malformed(str(error)) from None
    return EndTxnMarker(kind, coordinator_epoch, records[0].timestamp)


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
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_sequence", "last_timestamp_ms", "txn_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = -1
        self.batches: list[AppendedBatch] = []
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.txn_first_offset = -1

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = -1

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
        producer.last_timestamp_ms = entry.timestamp_ms
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.txn_first_offset = entry.txn_first_offset
        return producer


class ProducerState:
    """The producers of one partition. `snapshots` are the offsets of the existing snapshot files, ascending;
    `highest_id` is the greatest producer id that ever appended, expired or not, -1 without any.

    Invariant: `ongoing` maps the first offset of every open transaction to its producer id.
    """

    __slots__ = ("_directory", "_files", "_producers", "highest_id", "ongoing", "snapshots")

    def __init__(self, directory: str, snapshots: list[int], files: Files) -> None:
        self._files = files
        self._directory = directory
        self._producers: dict[int, Producer] = {}
        self.highest_id = -1
        self.ongoing: dict[int, int] = {}
        self.snapshots = sorted(snapshots)

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self.ongoing) if self.ongoing else None

    # append

    def check(self, producer_id: int, epoch: int, first_sequence: int, offset_delta: int) -> AppendedBatch | None:
        """Checks a batch outside any transaction: None if it may be appended, the earlier batch if it is a duplicate.

        Raises KafkaError: 45 a sequence is missing, 47 the epoch is over, 48 the producer is inside a transaction.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        in_sequence = first_sequence == (producer.last_sequence + 1) & SEQUENCE_MAX
        if epoch == producer.epoch and in_sequence and producer.txn_first_offset < 0:
            return None
        return self._check_closely(producer, producer_id, epoch, first_sequence, offset_delta)

    def _check_closely(
        self, producer: Producer, producer_id: int, epoch: int, first_sequence: int, offset_delta: int
    ) -> AppendedBatch | None:
        if epoch == producer.epoch:
            last_sequence = (first_sequence + offset_delta) & SEQUENCE_MAX
            for batch in producer.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == offset_delta:
                    return batch
            if first_sequence != (producer.last_sequence + 1) & SEQUENCE_MAX:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {producer_id}: {first_sequence} (incoming), "
                    f"{producer.last_sequence} (last appended)",
                )
        elif epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {producer_id} is smaller than the last seen epoch {producer.epoch}",
            )
        elif first_sequence != 0 and producer.epoch >= 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} begins epoch {epoch} with sequence number {first_sequence} instead of 0",
            )
        if producer.txn_first_offset >= 0:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"Producer {producer_id} is inside a transaction")
        return None

    def update(
        self, producer_id: int, epoch: int, first_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int
    ) -> None:
        """Adds a data batch that was appended."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._begin(producer_id, epoch)
        elif epoch != producer.epoch:
            producer.enter_epoch(epoch)
        last_sequence = (first_sequence + offset_delta) & SEQUENCE_MAX
        producer.add(AppendedBatch(last_sequence, last_offset, offset_delta, timestamp_ms))

    def _begin(self, producer_id: int, epoch: int) -> Producer:
        self.highest_id = max(self.highest_id, producer_id)
        producer = self._producers[producer_id] = Producer(epoch)
        return producer

    def last_batches(self, before_offset: int) -> dict[int, tuple[int, int]]:
        """The last data offset, -1 without one, and the epoch of each producer id whose last data offset is below
        `before_offset`. Source: UnifiedLog.lastRecordsOfActiveProducers."""
        found = {}
        for producer_id, producer in self._producers.items():
            last_offset = producer.batches[-1].last_offset if producer.batches else -1
            if last_offset < before_offset:
                found[producer_id] = last_offset, producer.epoch
        return found

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Drops producers that were silent for `expiration_ms`, except inside a transaction; returns their number."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.txn_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    # recovery

    def apply(self, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
        """Applies a batch of the log. Returns the transaction that it aborts, if it is an abort marker."""
        if header.producer_id < 0:
            return None
        if header.is_control:
            try:
                marker = read_marker(batch)
            except Malformed as error:
                logger.warning("control batch at offset %d in %s: %s", header.base_offset, self._directory, error)
                return None
            return None if marker is None else self.end_transaction(header, marker)
        if header.record_count == 0 and header.base_sequence < 0:
            return None
        last_offset = header.last_offset
        self.update(
            header.producer_id, header.producer_epoch, header.base_sequence, last_offset, header.last_offset_delta,
            header.max_timestamp,
        )  # fmt: skip
        producer = self._producers[header.producer_id]
        if header.is_transactional and producer.txn_first_offset < 0:
            producer.txn_first_offset = header.base_offset
            self.ongoing[header.base_offset] = header.producer_id
        return None

    def end_transaction(self, header: BatchHeader, marker: EndTxnMarker) -> AbortedTxn | None:
        """Applies the marker in the batch with `header`. Returns the transaction that it aborts, if it has data."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._begin(header.producer_id, header.producer_epoch)
        producer.enter_epoch(header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = marker.timestamp_ms
        first_offset, producer.txn_first_offset = producer.txn_first_offset, -1
        if first_offset < 0:
            return None
        self.ongoing.pop(first_offset, None)
        if marker.kind == COMMIT:
            return None
        stable = min(self.ongoing) if self.ongoing else header.last_offset + 1
        return AbortedTxn(header.producer_id, first_offset, header.last_offset, stable)

    def restore(self, start_offset: int, end_offset: int, now_ms: int, expiration_ms: int) -> int:
        """Takes the newest readable snapshot in [start_offset, end_offset]; returns the offset that it covers.

        Without one the state is empty and `start_offset` comes back. Corrupt snapshots are deleted, and so are those
        outside the range. Raises OSError.
        """
        self.clear()
        for offset in self.snapshots.copy():
            if not start_offset <= offset <= end_offset:
                self.drop_snapshot(offset)
        while self.snapshots:
            offset = self.snapshots[-1]
            path = self._path(offset)
            try:
                entries, excess_bytes = decode_snapshot(self._files.read(path))
                if excess_bytes:
                    raise Malformed(f"{excess_bytes} bytes behind its last producer")
            except (Malformed, FileNotFoundError) as error:
                logger.warning("%s is unusable (%s); falling back to an older one", path, error)
                self.drop_snapshot(offset)
                continue
            for entry in entries:
                self.highest_id = max(self.highest_id, entry.producer_id)
                if entry.txn_first_offset >= 0:
                    self.ongoing[entry.txn_first_offset] = entry.producer_id
                elif now_ms - entry.timestamp_ms >= expiration_ms:
                    continue
                self._producers[entry.producer_id] = Producer.from_snapshot(entry)
            return offset
        return start_offset

    def clear(self) -> None:
        self._producers.clear()
        self.ongoing.clear()

    # snapshot files

    def take_snapshot(self, offset: int) -> str | None:
        """Writes the state, which covers everything below `offset`; returns the path of the file, for the caller to
        fsync, or None if there is a newer snapshot. Raises OSError."""
        if offset <= (self.snapshots[-1] if self.snapshots else 0):
            return None
        path = self._path(offset)
        self._files.write_new(path, encode_snapshot([one.to_snapshot(i) for i, one in self._producers.items()]))
        insort(self.snapshots, offset)
        return path

    def keep_useful_snapshots(self, base_offsets: list[int]) -> None:
        """Deletes the snapshots at offsets where no segment begins, except the newest in the last segment.

        Raises OSError.
        """
        bases = set(base_offsets)
        strays = [offset for offset in self.snapshots if offset not in bases]
        if strays and strays[-1] >= base_offsets[-1]:
            strays.pop()
        for offset in strays:
            self.drop_snapshot(offset)

    def drop_snapshot(self, offset: int) -> None:
        """Deletes the snapshot at `offset`, if there is one. Raises OSError."""
        if self.forget_snapshot(offset):
            self._files.unlink_if_exists(self._path(offset))

    def forget_snapshot(self, offset: int) -> bool:
        """Returns whether there was a snapshot at `offset`; its file is deleted elsewhere."""
        at = bisect_left(self.snapshots, offset)
        if at == len(self.snapshots) or self.snapshots[at] != offset:
            return False
        del self.snapshots[at]
        return True

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_stem(offset)}{SNAPSHOT}"
