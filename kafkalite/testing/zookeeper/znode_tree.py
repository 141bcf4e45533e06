"""The nodes of a ZooKeeper in memory: atomic transactions, and the paths that they changed.

A transaction is prepared against records of the nodes that it touches, one operation after the other, and applied when
all of them hold. Each takes a transaction id (zxid), also one that is refused. A sequential node gets the number of
children that its parent has ever had, as long as the parent lives.
Source: org.apache.zookeeper.server.PrepRequestProcessor (order of the checks), DataTree, StatPersisted.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafkalite.common.text import read_json
from kafkalite.zk.client.operations import ANY_VERSION, Create, Delete, Node, Operation, SetData

NO_NODE, BAD_VERSION, NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, NOT_EMPTY = -101, -103, -108, -110, -111

_STAT = struct.Struct("!qqqqiiiqiiq")


class Refused(Exception):
    """ZooKeeper's error `code`, for the operation at `index` of a transaction."""

    def __init__(self, code: int, index: int = 0) -> None:
        super().__init__(code)
        self.code = code
        self.index = index


@dataclass(slots=True)
class _Stored:
    """`creations` counts the children that were ever created."""

    data: bytes
    owner: int
    czxid: int
    mzxid: int
    pzxid: int
    version: int = 0
    creations: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> bytes:
        changes_of_children = 2 * self.creations - len(self.children)
        return _STAT.pack(
            self.czxid, self.mzxid, 0, 0, self.version, changes_of_children, 0, self.owner, len(self.data),
            len(self.children), self.pzxid,
        )  # fmt: skip


@dataclass(slots=True)
class _Record:
    """A node after the previous operations of a transaction."""

    version: int
    creations: int
    owner: int
    children_count: int


class ZnodeTree:
    """Paths are absolute. `zxid` is the id of the last transaction."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": _Stored(b"", 0, 0, 0, 0)}
        self._pending: dict[str, _Record | None] = {}
        self.transact([Create("/zookeeper")], 0)

    def __contains__(self, path: str) -> bool:
        return path in self._nodes

    # reads

    def node(self, path: str) -> Node | None:
        """The node, or None."""
        found = self._nodes.get(path)
        if found is None:
            return None
        return Node(found.data, found.version, found.mzxid, found.czxid, found.owner, len(found.children))

    def data_and_stat(self, path: str) -> tuple[bytes, bytes]:
        """Raises Refused."""
        found = self._find(path)
        return found.data, found.stat()

    def children(self, path: str) -> list[str]:
        """The names below `path`. Raises Refused."""
        return list(self._find(path).children)

    def _find(self, path: str) -> _Stored:
        found = self._nodes.get(path)
        if found is None:
            raise Refused(NO_NODE)
        return found

    # transactions

    def transact(self, operations: Sequence[Operation], session_id: int) -> tuple[list[str], list[str]]:
        """Perform all operations, or raise Refused. Returns for each operation the path that it created, else "", and
        the paths that were created, changed or deleted, in order. Ephemeral nodes belong to `session_id`."""
        self.zxid += 1
        self._pending = {}
        prepared: list[Operation] = []
        for index, operation in enumerate(operations):
            try:
                prepared.append(self._prepare(operation, session_id))
            except Refused as refusal:
                raise Refused(refusal.code, index) from None
        return (
            [each.path if isinstance(each, Create) else "" for each in prepared],
            [each.path for each in prepared if self._apply(each, session_id)],
        )

    def end_session(self, session_id: int) -> list[str]:
        """Delete the nodes of a session. Returns their paths."""
        self.zxid += 1
        owned = [path for path, node in self._nodes.items() if node.owner == session_id]
        for path in owned:
            self._delete(path)
        return owned

    def _prepare(self, operation: Operation, session_id: int) -> Operation:
        if isinstance(operation, Create):
            return self._prepare_create(operation, session_id)
        if isinstance(operation, Delete):
            parent = self._record(_parent(operation.path))
            record = self._record(operation.path)
            _compare(record.version, operation.version)
            if record.children_count:
                raise Refused(NOT_EMPTY)
            parent.children_count -= 1
            self._pending[operation.path] = None
            return operation
        record = self._record(operation.path)
        _compare(record.version, operation.version)
        if isinstance(operation, SetData):
            record.version += 1
        return operation

    def _prepare_create(self, create: Create, session_id: int) -> Create:
        parent = self._record(_parent(create.path))
        if create.sequential:
            create = create._replace(path=f"{create.path}{parent.creations:010d}", sequential=False)
        known: object = self._pending[create.path] if create.path in self._pending else self._nodes.get(create.path)
        if known is not None:
            raise Refused(NODE_EXISTS)
        if parent.owner:
            raise Refused(NO_CHILDREN_FOR_EPHEMERALS)
        parent.creations += 1
        parent.children_count += 1
        self._pending[create.path] = _Record(0, 0, session_id if create.ephemeral else 0, 0)
        return create

    def _record(self, path: str) -> _Record:
        if path not in self._pending:
            found = self._find(path)
            self._pending[path] = _Record(found.version, found.creations, found.owner, len(found.children))
        record = self._pending[path]
        if record is None:
            raise Refused(NO_NODE)
        return record

    def _apply(self, operation: Operation, session_id: int) -> bool:
        """Whether the node has changed."""
        path, zxid = operation.path, self.zxid
        if isinstance(operation, Create):
            owner = session_id if operation.ephemeral else 0
            self._nodes[path] = _Stored(operation.data, owner, zxid, zxid, zxid)
            parent = self._nodes[_parent(path)]
            parent.children[_name(path)] = None
            parent.creations += 1
            parent.pzxid = zxid
        elif isinstance(operation, SetData):
            node = self._nodes[path]
            node.data, node.version, node.mzxid = operation.data, node.version + 1, zxid
        elif isinstance(operation, Delete):
            self._delete(path)
        else:
            return False
        return True

    def _delete(self, path: str) -> None:
        del self._nodes[path]
        parent = self._nodes[_parent(path)]
        del parent.children[_name(path)]
        parent.pzxid = self.zxid

    # snapshots

    def dump(self) -> str:
        """All persistent nodes, as text for `load`."""
        nodes = {
            path: [base64.b64encode(n.data).decode(), n.czxid, n.mzxid, n.pzxid, n.version, n.creations]
            for path, n in self._nodes.items()
            if not n.owner
        }
        return json.dumps({"zxid": self.zxid, "nodes": nodes})

    def load(self, text: str) -> None:
        """Replace all nodes by those of a `dump`."""
        dumped = read_json(text)
        self.zxid = dumped["zxid"]
        self._nodes = {}
        for path, (data, czxid, mzxid, pzxid, version, creations) in dumped["nodes"].items():
            self._nodes[path] = _Stored(base64.b64decode(data), 0, czxid, mzxid, pzxid, version, creations)
        for path in self._nodes.keys() - {"/"}:
            self._nodes[_parent(path)].children[_name(path)] = None


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _compare(version: int, wanted: int) -> None:
    if wanted not in (ANY_VERSION, version):
        raise Refused(BAD_VERSION)
