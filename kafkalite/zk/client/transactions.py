"""Many conditional writes in few transactions: some hundred of them cost ZooKeeper one round and one sync of its log.

A write is atomic. A transaction that fails names the operation that failed, and none of it is done; the caller takes
that write out and sends the others again. `perform` does so for independent writes: it also takes out all others that
must fail by the versions of their nodes.
Source: kafka.zk.KafkaZkClient (retryRequestsUntilConnected, wrapRequestWithControllerEpochCheck), which sends a
transaction for each write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.zk.client.operations import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Node,
    NoNode,
    Operation,
    OperationFailed,
    SetData,
    Unavailable,
)

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

_OPERATION_BYTES = 80  # around path and data: header, lengths, access list

Write = Sequence[Operation]


class Refused(NamedTuple):
    """The operation for which a write was refused."""

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
    """Sends one transaction. Returns the index of the refused write and the reason; None: all are done. Raises
    Unavailable, and OperationFailed if one of `fence`, which come first, fails.
    """
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


_BATCH_OPERATIONS_MAX = 500  # some 10 ms of ZooKeeper's time
_BATCH_BYTES_MAX = 256 * 1024  # a quarter of what ZooKeeper takes


Result = Refused | Unavailable | None
"""None: done. Unavailable: it is unknown whether it was done."""


async def perform(session: ZooKeeperSession, writes: Sequence[Write], fence: Sequence[Check] = ()) -> list[Result]:
    """Performs each write, in order. Raises OperationFailed only for `fence`, which every transaction checks."""
    results: list[Result] = [None] * len(writes)
    for waiting in batches(writes, _BATCH_OPERATIONS_MAX, _BATCH_BYTES_MAX):
        while waiting:
            try:
                failed = await transact(session, [writes[index] for index in waiting], fence)
            except Unavailable as lost:
                for index in waiting:
                    results[index] = lost
                break
            if failed is None:
                break
            place, refused = failed
            results[waiting.pop(place)] = refused
            seen = await _find_outdated(session, [writes[index] for index in waiting])
            for index, result in zip(waiting, seen, strict=True):
                results[index] = result
            waiting = [index for index in waiting if results[index] is None]
    return results


async def _find_outdated(session: ZooKeeperSession, writes: Sequence[Write]) -> list[Refused | None]:
    """The writes that cannot succeed, since versions only grow; None for the others."""
    paths = list(dict.fromkeys(operation.path for write in writes for operation in write))
    nodes: dict[str, Node | None] = {}
    with suppress(Unavailable, OperationFailed):
        nodes = dict(zip(paths, await session.read(paths), strict=True))
    return [next((seen for operation in write if (seen := _refused(operation, nodes))), None) for write in writes]


def _refused(operation: Operation, nodes: dict[str, Node | None]) -> Refused | None:
    if not isinstance(operation, Check | SetData) or operation.path not in nodes:
        return None
    node = nodes[operation.path]
    if node is None:
        return Refused(operation, NoNode(operation.path))
    if operation.version != ANY_VERSION and node.version > operation.version:
        return Refused(operation, BadVersion(operation.path))
    return None
