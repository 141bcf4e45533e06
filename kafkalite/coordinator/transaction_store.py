"""The transactional ids of the partitions of `__transaction_state` that this broker leads.

An id belongs to the partition that it hashes to, and is served while that partition is `owned`. While the partition is
`loading`, requests for its ids get COORDINATOR_LOAD_IN_PROGRESS.
Source: kafka.coordinator.transaction.TransactionStateManager (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import fits_string, partition_for_id
from kafkalite.coordinator.transaction.transaction import Transaction
from kafkalite.coordinator.transaction.transaction_state import COMPLETED_AS, ONGOING
from kafkalite.coordinator.transaction_loader import TransactionLoader

logger = logging.getLogger(__name__)

OPEN = frozenset({ONGOING})


class TransactionStore:
    """Transactions by transactional id. `open` are the ones in which a producer may write, `ending` the ones whose
    outcome is stored and whose markers are being written.

    Invariant: the partition of each transaction is owned, and no partition is owned and loading. `on_loaded` is called
    with each transaction of a partition that was loaded, `on_open` when a transaction opens and none was open before.
    """

    def __init__(self, partition_count: int, on_loaded: Callable[[Transaction], None]) -> None:
        self.partition_count = partition_count  # of the topic, which may differ from the configuration
        self.transactions: dict[str, Transaction] = {}
        self.open: dict[str, Transaction] = {}
        self.ending: dict[str, Transaction] = {}
        self.owned: set[int] = set()
        self.loading: set[int] = set()
        self.is_closed = False
        self.on_open: Callable[[], None] = lambda: None
        self._on_loaded = on_loaded

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps this id."""
        return partition_for_id(transactional_id, self.partition_count)

    def find(self, transactional_id: str) -> tuple[Transaction | None, ErrorCode]:
        """The transaction; or None and an error, which is NONE if the id is simply not in use."""
        transaction = self.transactions.get(transactional_id)
        if transaction is not None:
            return transaction, ErrorCode.NONE
        if self.is_closed:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not fits_string(transactional_id):
            return None, ErrorCode.INVALID_REQUEST
        partition = self.partition_for(transactional_id)
        if partition in self.loading:
            return None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return None, ErrorCode.NONE if partition in self.owned else ErrorCode.NOT_COORDINATOR

    def holds(self, transaction: Transaction) -> bool:
        """Whether this is the current state of its id. If not, its partition was unloaded meanwhile."""
        return self.transactions.get(transaction.transactional_id) is transaction

    def add(self, transaction: Transaction) -> None:
        """Invariant: `find` has returned (None, NONE) for its id."""
        self.transactions[transaction.transactional_id] = transaction

    def remove(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        del self.transactions[transactional_id]
        self.open.pop(transactional_id, None)
        self.ending.pop(transactional_id, None)

    def on_change(self, transaction: Transaction) -> None:
        """The transaction has another state now."""
        state, transactional_id = transaction.state, transaction.transactional_id
        if state in OPEN and not self.open:
            self.on_open()
        for states, transactions in ((OPEN, self.open), (COMPLETED_AS, self.ending)):
            if state in states:
                transactions[transactional_id] = transaction
            else:
                transactions.pop(transactional_id, None)

    # --- partitions

    def add_loading_partition(self, partition: int) -> None:
        """Requests for the partition's ids get COORDINATOR_LOAD_IN_PROGRESS until it is loaded, instead of
        NOT_COORDINATOR."""
        self.unload(partition)
        if not self.is_closed:
            self.loading.add(partition)

    def load(self, partition: int, loader: TransactionLoader) -> None:
        """Own the partition with the transactions that `loader` has read."""
        if self.is_closed:
            return
        self.unload(partition)
        self.owned.add(partition)
        loaded = [Transaction(name, partition, metadata) for name, metadata in loader.transactions.items()]
        for transaction in loaded:
            self.add(transaction)
            self.on_change(transaction)
        for transaction in loaded:  # when every id is there: an error here must cost none
            self._on_loaded(transaction)
        if loaded:
            logger.info("loaded %d transactional ids of __transaction_state-%d", len(loaded), partition)

    def unload(self, partition: int) -> None:
        """This broker no longer leads the partition: drops its transactions, which another coordinator has."""
        self.loading.discard(partition)
        if partition in self.owned:
            self.owned.discard(partition)
            for transaction in [each for each in self.transactions.values() if each.partition == partition]:
                self.remove(transaction)

    def close(self) -> None:
        """Every later request gets COORDINATOR_NOT_AVAILABLE."""
        self.is_closed = True
        self.transactions.clear()
        self.open.clear()
        self.ending.clear()
        self.owned.clear()
        self.loading.clear()
