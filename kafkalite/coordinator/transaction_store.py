"""The transactional ids of the partitions of `__transaction_state` that this broker leads, and their loader.

A coordinator appends every record in a batch of its own.
Source: kafka.coordinator.transaction.TransactionStateManager (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TRANSACTION_STATE_TOPIC, fits_string
from kafkalite.coordinator.runtime.partitioned_store import PartitionedStore, PartitionLoader
from kafkalite.coordinator.transaction import transaction_state
from kafkalite.coordinator.transaction.transaction import Transaction

logger = logging.getLogger(__name__)

OPEN = frozenset({transaction_state.ONGOING})


class TransactionLoader(PartitionLoader):
    """The transactional ids of one partition."""

    topic = TRANSACTION_STATE_TOPIC

    def __init__(self) -> None:
        super().__init__()
        self.transactions: dict[str, transaction_state.TransactionMetadata] = {}

    def known_key(self, key: bytes | None, value: bytes | None, offset: int) -> bytes | None:
        if key is None:
            logger.error("skipped the record at offset %d of __transaction_state: it has no key", offset)
        return key

    def decode(self, key: bytes, value: bytes, order: int, producer_id: int) -> None:
        transactional_id = transaction_state.read_key(key)
        if transactional_id is None:
            logger.warning("skipped key %r of __transaction_state: its version is unknown", key)
        else:
            self.transactions[transactional_id] = transaction_state.read_value(value)


class TransactionStore(PartitionedStore[Transaction, TransactionLoader]):
    """Transactions by transactional id. `open` are the ones in which a producer may write, `ending` the ones whose
    outcome is stored and whose markers are being written. `on_loaded` is called with each transaction of a partition
    that was loaded, `on_open` when a transaction opens and none was open before.
    """

    def __init__(self, partition_count: int, on_loaded: Callable[[Transaction], None]) -> None:
        super().__init__(partition_count)
        self.open: dict[str, Transaction] = {}
        self.ending: dict[str, Transaction] = {}
        self.on_open: Callable[[], None] = lambda: None
        self._on_loaded = on_loaded

    def find(self, transactional_id: str) -> tuple[Transaction | None, ErrorCode]:
        """The transaction; or None and an error, which is NONE if the id is simply not in use."""
        transaction = self.by_id.get(transactional_id)
        if transaction is not None:
            return transaction, ErrorCode.NONE
        if not self.is_closed and not fits_string(transactional_id):
            return None, ErrorCode.INVALID_REQUEST
        return None, self.error_without_value(transactional_id)

    def holds(self, transaction: Transaction) -> bool:
        """Whether this is the current state of its id. If not, its partition was unloaded meanwhile."""
        return self.by_id.get(transaction.transactional_id) is transaction

    def add(self, transaction: Transaction) -> None:
        """Invariant: `find` has returned (None, NONE) for its id."""
        self.by_id[transaction.transactional_id] = transaction

    def remove(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        del self.by_id[transactional_id]
        self.open.pop(transactional_id, None)
        self.ending.pop(transactional_id, None)

    def on_change(self, transaction: Transaction) -> None:
        """The transaction has another state now."""
        state, transactional_id = transaction.state, transaction.transactional_id
        if state in OPEN and not self.open:
            self.on_open()
        for states, transactions in ((OPEN, self.open), (transaction_state.COMPLETED_AS, self.ending)):
            if state in states:
                transactions[transactional_id] = transaction
            else:
                transactions.pop(transactional_id, None)

    def add_loading_partition(self, partition: int) -> None:
        self.unload(partition)
        super().add_loading_partition(partition)

    def _add_loaded(self, partition: int, loader: TransactionLoader) -> None:
        loaded = [Transaction(name, partition, metadata) for name, metadata in loader.transactions.items()]
        for transaction in loaded:
            self.add(transaction)
            self.on_change(transaction)
        for transaction in loaded:  # when every id is there: an error here must cost none
            self._on_loaded(transaction)
        if loaded:
            logger.info("loaded %d transactional ids of __transaction_state-%d", len(loaded), partition)

    def _drop(self, transaction: Transaction, error: ErrorCode) -> None:
        self.remove(transaction)
