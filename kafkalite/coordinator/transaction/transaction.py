"""The transactions of one transactional id: which request is accepted, and in which order changes become durable.

A decision takes values and the time (wall-clock milliseconds) and returns effects. A change is `pending` until its
record is stored (`on_append`); until then every other change gets CONCURRENT_TRANSACTIONS. When the outcome of a
transaction is stored, the client gets its answer and the markers are written; when the last one is written
(`on_marker_written`), the completion is stored.

A producer is fenced by a higher epoch: by InitProducerId of its successor, by the time-out of its transaction, and with
transaction.version=2 after every transaction, so that a late request of an earlier one is recognised. The epoch of a
fenced transaction's abort is never given to a client.
Source: kafka.coordinator.transaction.{TransactionMetadata, TransactionCoordinator} (3.9; for transaction.version=2 4.0
with KAFKA-18660 and KAFKA-19367); KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Collection

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch, TopicPartition
from kafkalite.coordinator.runtime.effects import Answer, Append, SetTimer, Waiter
from kafkalite.coordinator.transaction.transaction_state import (
    COMPLETED_AS,
    DEAD,
    EMPTY,
    END_RETRY_ERROR,
    ENTERED_FROM,
    EPOCH_MAX,
    IDLE,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    AllocateProducerId,
    CompletionStored,
    EndStored,
    EndTransactionResult,
    FenceStored,
    InitProducerIdResult,
    PartitionsStored,
    ProducerIdStored,
    SendMarkers,
    Then,
    TransactionEffect,
    TransactionMetadata,
    TransactionState,
    TransactionTimer,
    transaction_key,
    transaction_value,
)

COMPLETION_RETRY_MS = 1_000
_BUMPING_VERSION = 2  # the transaction.version from which on EndTxn bumps the epoch
_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class Transaction:
    """`partition` of `__transaction_state` keeps the id. `metadata` is stored, `pending` is being stored. `unmarked`
    are the partitions that still need a marker.

    Invariant: `pending` is a state that `ENTERED_FROM` allows after that of `metadata`.
    """

    __slots__ = (
        "_given_by_init",
        "_has_failed_fence",
        "metadata",
        "partition",
        "pending",
        "transactional_id",
        "unmarked",
    )

    def __init__(self, transactional_id: str, partition: int, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.partition = partition
        self.metadata = metadata
        self.pending: TransactionMetadata | None = None
        self.unmarked: set[TopicPartition] = set()
        # the ids of the latest InitProducerId, and after a restart all that may be
        self._given_by_init: ProducerIdAndEpoch | None = None
        if metadata.client_version < _BUMPING_VERSION:
            self._given_by_init = ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)
        self._has_failed_fence = False  # the epoch was raised in memory, and no producer has it

    @classmethod
    def new(cls, transactional_id: str, partition: int, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """The transaction of an id that is used for the first time; its first epoch is still to be stored."""
        return cls(transactional_id, partition, TransactionMetadata(producer_id, NO_EPOCH, timeout_ms, now_ms))

    @property
    def state(self) -> TransactionState:
        return self.metadata.state

    @property
    def producer_id(self) -> int:
        return self.metadata.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.metadata.producer_epoch

    @property
    def timeout_ms(self) -> int:
        return self.metadata.timeout_ms

    @property
    def start_ms(self) -> int:
        """When the transaction began; -1 before the first one."""
        return self.metadata.start_ms

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions of the open transaction; of an ended one, those without a marker yet."""
        return self.unmarked if self.state in COMPLETED_AS else self.metadata.partitions

    # --- requests

    def init_producer_id(
        self,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        waiter: Waiter[InitProducerIdResult],
        now_ms: int,
        new_producer_id: int = NO_PRODUCER_ID,
    ) -> list[TransactionEffect]:
        """InitProducerId: a new producer takes over. `expected`: id and epoch of a producer that continues (KIP-360).

        An open transaction is aborted first; the producer asks again meanwhile.
        """
        known = self.metadata
        if self.pending is not None:
            return _refuse_init(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._is_same_producer(expected):
            return _refuse_init(waiter, ErrorCode.PRODUCER_FENCED)
        if known.state is ONGOING:
            return self._fence(FenceStored(waiter), now_ms)
        if known.state not in IDLE:
            return _refuse_init(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)
        producer_id, epoch, last_epoch = known.producer_id, known.producer_epoch + 1, NO_EPOCH
        if known.is_epoch_exhausted and (expected is None or expected.producer_epoch == known.producer_epoch):
            if new_producer_id == NO_PRODUCER_ID:
                return [AllocateProducerId()]
            producer_id, epoch = new_producer_id, 0
            if expected is not None:
                last_epoch = known.producer_epoch
        elif expected is not None and known.producer_epoch in (NO_EPOCH, expected.producer_epoch):
            last_epoch = known.producer_epoch
        elif (
            expected is not None and expected.producer_epoch == known.last_producer_epoch
        ):  # it has not got the last answer
            epoch, last_epoch = known.producer_epoch, known.last_producer_epoch
        elif expected is not None:
            return _refuse_init(waiter, ErrorCode.PRODUCER_FENCED)
        return self._store(
            TransactionMetadata(
                producer_id,
                epoch,
                timeout_ms,
                now_ms,
                previous_producer_id=known.producer_id,
                last_producer_epoch=last_epoch,
            ),
            ProducerIdStored(waiter),
        )

    def add_partitions(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        waiter: Waiter[ErrorCode],
        now_ms: int,
    ) -> list[TransactionEffect]:
        """AddPartitionsToTxn and AddOffsetsToTxn: begins a transaction if none is open."""
        known = self.metadata
        if self.pending is not None:  # first: after EndTxn the producer may have an id that is still pending
            return [Answer(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)]
        error = self._producer_error(producer_id, producer_epoch)
        if not error and known.state in COMPLETED_AS:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        is_open = known.state is ONGOING
        if error or (is_open and known.partitions.issuperset(partitions)):
            return [Answer(waiter, error)]
        changed = known._replace(
            state=ONGOING,
            partitions=known.partitions.union(partitions),
            start_ms=known.start_ms if is_open else now_ms,
            last_update_ms=now_ms,
            client_version=0,
        )
        return self._store(changed, PartitionsStored(waiter))

    def verify_partitions(
        self, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each of these is a partition of the open transaction, else TRANSACTION_ABORTABLE (KIP-890)."""
        error = self._producer_error(producer_id, producer_epoch)
        if not error and self.state in COMPLETED_AS:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error:
            return dict.fromkeys(partitions, error)
        known = self.metadata.partitions
        return {each: ErrorCode.NONE if each in known else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def end(
        self,
        producer_id: int,
        producer_epoch: int,
        waiter: Waiter[EndTransactionResult],
        now_ms: int,
        *,
        commit: bool,
        transaction_version: int,
        new_producer_id: int = NO_PRODUCER_ID,
    ) -> list[TransactionEffect]:
        """EndTxn. From transaction.version=2 on it bumps the epoch, and may abort where nothing is open."""
        known, bumps = self.metadata, transaction_version >= _BUMPING_VERSION
        if bumps:
            error, is_retry = self._check_bumping_end(producer_id, producer_epoch)
        else:
            error, is_retry = self._producer_error(producer_id, producer_epoch), known.state is not ONGOING
        if not error and self.pending is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif not error and is_retry:
            error = END_RETRY_ERROR.get((known.state, commit), ErrorCode.INVALID_TXN_STATE)
            if not error:
                return [Answer(waiter, EndTransactionResult(error, known.producer_id, known.producer_epoch))]
        elif not error and commit and known.state is not ONGOING:
            error = ErrorCode.INVALID_TXN_STATE
        if error:
            return [Answer(waiter, EndTransactionResult(error))]
        changed = known._replace(
            state=PREPARE_COMMIT if commit else PREPARE_ABORT,
            start_ms=known.start_ms if known.state is ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=0,
        )
        if bumps:
            if known.is_epoch_exhausted and new_producer_id == NO_PRODUCER_ID:
                return [AllocateProducerId()]
            changed = changed._replace(
                producer_epoch=min(known.producer_epoch + 1, EPOCH_MAX),
                last_producer_epoch=known.producer_epoch,
                next_producer_id=new_producer_id if known.is_epoch_exhausted else NO_PRODUCER_ID,
                client_version=_BUMPING_VERSION,
            )
        return self._store(changed, EndStored(waiter))

    # --- time

    def abort_if_timed_out(self, now_ms: int) -> list[TransactionEffect]:
        """Fences the producer of a transaction that is open for too long, and aborts it. A time to come, of a
        coordinator with another clock, becomes the present one: Kafka leaves the transaction open until then."""
        known = self.metadata
        if self.pending is not None or known.state is not ONGOING:
            return []
        if known.start_ms > now_ms:
            self.metadata = known._replace(start_ms=now_ms)
        elif known.start_ms + known.timeout_ms < now_ms:
            return self._fence(FenceStored(None), now_ms)
        return []

    def begin_expiry(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id is unused for `expiration_ms`. Then it is pending until `end_expiry`."""
        known = self.metadata
        if self.pending is not None or known.state not in IDLE or known.last_update_ms > now_ms - expiration_ms:
            return False
        self._prepare(known._replace(state=DEAD))
        return True

    def end_expiry(self) -> None:
        """The tombstone could not be stored."""
        self.pending = None

    # --- events

    def on_loaded(self, now_ms: int) -> list[TransactionEffect]:
        """Finishes a transaction whose outcome was stored before a restart."""
        return self._write_markers(now_ms) if self.state in COMPLETED_AS else []

    def on_append(self, then: Then, error: ErrorCode, now: Moment) -> list[TransactionEffect]:
        """The pending record is stored, or is not. Errors are those that clients get."""
        stored = self.pending
        assert stored is not None
        if error:
            return self._on_failed_append(stored, then, error, now)
        self.pending = None
        self.metadata = stored
        if isinstance(then, ProducerIdStored):
            self._given_by_init = ProducerIdAndEpoch(stored.producer_id, stored.producer_epoch)
            return [Answer(then.waiter, InitProducerIdResult(error, stored.producer_id, stored.producer_epoch))]
        if isinstance(then, PartitionsStored):
            return [Answer(then.waiter, error)]
        if isinstance(then, CompletionStored):
            self._has_failed_fence = False
            return []
        effects = self._write_markers(now.wall_ms)
        after = self.pending
        assert after is not None
        answer: list[TransactionEffect] = []
        if isinstance(then, EndStored):
            answer = [Answer(then.waiter, EndTransactionResult(error, after.producer_id, after.producer_epoch))]
        elif then.waiter is not None:
            answer = [Answer(then.waiter, InitProducerIdResult(ErrorCode.CONCURRENT_TRANSACTIONS))]
        return answer + effects

    def on_timer(self, timer: TransactionTimer) -> list[TransactionEffect]:
        """The timer fired: the completion is stored again."""
        return self._complete()

    def on_marker_written(self, partition: TopicPartition) -> list[TransactionEffect]:
        """The partition has its marker, or does not exist any more."""
        if partition not in self.unmarked:
            return []
        self.unmarked.discard(partition)
        return self._complete() if not self.unmarked else []

    # --- helpers

    def _is_same_producer(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether the producer id is the current one, or the one before and its epochs were used up (a retry)."""
        known = self.metadata
        if known.producer_epoch == NO_EPOCH or expected.producer_id == known.producer_id:
            return True
        return expected.producer_id == known.previous_producer_id and expected.producer_epoch >= LAST_EPOCH

    def _producer_error(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        if producer_id != self.metadata.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if producer_epoch == self.metadata.producer_epoch else ErrorCode.PRODUCER_FENCED

    def _check_bumping_end(self, producer_id: int, producer_epoch: int) -> tuple[ErrorCode, bool]:
        """The error of an EndTxn that bumps the epoch, and whether it is a retry of one that has done so already.

        An epoch that InitProducerId gave to another producer is not the result of an earlier EndTxn. Kafka treats it as
        one if that producer ends its transactions without a bump, and the one before it gets the ids of its successor.
        """
        known = self.metadata
        got_new_id = (
            producer_id == known.previous_producer_id and producer_epoch == LAST_EPOCH and known.producer_epoch == 0
        )
        # after fencing at the last epoch no next one is left
        is_bumped = known.producer_epoch == producer_epoch + 1 and (
            known.producer_epoch < EPOCH_MAX or known.state in COMPLETED_AS
        )
        if self._given_by_init == (known.producer_id, known.producer_epoch):
            got_new_id = is_bumped = False
        if producer_id != known.producer_id and not got_new_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, False
        if known.state in COMPLETED_AS:
            is_valid = is_retry = is_bumped
        elif known.state in (ONGOING, EMPTY):
            is_valid, is_retry = producer_epoch == known.producer_epoch, False
        else:
            is_retry = is_bumped or got_new_id
            is_valid = is_retry or producer_epoch == known.producer_epoch
        return ErrorCode.NONE if is_valid else ErrorCode.PRODUCER_FENCED, is_retry

    def _fence(self, then: FenceStored, now_ms: int) -> list[TransactionEffect]:
        """Aborts the open transaction under an epoch that no producer has. The epoch is raised once, also when storing
        fails."""
        known = self.metadata
        epoch = known.producer_epoch if self._has_failed_fence else min(known.producer_epoch + 1, EPOCH_MAX)
        changed = known._replace(
            state=PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=NO_EPOCH,
            last_update_ms=now_ms,
            client_version=0,
        )
        return self._store(changed, then)

    def _write_markers(self, now_ms: int) -> list[TransactionEffect]:
        """Prepares the completion, and asks for the markers."""
        known = self.metadata
        changed = known._replace(
            state=COMPLETED_AS[known.state],
            partitions=_NO_PARTITIONS,
            last_update_ms=now_ms,
            next_producer_id=NO_PRODUCER_ID,
        )
        if known.client_version >= _BUMPING_VERSION:
            changed = changed._replace(previous_producer_id=known.producer_id)
            if known.next_producer_id != NO_PRODUCER_ID:
                changed = changed._replace(producer_id=known.next_producer_id, producer_epoch=0)
        self._prepare(changed)
        self.unmarked = set(known.partitions)
        if not self.unmarked:
            return self._complete()
        commit = known.state is PREPARE_COMMIT
        return [SendMarkers(known.producer_id, known.producer_epoch, commit, known.partitions, known.client_version)]

    def _complete(self) -> list[TransactionEffect]:
        assert self.pending is not None
        return [self._append(self.pending, CompletionStored())]

    def _on_failed_append(
        self, failed: TransactionMetadata, then: Then, error: ErrorCode, now: Moment
    ) -> list[TransactionEffect]:
        if isinstance(then, CompletionStored):  # no client waits for it
            return [SetTimer(TransactionTimer.COMPLETION, now.monotonic_ms + COMPLETION_RETRY_MS)]
        self.pending = None
        if isinstance(then, PartitionsStored):
            return [Answer(then.waiter, error)]
        if isinstance(then, EndStored):
            return [Answer(then.waiter, EndTransactionResult(error))]
        if isinstance(then, FenceStored):  # fenced in memory at least
            self._has_failed_fence = True
            self.metadata = self.metadata._replace(producer_epoch=failed.producer_epoch, last_producer_epoch=NO_EPOCH)
        return [] if then.waiter is None else _refuse_init(then.waiter, error)

    def _store(self, changed: TransactionMetadata, then: Then) -> list[TransactionEffect]:
        self._prepare(changed)
        return [self._append(changed, then)]

    def _append(self, changed: TransactionMetadata, then: Then) -> Append:
        return Append([(transaction_key(self.transactional_id), transaction_value(changed))], then)

    def _prepare(self, changed: TransactionMetadata) -> None:
        assert self.pending is None
        assert self.state in ENTERED_FROM[changed.state], f"{self.state} -> {changed.state}"
        self.pending = changed


def _refuse_init(waiter: Waiter[InitProducerIdResult], error: ErrorCode) -> list[TransactionEffect]:
    return [Answer(waiter, InitProducerIdResult(error))]
