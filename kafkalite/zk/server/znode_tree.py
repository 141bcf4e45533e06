"""The nodes and sessions of a ZooKeeper: transactions are decided against them, and applied to them.

`decide` checks the operations of a request one after the other, each against the nodes as the ones before leave them,
and returns them as they are to be applied, all or none. `apply` cannot fail: so a log of transactions leads to the same
nodes again. A sequential node gets the number of children that its parent has ever had, as long as the parent lives.
Source: org.apache.zookeeper.server.PrepRequestProcessor (order of the checks), DataTree, DataNode, StatPersisted,
EphemeralType.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.zk.client.operations import ANY_VERSION, Node
from kafkalite.zk.server import access_lists
from kafkalite.zk.server.access_lists import OPEN, AccessList, Identity
from kafkalite.zk.server.refusals import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    QUOTA_EXCEEDED,
    Refused,
)
from kafkalite.zk.server.transactions import (
    CONTAINER,
    EPHEMERAL,
    CheckVersion,
    CreateNode,
    DeleteNode,
    EndSession,
    OpenSession,
    Operation,
    SetAccessList,
    SetData,
    Transaction,
)

CREATED, DELETED, DATA_CHANGED, CHILDREN_CHANGED = 1, 2, 3, 4

STAT = struct.Struct("!qqqqiiiqiiq")
CONTAINER_OWNER = -(1 << 63)
"""The owner of a container, in place of a session. It counts as persistent."""

_FIRST = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")
_NODE_BYTES = 300  # of memory, besides the path and the data


class Event(NamedTuple):
    """A change that watches may notify of. `kind`: CREATED, DELETED, DATA_CHANGED; a change of a parent's children
    follows from it."""

    kind: int
    path: str
    access_list: AccessList
    parent_access_list: AccessList


class Limits(NamedTuple):
    """A request that would exceed one of them is refused. `tree_bytes` is an estimate of the memory in use."""

    nodes: int = 1_000_000
    tree_bytes: int = 1 << 30


@dataclass(slots=True)
class StoredNode:
    """`creations` counts the children that were ever created. `owner` is a session, 0, or CONTAINER_OWNER."""

    data: bytes | None
    access_list: AccessList
    owner: int
    czxid: int
    ctime_ms: int
    mzxid: int
    mtime_ms: int
    pzxid: int
    version: int = 0
    access_version: int = 0
    creations: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> bytes:
        """As clients see it: no session owns a container."""
        owner = 0 if self.owner == CONTAINER_OWNER else self.owner
        changes_of_children = 2 * self.creations - len(self.children)
        return STAT.pack(
            self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms, self.version, changes_of_children,
            self.access_version, owner, len(self.data or b""), len(self.children), self.pzxid,
        )  # fmt: skip


class SessionRecord(NamedTuple):
    timeout_ms: int
    password: bytes


@dataclass(slots=True)
class _Pending:
    """A node after the previous operations of a request."""

    access_list: AccessList
    version: int
    access_version: int
    creations: int
    owner: int
    children_count: int


class ZnodeTree:
    """Paths are absolute. `zxid` is the number of the last transaction. `sessions` are those that have not ended."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.zxid = 0
        self.limits = limits or Limits()
        self.nodes = {"/": StoredNode(b"", OPEN, 0, 0, 0, 0, 0, 0)}
        self.sessions: dict[int, SessionRecord] = {}
        self.containers: dict[str, None] = {}
        self.tree_bytes = 0
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._pending: dict[str, _Pending | None] = {}
        self.apply(Transaction(0, 0, 0, tuple(CreateNode(path, b"") for path in _FIRST)))
        for node in self.nodes.values():
            node.creations = 0  # ZooKeeper does not count these: the first sequential node below / has the number 0

    def __contains__(self, path: str) -> bool:
        return path in self.nodes

    # reads

    def node(self, path: str) -> Node | None:
        """The node, or None."""
        found = self.nodes.get(path)
        if found is None:
            return None
        return Node(found.data or b"", found.version, found.mzxid, found.czxid, found.owner, len(found.children))

    def find(self, path: str) -> StoredNode:
        """Raises Refused."""
        found = self.nodes.get(path)
        if found is None:
            raise Refused(NO_NODE)
        return found

    def children(self, path: str) -> list[str]:
        """The names below `path`. Raises Refused."""
        return list(self.find(path).children)

    def ephemerals(self, session: int) -> list[str]:
        """The paths of a session's nodes."""
        return list(self._ephemerals.get(session, ()))

    def ephemeral_count(self) -> int:
        return sum(map(len, self._ephemerals.values()))

    # decisions

    def decide(
        self, operations: Sequence[Operation], session: int, identities: Sequence[Identity] = ()
    ) -> tuple[Operation, ...]:
        """The operations as they are to be applied. Raises Refused, with the index of the one that fails. Ephemeral
        nodes belong to `session`, which has `identities`."""
        self._pending = {}
        decided: list[Operation] = []
        for index, operation in enumerate(operations):
            try:
                decided.append(self._decide(operation, session, identities))
            except Refused as refusal:
                raise Refused(refusal.code, index) from None
        return tuple(decided)

    def _decide(self, operation: Operation, session: int, identities: Sequence[Identity]) -> Operation:
        match operation:
            case CreateNode():
                return self._decide_create(operation, session, identities)
            case DeleteNode():
                return self._decide_delete(operation, identities)
            case SetData():
                check_path(operation.path)
                node = self._record(operation.path)
                access_lists.require(node.access_list, access_lists.WRITE, identities)
                self._check_room(0, len(operation.data or b""))
                _compare(node.version, operation.version)
                node.version += 1
            case SetAccessList():
                check_path(operation.path)
                access_list = access_lists.resolve(operation.access_list, identities)
                node = self._record(operation.path)
                access_lists.require(node.access_list, access_lists.ADMIN, identities)
                _compare(node.access_version, operation.version)
                node.access_version += 1
                node.access_list = access_list
                return operation._replace(access_list=access_list)
            case CheckVersion():
                check_path(operation.path)
                node = self._record(operation.path)
                access_lists.require(node.access_list, access_lists.READ, identities)
                _compare(node.version, operation.version)
        return operation

    def _decide_create(self, create: CreateNode, session: int, identities: Sequence[Identity]) -> CreateNode:
        if "/" not in create.path or "\0" in create.path:
            raise Refused(BAD_ARGUMENTS)
        access_list = access_lists.resolve(create.access_list, identities)
        parent = self._record(parent_of(create.path))
        access_lists.require(parent.access_list, access_lists.CREATE, identities)
        path = f"{create.path}{parent.creations:010d}" if create.sequential else create.path
        check_path(path)
        known: object = self._pending[path] if path in self._pending else self.nodes.get(path)
        if known is not None:
            raise Refused(NODE_EXISTS)
        if parent.owner not in (0, CONTAINER_OWNER):
            raise Refused(NO_CHILDREN_FOR_EPHEMERALS)
        self._check_room(1, len(path) + len(create.data or b""))
        parent.creations += 1
        parent.children_count += 1
        self._pending[path] = _Pending(access_list, 0, 0, 0, _owner(create.kind, session), 0)
        return create._replace(path=path, access_list=access_list, sequential=False)

    def _decide_delete(self, delete: DeleteNode, identities: Sequence[Identity]) -> DeleteNode:
        path = delete.path
        if "/" not in path or "\0" in path or path == "/" or path in _FIRST:
            raise Refused(BAD_ARGUMENTS)
        parent = self._record(parent_of(path))
        if not delete.if_container:
            access_lists.require(parent.access_list, access_lists.DELETE, identities)
        node = self._record(path)
        _compare(node.version, delete.version)
        if node.children_count:
            raise Refused(NOT_EMPTY)
        if delete.if_container and node.owner != CONTAINER_OWNER:
            raise Refused(BAD_VERSION)
        parent.children_count -= 1
        self._pending[path] = None
        return delete

    def _record(self, path: str) -> _Pending:
        if path not in self._pending:
            node = self.find(path)
            self._pending[path] = _Pending(
                node.access_list, node.version, node.access_version, node.creations, node.owner, len(node.children)
            )
        record = self._pending[path]
        if record is None:
            raise Refused(NO_NODE)
        return record

    def _check_room(self, nodes: int, content_bytes: int) -> None:
        """Counts those of the same request, too, but not their bytes, which the size of a request limits."""
        if len(self.nodes) + (len(self._pending) + 1 if nodes else 0) > self.limits.nodes:
            raise Refused(QUOTA_EXCEEDED)
        if self.tree_bytes + content_bytes + _NODE_BYTES * nodes > self.limits.tree_bytes:
            raise Refused(QUOTA_EXCEEDED)

    # changes

    def apply(self, transaction: Transaction) -> list[Event]:
        """Perform a transaction that was decided. Returns the changes of nodes, in order."""
        self.zxid, time_ms, session, operations = transaction
        events: list[Event] = []
        for operation in operations:
            match operation:
                case CreateNode():
                    events.append(self._create(operation, time_ms, session))
                case SetData():
                    node = self.nodes[operation.path]
                    self.tree_bytes += len(operation.data or b"") - len(node.data or b"")
                    node.data, node.version = operation.data, node.version + 1
                    node.mzxid, node.mtime_ms = self.zxid, time_ms
                    events.append(Event(DATA_CHANGED, operation.path, node.access_list, ()))
                case DeleteNode():
                    events.append(self._delete(operation.path))
                case SetAccessList():
                    node = self.nodes[operation.path]
                    node.access_list, node.access_version = operation.access_list, node.access_version + 1
                case OpenSession():
                    self.sessions[operation.number] = SessionRecord(operation.timeout_ms, operation.password)
                case EndSession():
                    self.sessions.pop(operation.number, None)
                    events += map(self._delete, self.ephemerals(operation.number))
        return events

    def _create(self, create: CreateNode, time_ms: int, session: int) -> Event:
        path, zxid = create.path, self.zxid
        owner = _owner(create.kind, session)
        self.add(path, StoredNode(create.data, create.access_list, owner, zxid, time_ms, zxid, time_ms, zxid))
        parent = self.nodes[parent_of(path)]
        parent.creations += 1
        parent.pzxid = zxid
        return Event(CREATED, path, create.access_list, parent.access_list)

    def add(self, path: str, node: StoredNode) -> None:
        """Add a node to its parent without any other change, as a snapshot has it."""
        self.nodes[path] = node
        if path != "/":
            self.nodes[parent_of(path)].children[_name(path)] = None
        if node.owner == CONTAINER_OWNER:
            self.containers[path] = None
        elif node.owner:
            self._ephemerals.setdefault(node.owner, {})[path] = None
        self.tree_bytes += len(path) + len(node.data or b"") + _NODE_BYTES

    def _delete(self, path: str) -> Event:
        node = self.nodes.pop(path)
        if node.owner == CONTAINER_OWNER:
            del self.containers[path]
        elif node.owner:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]
        self.tree_bytes -= len(path) + len(node.data or b"") + _NODE_BYTES
        parent = self.nodes[parent_of(path)]
        del parent.children[_name(path)]
        parent.pzxid = self.zxid
        return Event(DELETED, path, node.access_list, parent.access_list)

    def empty_containers(self) -> Iterator[str]:
        """Containers that have had children and have none."""
        for path in self.containers:
            node = self.nodes[path]
            if node.creations and not node.children:
                yield path


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Raises Refused unless the path is absolute and has no empty or relative part and no control character.
    Source: org.apache.zookeeper.common.PathUtils."""
    if path == "/":
        return
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):
        raise Refused(BAD_ARGUMENTS)
    if any(c <= "\x1f" or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\uf8ff" or c >= "\ufff0" for c in path):
        raise Refused(BAD_ARGUMENTS)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _owner(kind: int, session: int) -> int:
    return session if kind == EPHEMERAL else CONTAINER_OWNER if kind == CONTAINER else 0


def _compare(version: int, wanted: int) -> None:
    if wanted not in (ANY_VERSION, version):
        raise Refused(BAD_VERSION)
