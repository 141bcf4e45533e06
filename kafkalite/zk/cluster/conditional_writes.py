"""Many independent conditional writes at once: each is done whole or refused, and a refused one keeps back no other.

They travel together in transactions. The write that makes one fail is taken out, with all others that can be seen to
fail by the versions of their nodes, and the rest is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

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
from kafkalite.zk.client.transactions import Refused, Write, batches, transact

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

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
            seen = await _look(session, [writes[index] for index in waiting])
            for index, result in zip(waiting, seen, strict=True):
                results[index] = result
            waiting = [index for index in waiting if results[index] is None]
    return results


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
