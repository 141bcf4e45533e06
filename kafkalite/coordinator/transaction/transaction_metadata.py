"""The values of a transactional id at one moment, as one record of `__transaction_state` holds them.

Source: kafka.coordinator.transaction.TxnTransitMetadata (3.9), TransactionLogValue.json (4.0).
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.transaction.transaction_state import EMPTY, TransactionState

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 32_767
LAST_EPOCH = EPOCH_MAX - 1  # of a client: one more is left for fencing it


class TransactionMetadata(NamedTuple):
    """Times are wall-clock milliseconds. `last_producer_epoch`, the epoch before the current one if its producer may
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
