"""The arguments and results of a session: nodes, operations, states of the connection, errors.

Paths are below the chroot, as Kafka writes them. Empty data and no data are both b"" here; they are written as "no
data", as Kafka does and expects.
Source: org.apache.zookeeper.KeeperException.Code (numbers), org.apache.zookeeper.data.Stat.
"""

from __future__ import annotations

from enum import Enum

from kafkalite.common.named_tuple import NamedTuple

ANY_VERSION = -1


class Node(NamedTuple):
    """One node as it was read. `mzxid` is the transaction that changed the data last, `czxid` the one that created the
    node. `ephemeral_owner` is the session with which the node is deleted, 0 for a persistent node."""

    data: bytes
    version: int
    mzxid: int
    czxid: int
    ephemeral_owner: int
    children_count: int


class Create(NamedTuple):
    """Create a node below an existing parent. `sequential`: ten digits are added to the name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the whole write unless the node has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class ConnectionState(Enum):
    """The state of a session's connection."""

    CONNECTED = "connected, and every watch is set: everything must be read again"
    SUSPENDED = "the connection is lost; it may come back with the same session"
    EXPIRED = "the session has ended: its ephemeral nodes go; a new session comes with the next CONNECTED"
    AUTH_FAILED = "the servers refuse the credentials; tried again, and a new session comes with the next CONNECTED"


class Unavailable(Exception):
    """There is no connection, or it was lost before the answer. It is unknown whether a write was done."""


class OperationFailed(Exception):
    """ZooKeeper refused the request, and no part of a write was done. `index` and `path` name the operation that
    failed."""

    def __init__(self, path: str, index: int = 0, code: int = 0) -> None:
        reason = (type(self).__doc__ or "").rstrip(".")
        detail = f"error {code}" if type(self) is OperationFailed else reason
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.index = index
        self.code = code


class NoNode(OperationFailed):
    """There is no such node, or no parent for it."""


class NodeExists(OperationFailed):
    """There is such a node already."""


class BadVersion(OperationFailed):
    """The node has another version."""


class NotEmpty(OperationFailed):
    """The node has children."""


class NotAllowed(OperationFailed):
    """Its access list does not allow that; this broker's credentials are zookeeper.digest or zookeeper.sasl.*."""


class BadAcl(OperationFailed):
    """The access list does not hold: zookeeper.set.acl needs credentials that ZooKeeper knows."""


NO_NODE = -101
UNIMPLEMENTED = -6
_FAILURES: dict[int, type[OperationFailed]] = {
    NO_NODE: NoNode,
    -102: NotAllowed,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
    -114: BadAcl,
}


def failure(code: int, path: str, index: int = 0) -> OperationFailed:
    """The exception for one of ZooKeeper's error codes."""
    return _FAILURES.get(code, OperationFailed)(path, index, code)
