"""Operations that wait for a partition: fetches for bytes, producers for acknowledgements.

Source: kafka.server.DelayedFetch, kafka.server.DelayedProduce.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkalite.common.errors import ErrorCode, KafkaError

ENOUGH_BYTES = 1 << 40  # wakes any operation: the size of an append under an earlier leader epoch is not known


Notify = Callable[[KafkaError | None], None]


class DelayedAcks(list[tuple[int, Notify]]):
    """(last offset, callback) of producers that wait. A callback may add others."""

    __slots__ = ()

    def complete(self, acked_offset: int, end_offset: int, error: KafkaError | None, failed_from: int = 0) -> None:
        """Notifies the producers whose records lie below `acked_offset`, and those whose records are not in the log any
        more. With an error it refuses those with records at or past `failed_from`."""
        kept: list[tuple[int, Notify]] = []
        for last_offset, notify in self.withdraw():
            if last_offset < acked_offset:
                notify(None)
            elif error is not None and last_offset >= failed_from:
                notify(error)
            elif last_offset >= end_offset:  # another batch may get this offset
                notify(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the batch was cut off before it was committed"))
            else:
                kept.append((last_offset, notify))
        self[:0] = kept  # before those that callbacks have added

    def withdraw(self) -> list[tuple[int, Notify]]:
        """Empties the list; returns its content."""
        waiting = self[:]
        self.clear()
        return waiting


class CallSoon(Protocol):
    """The method of the event loop that a delayed operation uses."""

    def __call__(self, callback: Callable[[], None], /) -> object: ...


class DelayedOperation:
    """An operation that waits for `missing_bytes` more in all of its partitions together; for a `read_committed` fetch
    only bytes below the last stable offset count.

    The callback `wake` runs in a turn of the loop of its own, and not again before `woken` is reset. Invariant: until
    `withdraw` it waits in exactly the lists `_lists` of partitions.
    """

    __slots__ = ("_call_soon", "_lists", "_wake", "missing_bytes", "read_committed", "woken")

    def __init__(
        self, missing_bytes: int, wake: Callable[[], None], call_soon: CallSoon, read_committed: bool = False
    ) -> None:
        self.missing_bytes = missing_bytes
        self.read_committed = read_committed
        self.woken = False
        self._lists: list[dict[DelayedOperation, None]] = []
        self._wake = wake
        self._call_soon = call_soon

    def wait_in(self, operations: dict[DelayedOperation, None]) -> None:
        operations[self] = None
        self._lists.append(operations)

    def accumulate(self, size_bytes: int) -> None:
        """`size_bytes` more can be read from one of the partitions; wakes the operation when nothing is missing."""
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Wakes the operation regardless of the missing bytes, as when a partition is retired."""
        if not self.woken:
            self.woken = True
            self._call_soon(self._wake)

    def complete(self) -> None:
        """Ends the wait, however many bytes are missing."""
        self.wake()

    def withdraw(self) -> None:
        for operations in self._lists:
            operations.pop(self, None)
        self._lists.clear()
