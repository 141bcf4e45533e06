"""Many independent conditional writes at once: each is done whole or refused, and a refused one keeps back no other.

They travel together in transactions, which costs ZooKeeper one round and one sync of its log for some hundred of them.
A transaction that fails names the operation that failed; its write is taken out, with all others that can be seen to
fail by the versions of their nodes, and the rest is sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.zk.client.operations import (
    ANY_VERSION,
    BadVersion,
    Check,
    Node,
    NoNode,
    Operation,
    OperationFailed,
    SetData,
    Unavailable,
)

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

_BATCH_OPERATIONS_MAX = 500  # some 10 ms of ZooKeeper's time
_BATCH_BYTES_MAX = 256 * 1024  # a quarter of what ZooKeeper takes

Write = Sequence[Operation]


class Refused(NamedTuple):
    """The operation because of which nothing of a write was done."""

    operation: Operation
    reason: OperationFailed


Result = Refused | Unavailable | None
"""None: done. Unavailable: it is unknown whether it was done."""


async def perform(session: ZooKeeperSession, writes: Sequence[Write], fence: Check | None = None) -> list[Result]:
    """Performs each write, in order. Raises OperationFailed only for `fence`, which every transaction checks."""
    results: list[Result] = [None] * len(writes)
    for batch in _batches(writes):
        waiting = batch
        while waiting:
            try:
                failed = await _transact(session, [writes[index] for index in waiting], fence)
            except Unavailable as lost:
                for index in waiting:
                    results[index] = lost
                break
            if failed is None:
                break
            place, refused = failed
            results[waiting.pop(place)] = refused
            seen = await _look(session, [writes[index] for index in waiting])
            for index, result in zip(waiting, seen, strict=True):
                results[index] = result
            waiting = [index for index in waiting if results[index] is None]
    return results


async def _transact(
    session: ZooKeeperSession, writes: Sequence[Write], fence: Check | None
) -> tuple[int, Refused] | None:
    """One transaction. The place of the write that was refused, or None if all are done."""
    operations: list[Operation] = [fence] if fence is not None else []
    owners = [-1] * len(operations)
    for place, write in enumerate(writes):
        operations += write
        owners += [place] * len(write)
    try:
        await session.write(operations)
        return None
    except OperationFailed as reason:
        if owners[reason.index] < 0:
            raise
        return owners[reason.index], Refused(operations[reason.index], reason)


async def _look(session: ZooKeeperSession, writes: Sequence[Write]) -> list[Refused | None]:
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


def _batches(writes: Sequence[Write]) -> Iterator[list[int]]:
    """The indexes of writes that fit into one transaction."""
    batch: list[int] = []
    operations = size_bytes = 0
    for index, write in enumerate(writes):
        write_bytes = sum(80 + len(each.path) + len(getattr(each, "data", b"")) for each in write)
        if batch and (operations + len(write) > _BATCH_OPERATIONS_MAX or size_bytes + write_bytes > _BATCH_BYTES_MAX):
            yield batch
            batch, operations, size_bytes = [], 0, 0
        batch.append(index)
        operations += len(write)
        size_bytes += write_bytes
    if batch:
        yield batch
