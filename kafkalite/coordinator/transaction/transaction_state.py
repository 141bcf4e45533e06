r"""The states of a transactional id as tables, its metadata and their records, and the effects of its decisions.

A producer's first request for partitions makes it ONGOING. EndTxn makes it PREPARE_*; from then on the outcome is
decided. It is COMPLETE_* when every partition has its marker, and the next transaction may begin:

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -+      with transaction.version=2 an abort may also come
      ^         ^  \--> PREPARE_ABORT --> COMPLETE_ABORT --+      from EMPTY and COMPLETE_* (it bumps the epoch)
      +---------+------------------------------------------+      DEAD: the id has expired

Records of `__transaction_state` have a version (i16) before key and value. The key is the transactional id; a record
without a value is a tombstone. Version 0 of the value is all that Kafka knew before 3.9, and all that most transactions
need. Version 1 adds the fields of transaction.version=2 (KIP-890), and is written only where they say something, so
that a directory may go back to any Kafka.

PREPARE_EPOCH_FENCE is in Kafka a step between ONGOING and PREPARE_ABORT that is never stored; here fencing is one
decision, and the state exists for its id alone. Absence from a table means "not allowed".
Source: kafka.coordinator.transaction.{TransactionState, TxnTransitMetadata, TransactionLog} (3.9, 4.0),
TransactionLogKey.json, TransactionLogValue.json; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.runtime.effects import Answer, Append, SetTimer, Waiter
from kafkalite.protocol.codec.codec import known_version_of, read_versioned, version_of, versioned
from kafkalite.protocol.records import TRANSACTION_STATES, TransactionLogKey, TransactionLogValue, TransactionPartitions

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 32_767
LAST_EPOCH = EPOCH_MAX - 1  # of a client: one more is left for fencing it


class TransactionState(Enum):
    """The states, by Kafka's names, in the order of their ids in a record."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


(
    EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE
) = TransactionState  # fmt: skip

STATE_OF_ID = tuple(TransactionState(name) for name in TRANSACTION_STATES)
ID_OF_STATE: Mapping[TransactionState, int] = {state: number for number, state in enumerate(STATE_OF_ID)}

ENTERED_FROM: Mapping[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset(),
}

COMPLETED_AS: Mapping[TransactionState, TransactionState] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""The states whose markers are being written, and the states that follow."""

IDLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""No transaction is open: the id may get a new epoch, may begin a transaction, and may expire."""

END_RETRY_ERROR: Mapping[tuple[TransactionState, bool], ErrorCode] = {
    (PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
    (COMPLETE_COMMIT, True): ErrorCode.NONE,
    (COMPLETE_ABORT, False): ErrorCode.NONE,
}
"""By (state, commit): the answer to an EndTxn whose transaction has been ended already. Others: INVALID_TXN_STATE."""


class TransactionMetadata(NamedTuple):
    """The values of a transactional id at one moment, as one record of `__transaction_state` holds them.

    Times are wall-clock milliseconds. `last_producer_epoch`, the epoch before the current one if its producer may
    still retry, is not stored. `next_producer_id`: the id that follows when the markers are written, after an EndTxn
    that used up the epochs. `client_version`: the transaction.version of that EndTxn."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """No epoch is left for another client: the next one gets a new producer id."""
        return self.producer_epoch >= LAST_EPOCH


class InitProducerIdResult(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class EndTransactionResult(NamedTuple):
    """With NONE: the id and epoch of the producer's next transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class AllocateProducerId(NamedTuple):
    """The only effect of a decision that needs a new producer id: allocate one and decide again with it."""


class ProducerIdStored(NamedTuple):
    """The producer's new id or epoch is on disk."""

    waiter: Waiter[InitProducerIdResult]


class PartitionsStored(NamedTuple):
    """The partitions of the transaction are on disk; records may be appended to them."""

    waiter: Waiter[ErrorCode]


class EndStored(NamedTuple):
    """The outcome of the transaction is on disk; the markers may be written."""

    waiter: Waiter[EndTransactionResult]


class FenceStored(NamedTuple):
    """The producer is fenced and its transaction aborted: by a new producer, which waits, or (None) by the time-out."""

    waiter: Waiter[InitProducerIdResult] | None


class CompletionStored(NamedTuple):
    """The completion is on disk: all markers are written."""


Then = ProducerIdStored | PartitionsStored | EndStored | FenceStored | CompletionStored


class TransactionTimer(Enum):
    """The timers of a transactional id."""

    COMPLETION = "the completion is stored again, after a failure"


class SendMarkers(NamedTuple):
    """Write a marker to each partition, and report each to `on_marker_written`."""

    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int = 0


TransactionEffect = Answer[Any] | Append | SetTimer | AllocateProducerId | SendMarkers


KEY_VERSION = 0
VALUE_VERSION = 0
VALUE_VERSION_WITH_CLIENT_VERSION = 1


def transaction_key(transactional_id: str) -> bytes:
    return versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def transaction_value(metadata: TransactionMetadata) -> bytes:
    """Partitions are sorted: equal metadata have equal bytes."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(index)
    partitions = [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    is_new = metadata.client_version >= 2 or metadata.next_producer_id != NO_PRODUCER_ID
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=ID_OF_STATE[metadata.state],
        transaction_partitions=None if metadata.state is EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    return versioned(value, VALUE_VERSION_WITH_CLIENT_VERSION if is_new else VALUE_VERSION)


def read_key(data: bytes) -> str | None:
    """The transactional id; None for a key of an unknown version. Raises Malformed."""
    if version_of(data) != KEY_VERSION:
        return None
    return read_versioned(TransactionLogKey, KEY_VERSION, data).transactional_id


def read_value(data: bytes) -> TransactionMetadata:
    """Raises Malformed, also for an unknown version or state."""
    version = known_version_of(data, VALUE_VERSION_WITH_CLIENT_VERSION)
    value = read_versioned(TransactionLogValue, version, data)
    if not 0 <= value.transaction_status < len(STATE_OF_ID):
        raise Malformed(f"the state {value.transaction_status} is not known")
    state = STATE_OF_ID[value.transaction_status]
    topics = () if state is EMPTY else value.transaction_partitions or ()
    return TransactionMetadata(
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        state,
        frozenset((each.topic, index) for each in topics for index in each.partition_ids),
        value.transaction_start_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        client_version=value.client_transaction_version,
    )
