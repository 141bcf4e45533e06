"""Many conditional writes in few transactions: some hundred of them cost ZooKeeper one round and one sync of its log.

A write is done whole or not at all. A transaction that fails names the operation that failed, and nothing of it is
done; the caller takes that write out and sends the others again.
Source: kafka.zk.KafkaZkClient (retryRequestsUntilConnected, wrapRequestWithControllerEpochCheck), which sends a
transaction for each write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.zk.client.operations import Check, Create, Operation, OperationFailed, SetData

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

_OPERATION_BYTES = 80  # around path and data: header, lengths, access list

Write = Sequence[Operation]


class Refused(NamedTuple):
    """The operation because of which nothing of a write was done."""

    operation: Operation
    reason: OperationFailed


def batches(writes: Sequence[Write], operations_max: int, bytes_max: int) -> Iterator[list[int]]:
    """The indexes of writes that go into one transaction. A write beyond the limits goes alone."""
    batch: list[int] = []
    operations = size_bytes = 0
    for index, write in enumerate(writes):
        write_bytes = sum(_OPERATION_BYTES + len(each.path) + len(_data(each)) for each in write)
        operations += len(write)
        size_bytes += write_bytes
        if batch and (size_bytes > bytes_max or operations > operations_max):
            yield batch
            batch, operations, size_bytes = [], len(write), write_bytes
        batch.append(index)
    if batch:
        yield batch


async def transact(
    session: ZooKeeperSession, writes: Sequence[Write], fence: Sequence[Check] = ()
) -> tuple[int, Refused] | None:
    """One transaction. The index of the write that was refused, and why; None: all are done. Raises Unavailable, and
    OperationFailed if one of `fence`, which come first, fails."""
    operations: list[Operation] = [*fence]
    owners = [-1] * len(operations)
    for index, write in enumerate(writes):
        operations += write
        owners += [index] * len(write)
    try:
        await session.write(operations)
        return None
    except OperationFailed as reason:
        if owners[reason.index] < 0:
            raise
        return owners[reason.index], Refused(operations[reason.index], reason)


def _data(operation: Operation) -> bytes:
    return operation.data if isinstance(operation, Create | SetData) else b""
