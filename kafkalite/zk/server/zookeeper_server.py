"""A ZooKeeper of one server on its files: sessions, and answers that wait until the disk has what they say.

A transaction is applied at once and written; every message to a client waits until all transactions before it are on
the disk, so that no client knows of a change that a power cut could take back. Without a transaction on its way a
message waits for nothing. After a failed write no message leaves any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafkalite.common.clock import Clock, PeriodicTasks
from kafkalite.common.errors import StorageError
from kafkalite.zk.server.sessions import Sessions
from kafkalite.zk.server.transaction_log import LOG_BYTES, Background, Disk, TransactionLog
from kafkalite.zk.server.transactions import Transaction

CONTAINER_CHECK_MS = 60_000


class ZooKeeperServer:
    """Reads the files of `directory`, and belongs to the thread that makes it. `on_failure` is called when a write has
    failed. Raises StorageError, OSError."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        clock: Clock,
        *,
        commits: Background,
        merges: Background,
        on_failure: Callable[[StorageError], None],
        log_bytes: int = LOG_BYTES,
    ) -> None:
        self._log = TransactionLog(
            disk,
            directory,
            commits=commits,
            merges=merges,
            on_durable=self._release,
            on_failure=on_failure,
            log_bytes=log_bytes,
        )
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        tree = self._log.open()
        self.sessions = Sessions(tree, clock, journal=self._append)
        self._tasks = PeriodicTasks(clock)
        self._tasks.add("the check of containers", CONTAINER_CHECK_MS, self.sessions.delete_empty_containers)

    @property
    def waiting_count(self) -> int:
        """How many messages wait for the disk."""
        return len(self._waiting)

    def when_durable(self, deliver: Callable[[], None]) -> None:
        """Call `deliver` when everything that has been applied is on the disk, in the order of the calls."""
        zxid = self.sessions.tree.zxid
        if zxid <= self._log.durable_zxid and not self._waiting:
            deliver()
        else:
            self._waiting.append((zxid, deliver))

    def stop(self) -> None:
        """End: no session ends by that, and nothing is delivered any more."""
        self._tasks.stop()
        self.sessions.freeze()
        self._waiting.clear()
        self._log.close()

    def _append(self, transaction: Transaction) -> None:
        self._log.append(transaction)

    def _release(self, zxid: int) -> None:
        while self._waiting and self._waiting[0][0] <= zxid:
            self._waiting.popleft()[1]()
