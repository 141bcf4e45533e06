"""State of the producers of a partition: epoch, last sequence, the last five batches and the open transaction of each.

A duplicate is recognised by (epoch, first and last sequence) and answered with its first offset; a batch that does not
follow the last is refused. A transactional batch opens a transaction, if its producer is verified
(`transaction_verification`), and a marker ends it. The state is written to `<offset>.snapshot` when a segment is rolled
and when the log closes (`producer_snapshots`); a start takes the newest snapshot and applies the batches behind it. A
snapshot holds only the last batch of each producer. Earlier ones are looked up in the log when a batch comes that
does not follow the last: it may be the first of several that were appended, and not answered, before a restart. Kafka
refuses it, and librdkafka gives up for good then.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager, ProducerStateEntry, ProducerAppendInfo; KIP-98.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.state.awaited_batches import AwaitedBatches
from kafkalite.log.state.producer import (
    BATCHES_REMEMBERED,
    ActiveProducer,
    AppendedBatch,
    Producer,
    no_beginning,
    stale_epoch,
)
from kafkalite.log.state.producer_snapshots import ProducerSnapshots
from kafkalite.log.state.transaction_verification import VerificationGuard, Verifications
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import SEQUENCE_MAX, BatchHeader
from kafkalite.record.transaction_marker import TransactionMarker, read_marker

logger = logging.getLogger(__name__)

EXPIRATION_MS = 86_400_000
_LAST_EPOCH = 32_767  # of a producer id
_new = tuple.__new__  # 0.1 us less than AppendedBatch(...)

NO_TRANSACTION = (1 << 63) - 1
"""The first unstable offset of a log in which no transaction is open."""


EarlierBatches = Callable[[int, int, int, int], Iterable[AppendedBatch]]


class ProducerState:
    """The producers of one partition. `snapshots` are the files of their state; `highest_id` is the greatest producer
    id that ever appended, expired or not, -1 without any.

    `ongoing` maps the first offset of every open transaction to its producer id. `unacknowledged` has the marker's
    offset and the first offset of each transaction that has ended, and whose marker the log has not acknowledged.
    `first_unstable_offset` is the lowest first offset of all these, NO_TRANSACTION without any: no read_committed
    reader may go beyond it. `earlier_batches` reads from the log, for a producer id and its epoch, batches before an
    offset, up to so many.

    Invariant: `ongoing` ascends, and `unacknowledged` by its markers.
    """

    __slots__ = (
        "_awaited", "_directory", "_producers", "earlier_batches", "first_unstable_offset", "highest_id",
        "ongoing", "snapshots", "unacknowledged", "verifications",
    )  # fmt: skip

    def __init__(self, directory: str, snapshots: list[int], files: Files) -> None:
        self._directory = directory
        self._producers: dict[int, Producer] = {}
        self._awaited = AwaitedBatches()
        self.highest_id = -1
        self.ongoing: dict[int, int] = {}
        self.unacknowledged: deque[tuple[int, int]] = deque()
        self.first_unstable_offset = NO_TRANSACTION
        self.verifications = Verifications()
        self.earlier_batches: EarlierBatches = lambda *_: ()
        self.snapshots = ProducerSnapshots(directory, snapshots, files)

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def active(self) -> list[ActiveProducer]:
        """Every producer that has not expired."""
        return [producer.describe(producer_id) for producer_id, producer in self._producers.items()]

    @property
    def oldest_open(self) -> ActiveProducer | None:
        """The producer of the transaction that has been open for longest."""
        for producer_id in self.ongoing.values():
            return self._producers[producer_id].describe(producer_id)
        return None

    def move(self, directory: str, snapshots: list[int]) -> None:
        """The log continues in another directory, which has these snapshots."""
        self._directory = directory
        self.snapshots.move(directory, snapshots)

    # append

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, *, own_epochs: bool = False
    ) -> VerificationGuard | None:
        """The guard for the first batch of a transaction, to be presented when the coordinator has confirmed it; None
        if the transaction or one of a later epoch is open here, so that there is nothing to verify. `own_epochs`: each
        of the producer's transactions has its own epoch. Raises KafkaError(INVALID_PRODUCER_EPOCH) for an old one."""
        producer = self._producers.get(producer_id)
        if own_epochs and producer is not None and epoch < producer.epoch:
            raise stale_epoch(producer_id, epoch, producer.epoch)
        if producer is not None and producer.txn_first_offset >= 0 and epoch <= producer.epoch:
            return None
        return self.verifications.begin(producer_id, epoch, first_sequence, own_epochs=own_epochs)

    def await_batch(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """A batch was refused for a transient reason: without a state of its producer no later one goes before it."""
        if producer_id not in self._producers:
            self._awaited.add(producer_id, epoch, first_sequence)

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, offset_delta: int, is_transactional: object = False,
        guard: VerificationGuard | None = None,
    ) -> AppendedBatch | None:  # fmt: skip
        """Checks a producer's batch: None if it may be appended, the earlier batch if it is a duplicate.

        Raises KafkaError: 45 a sequence is missing, 47 the epoch is over, 48 a batch outside the open transaction, and
        UnverifiedTransaction for one that would open a transaction, unless `guard` is the current one. A batch that
        appears to be a duplicate of a transaction that has ended would open another one, and is 45 then.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            self._awaited.check(producer_id, epoch, first_sequence)
            if is_transactional:
                self.verifications.require(producer_id, guard)
                if first_sequence and self.verifications.has_own_epochs(producer_id):
                    raise no_beginning(producer_id, epoch, first_sequence)
                self._check_lowest_sequence(producer_id, first_sequence)
            return None
        if epoch == producer.epoch and first_sequence == (producer.last_sequence + 1) & SEQUENCE_MAX:
            if producer.txn_first_offset < 0:
                if not is_transactional:
                    return None
            elif is_transactional:
                return None
        return self._check_closely(producer, producer_id, epoch, first_sequence, offset_delta, is_transactional, guard)

    def _check_closely(
        self, producer: Producer, producer_id: int, epoch: int, first_sequence: int, offset_delta: int,
        is_transactional: object, guard: VerificationGuard | None,
    ) -> AppendedBatch | None:  # fmt: skip
        if epoch == producer.epoch:
            batch = producer.find(first_sequence, offset_delta)
            if batch is None and producer.is_from_snapshot:
                self._remember_earlier(producer_id, producer)
                batch = producer.find(first_sequence, offset_delta)
            if batch is not None:
                if is_transactional and producer.txn_first_offset < 0:
                    self._refuse_of_ended(producer_id, first_sequence, guard)
                return batch
        self._check_transaction(producer, producer_id, epoch, is_transactional, guard)
        self._check_lowest_sequence(producer_id, first_sequence)
        if epoch == producer.epoch:
            if first_sequence != (producer.last_sequence + 1) & SEQUENCE_MAX:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {producer_id}: {first_sequence} (incoming), "
                    f"{producer.last_sequence} (last appended)",
                )
        elif first_sequence != 0 and producer.epoch >= 0:
            raise no_beginning(producer_id, epoch, first_sequence)
        if producer.txn_first_offset >= 0 and not is_transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"Producer {producer_id} is inside a transaction")
        return None

    def _remember_earlier(self, producer_id: int, producer: Producer) -> None:
        """Once after a start. Raises StorageError."""
        batches = producer.batches
        if missing := BATCHES_REMEMBERED - len(batches):
            batches[:0] = self.earlier_batches(producer_id, producer.epoch, batches[0].first_offset, missing)
        producer.is_from_snapshot = False

    def _refuse_of_ended(self, producer_id: int, first_sequence: int, guard: VerificationGuard | None) -> None:
        """A batch with the sequence numbers of one whose transaction has ended, for a new transaction. No producer
        waits for an answer to the old one: it has aborted it, and uses its numbers again for other records. librdkafka
        does if it takes a batch for not stored; to take these for a duplicate would lose them."""
        self.verifications.require(producer_id, guard)
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Sequence number {first_sequence} of producer {producer_id} is in a transaction that has ended",
        )

    def _check_transaction(
        self, producer: Producer, producer_id: int, epoch: int, is_transactional: object,
        guard: VerificationGuard | None,
    ) -> None:  # fmt: skip
        """The epoch, and whether a transactional batch belongs to an open or to a verified transaction. A transaction
        of an earlier epoch that is still open is another one."""
        if epoch < producer.epoch:
            raise stale_epoch(producer_id, epoch, producer.epoch)
        if is_transactional and (producer.txn_first_offset < 0 or epoch != producer.epoch):
            self.verifications.require(producer_id, guard)

    def _check_lowest_sequence(self, producer_id: int, first_sequence: int) -> None:
        """During a verification the lowest sequence must be appended first: an earlier batch may be tried again."""
        lowest = self.verifications.lowest_sequence(producer_id)
        if lowest is not None and first_sequence > lowest:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id}: {first_sequence} (incoming), {lowest} "
                "(earliest seen)",
            )

    def check_own(self, header: BatchHeader, batch: memoryview, guard: VerificationGuard | None) -> None:
        """Checks a batch that the broker made for a producer: a marker, or a group's offsets. These have no sequence
        numbers. Raises KafkaError: 47, 48 and UnverifiedTransaction as `check`, 52 the marker's coordinator is over."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._producers.get(producer_id)
        if not header.is_control:
            if producer is None:
                producer = Producer(-1)
            self._check_transaction(producer, producer_id, epoch, header.is_transactional, guard)
            if producer.txn_first_offset >= 0 and not header.is_transactional:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"Producer {producer_id} is inside a transaction")
        elif producer is not None and (marker := read_marker(batch)) is not None:
            if epoch < producer.epoch:
                raise stale_epoch(producer_id, epoch, producer.epoch)
            if marker.coordinator_epoch < producer.coordinator_epoch:
                raise KafkaError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"Coordinator epoch {marker.coordinator_epoch} of a marker of producer {producer_id} is smaller "
                    f"than the last seen epoch {producer.coordinator_epoch}",
                )

    def check_marker_epoch(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """Refuses a late marker: with transaction.version=2 each transaction has an epoch of its own, and its marker
        the next one, so a marker with the epoch of an open transaction is a copy of the last one's, which a network
        has delayed (KIP-1228). Raises KafkaError(INVALID_PRODUCER_EPOCH); `check_own` has the other refusals.

        Where none is open, the marker is tried again. Nothing comes after the last epoch, so it may be both."""
        producer = self._producers.get(producer_id)
        if transaction_version < 2 or producer is None or epoch != producer.epoch or epoch == _LAST_EPOCH:
            return
        if producer.txn_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"A marker of producer {producer_id} has the epoch of its open transaction, {epoch}, and not the next",
            )

    def update(
        self, producer_id: int, epoch: int, first_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int,
        is_transactional: object = False,
    ) -> None:  # fmt: skip
        """Adds a data batch that was appended; the first of a transaction opens it."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._begin(producer_id, epoch)
        elif epoch != producer.epoch:
            producer.enter_epoch(epoch)
        last_sequence = (first_sequence + offset_delta) & SEQUENCE_MAX
        producer.add(_new(AppendedBatch, (last_sequence, last_offset, offset_delta, timestamp_ms)))
        if is_transactional and producer.txn_first_offset < 0:
            first_offset = producer.txn_first_offset = last_offset - offset_delta
            self.ongoing[first_offset] = producer_id
            if first_offset < self.first_unstable_offset:
                self.first_unstable_offset = first_offset
            self.verifications.end(producer_id)

    def _begin(self, producer_id: int, epoch: int) -> Producer:
        self.highest_id = max(self.highest_id, producer_id)
        producer = self._producers[producer_id] = Producer(epoch)
        self._awaited.forget(producer_id)
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
        self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    # recovery

    def apply(self, header: BatchHeader, batch: memoryview, *, acknowledged: bool = True) -> AbortedTxn | None:
        """Applies a batch of the log. Returns the transaction that it aborts, if it is an abort marker."""
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        if header.is_control:
            marker = self.marker_in(header, batch)
            if marker is None:
                return None
            aborted = self.aborted_by(header, marker)
            self.end_transaction(header, marker, acknowledged=acknowledged)
            return aborted
        if header.record_count == 0 and header.base_sequence < 0:
            return None
        self.update(
            producer_id, header.producer_epoch, header.base_sequence, header.last_offset, header.last_offset_delta,
            header.max_timestamp, header.is_transactional,
        )  # fmt: skip
        return None

    # transactions

    def marker_in(self, header: BatchHeader, batch: memoryview) -> TransactionMarker | None:
        """The marker in a control batch of the log, None if it is none."""
        try:
            return read_marker(batch) if header.producer_id >= 0 else None
        except Malformed as error:
            logger.warning("control batch at offset %d in %s: %s", header.base_offset, self._directory, error)
            return None

    def aborted_by(self, header: BatchHeader, marker: TransactionMarker) -> AbortedTxn | None:
        """The entry of the transaction index for a marker that is in the log, if it aborts a transaction."""
        producer = self._producers.get(header.producer_id)
        if marker.commit or producer is None or producer.txn_first_offset < 0:
            return None
        own = producer.txn_first_offset
        stable = next((first for first in self.ongoing if first != own), header.last_offset + 1)
        return AbortedTxn(header.producer_id, own, header.last_offset, stable)

    def end_transaction(self, header: BatchHeader, marker: TransactionMarker, *, acknowledged: bool = True) -> None:
        """Applies a marker that is in the log. Until it is `acknowledged`, its transaction stays unstable."""
        producer_id = header.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._begin(producer_id, header.producer_epoch)
        producer.enter_epoch(header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = marker.timestamp_ms
        self.verifications.end(producer_id)
        first_offset, producer.txn_first_offset = producer.txn_first_offset, -1
        if first_offset >= 0:
            self.ongoing.pop(first_offset, None)
            if not acknowledged:
                self.unacknowledged.append((header.last_offset, first_offset))
            elif first_offset == self.first_unstable_offset:
                self._find_first_unstable()

    def acknowledge(self, ack_offset: int) -> None:
        """The log acknowledges everything below `ack_offset`: transactions whose marker lies there are stable."""
        unacknowledged = self.unacknowledged
        if not unacknowledged:
            return
        while unacknowledged and unacknowledged[0][0] < ack_offset:
            unacknowledged.popleft()
        self._find_first_unstable()

    def forget_markers_from(self, offset: int) -> None:
        """The log is truncated to `offset`, or its batches are applied again from there."""
        self.unacknowledged = deque(one for one in self.unacknowledged if one[0] < offset)
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first_offset = next(iter(self.ongoing), NO_TRANSACTION)
        if self.unacknowledged:
            first_offset = min(first_offset, min(first for _, first in self.unacknowledged))
        self.first_unstable_offset = first_offset

    # recovery

    def restore(self, start_offset: int, end_offset: int, now_ms: int, expiration_ms: int) -> int:
        """Takes the newest readable snapshot in [start_offset, end_offset]; returns the offset that it covers.

        Without one the state is empty and `start_offset` comes back. Corrupt snapshots are deleted, and so are those
        outside the range. Raises OSError.
        """
        self.clear()
        found = self.snapshots.newest(start_offset, end_offset)
        if found is None:
            return start_offset
        offset, entries = found
        for entry in entries:
            self.highest_id = max(self.highest_id, entry.producer_id)
            if entry.txn_first_offset >= 0 or now_ms - entry.timestamp_ms < expiration_ms:
                self._producers[entry.producer_id] = Producer.from_snapshot(entry)
        opened = sorted((one.txn_first_offset, i) for i, one in self._producers.items() if one.txn_first_offset >= 0)
        self.ongoing = dict(opened)
        self._find_first_unstable()
        return offset

    def clear(self) -> None:
        self._producers.clear()
        self.ongoing = {}
        self._find_first_unstable()

    def take_snapshot(self, offset: int) -> str | None:
        """Writes the state, which covers everything below `offset`; returns the path of the file, for the caller to
        fsync, or None if there is a newer snapshot. Raises OSError."""
        offsets = self.snapshots.offsets
        if offset <= (offsets[-1] if offsets else 0):
            return None
        return self.snapshots.write(offset, [one.to_snapshot(i) for i, one in self._producers.items()])
