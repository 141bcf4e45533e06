"""Requests to ZooKeeper decoded, performed on a tree in memory, and answered in bytes: the servers' side of
`zk.client.wire_requests` and `zk.client.multi_read`.

Access lists are skipped: everybody may do everything.
Source: zookeeper.jute, org.apache.zookeeper.MultiOperationRecord, MultiResponse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkalite.testing.zookeeper.znode_tree import Refused, ZnodeTree
from kafkalite.zk.client.operations import UNIMPLEMENTED, Check, Create, Delete, Operation, SetData
from kafkalite.zk.client.wire_requests import (
    ADD_WATCH,
    CHECK,
    CREATE,
    DELETE,
    ERROR,
    GET_CHILDREN,
    GET_DATA,
    INT,
    MULTI,
    MULTI_END,
    MULTI_HEADER,
    MULTI_READ,
    SET_DATA,
    SYNC,
    Request,
    buffer,
    string,
)

WRITES = frozenset({CREATE, DELETE, SET_DATA, MULTI})

_EPHEMERAL, _SEQUENTIAL = 1, 2
_ROLLED_BACK, _NOT_TRIED = 0, -2


class Answered(NamedTuple):
    """The bytes of an answer, the paths that were changed, and the path that is watched from now on."""

    data: bytes
    changed: list[str]
    watched: str | None = None


def answer(request: Request, tree: ZnodeTree, session_id: int) -> Answered:
    """Perform a request. Raises Refused if it is answered with an error as a whole."""
    kind, fields = request.type, _Fields(request.serialize())
    if kind == MULTI:
        return _transact(list(fields.operations()), tree, session_id)
    if kind in WRITES:
        operation = fields.operation(kind)
        created, changed = tree.transact([operation], session_id)
        return Answered(_result(operation, created[0], tree), changed)
    if kind == MULTI_READ:
        return Answered(b"".join([_read(each, path, tree) for each, path in fields.reads()]) + MULTI_END, [])
    if kind == ADD_WATCH:
        return Answered(INT.pack(0), [], fields.string())
    if kind == SYNC:
        return Answered(string(fields.string()), [])
    raise Refused(UNIMPLEMENTED)


def _transact(operations: list[Operation], tree: ZnodeTree, session_id: int) -> Answered:
    parts: list[bytes] = []
    try:
        created, changed = tree.transact(operations, session_id)
    except Refused as refusal:
        for index in range(len(operations)):
            before_or_after = _ROLLED_BACK if index < refusal.index else _NOT_TRIED
            code = refusal.code if index == refusal.index else before_or_after
            parts.append(MULTI_HEADER.pack(ERROR, 0, code) + INT.pack(code))
        return Answered(b"".join(parts) + MULTI_END, [])
    for operation, path in zip(operations, created, strict=True):
        parts.append(MULTI_HEADER.pack(_KINDS[type(operation)], 0, 0) + _result(operation, path, tree))
    return Answered(b"".join(parts) + MULTI_END, changed)


def _result(operation: Operation, created: str, tree: ZnodeTree) -> bytes:
    if isinstance(operation, Create):
        return string(created)
    if isinstance(operation, SetData):  # no reader uses it; the node may be deleted by the same transaction
        return tree.data_and_stat(operation.path if operation.path in tree else "/")[1]
    return b""


def _read(kind: int, path: str, tree: ZnodeTree) -> bytes:
    try:
        if kind == GET_DATA:
            data, stat = tree.data_and_stat(path)
            return MULTI_HEADER.pack(kind, 0, 0) + buffer(data) + stat
        names = tree.children(path)
        return MULTI_HEADER.pack(GET_CHILDREN, 0, 0) + INT.pack(len(names)) + b"".join(map(string, names))
    except Refused as refusal:
        return MULTI_HEADER.pack(ERROR, 0, refusal.code) + INT.pack(refusal.code)


_KINDS: dict[type[Operation], int] = {Create: CREATE, SetData: SET_DATA, Delete: DELETE, Check: CHECK}


class _Fields:
    """Reads the fields of a request's body one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def operation(self, kind: int) -> Operation:
        path = self.string()
        if kind == CREATE:
            data = self._buffer()
            for _ in range(self._int()):  # the access list
                self._int(), self.string(), self.string()
            flags = self._int()
            return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL))
        if kind == SET_DATA:
            return SetData(path, self._buffer(), self._int())
        if kind == DELETE:
            return Delete(path, self._int())
        assert kind == CHECK, kind
        return Check(path, self._int())

    def operations(self) -> Iterator[Operation]:
        while (kind := self._next_kind()) is not None:
            yield self.operation(kind)

    def reads(self) -> Iterator[tuple[int, str]]:
        while (kind := self._next_kind()) is not None:
            yield kind, self.string()
            self._at += 1  # whether a watch is wanted

    def string(self) -> str:
        return self._buffer().decode()

    def _next_kind(self) -> int | None:
        kind, done, _ = MULTI_HEADER.unpack_from(self._body, self._at)
        self._at += MULTI_HEADER.size
        return None if done else int(kind)

    def _int(self) -> int:
        (number,) = INT.unpack_from(self._body, self._at)
        self._at += INT.size
        return int(number)

    def _buffer(self) -> bytes:
        size = max(0, self._int())
        self._at += size
        return self._body[self._at - size : self._at]
