r"""The states of a transactional id, as tables.

A producer's first request for partitions makes it ONGOING. EndTxn makes it PREPARE_*; from then on the outcome is
decided. It is COMPLETE_* when every partition has its marker, and the next transaction may begin:

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -+      with transaction.version=2 an abort may also come
      ^         ^  \--> PREPARE_ABORT --> COMPLETE_ABORT --+      from EMPTY and COMPLETE_* (it bumps the epoch)
      +---------+------------------------------------------+      DEAD: the id has expired

PREPARE_EPOCH_FENCE is in Kafka a step between ONGOING and PREPARE_ABORT that is never stored; here fencing is one
decision, and the state exists for its id alone. Absence from a table means "not allowed".
Source: kafka.coordinator.transaction.TransactionState (3.9, 4.0); KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.records.transaction_records import TRANSACTION_STATES


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

# Translates the error of a failed append for the client, as Kafka does. Other errors are unchanged.
APPEND_ERROR: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
