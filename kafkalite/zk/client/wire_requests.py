"""ZooKeeper's requests and answers as bytes: reads of many nodes, writes, sync, and persistent recursive watches.

A request has the interface that kazoo's connection expects: a `type`, and `serialize`, which returns the bytes behind
the type. `deserialize` returns the undecoded answer with the position where it begins; the answer is decoded later, on
the event loop, so that kazoo's thread holds the interpreter only for a moment.

    string  4 bytes of length, UTF-8             buffer  4 bytes of length (-1: none), bytes
    multi   (type, done=0, error=-1) operation, ..., (-1, done=1, -1)

MultiRead has getData or getChildren of hundreds of paths, and each path gets a result of its own; a missing node is not
an error of the request. Its answer is decoded on the event loop; the batch size limits this to 2 ms at a time. 10,000
state nodes take 90 ms and 32 ms of CPU on two slow cores that others share; kazoo's `get_async`, 200 at a time, takes
4 s and 2 s of CPU (tests/unit/zk/client/test_wire_requests.py prints it).

    request (type, done=0, error=-1) path, watch=0, ..., (-1, done=1, -1)
    answer  (type, 0, 0) data, stat | count, names       or (-1, 0, error) error

Source: zookeeper.jute, org.apache.zookeeper.MultiOperationRecord and MultiResponse, ZooDefs.OpCode (types),
MultiOperationRecord of kind READ (3.6, ZOOKEEPER-1407), org.apache.zookeeper.data.Stat, kafka.zk.ZkData.defaultAcls.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from kafkalite.common.errors import Malformed
from kafkalite.zk.client.operations import NO_NODE, Check, Create, Delete, Node, Operation, SetData, failure
from kafkalite.zk.znodes import znode_paths

CREATE, DELETE, GET_DATA, SET_DATA, GET_CHILDREN, SYNC, CHECK, MULTI = 1, 2, 4, 5, 8, 9, 13, 14
MULTI_READ, ADD_WATCH = 22, 106
ERROR = -1
RECURSIVE = 1  # of the two modes of a persistent watch

MULTI_HEADER = struct.Struct("!ibi")  # type, done, error
MULTI_END = MULTI_HEADER.pack(-1, 1, -1)
INT = struct.Struct("!i")
STAT_SIZE = 68

_EPHEMERAL, _SEQUENTIAL = 1, 2
_ROLLED_BACK, _NOT_TRIED = 0, -2  # the errors of operations before and behind the one that failed

Answer = tuple[bytes, int]  # the bytes and where the answer begins in them


def string(text: str) -> bytes:
    data = text.encode()
    return INT.pack(len(data)) + data


def read_fields(fields: struct.Struct, data: bytes, offset: int) -> tuple[tuple[Any, ...], int]:
    """The fields at `offset` of an answer, and the position behind them. Raises Malformed."""
    try:
        return fields.unpack_from(data, offset), offset + fields.size
    except struct.error:
        raise Malformed(f"an answer of {len(data)} bytes ends inside a field at {offset}") from None


def read_string(data: bytes, offset: int) -> tuple[str, int]:
    """The string at `offset` of an answer, and the position behind it. Raises Malformed."""
    ((size,), start) = read_fields(INT, data, offset)
    end = start + size
    if not start <= end <= len(data):
        raise Malformed(f"a string of {size} bytes where {len(data) - start} are left")
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError:
        raise Malformed("a string that is not UTF-8") from None


def buffer(data: bytes) -> bytes:
    """Encodes b"" as "no data", since Kafka takes empty data for a broken record."""
    return INT.pack(len(data)) + data if data else b"\xff\xff\xff\xff"


def absolute(chroot: str, path: str) -> str:
    """The path below ZooKeeper's root; `path` "/" is the chroot itself."""
    return chroot + path if path != "/" else chroot or "/"


class Request:
    """A request for kazoo's connection. The paths in `body` include the chroot."""

    def __init__(self, kind: int, body: bytes) -> None:
        self.type = kind
        self._body = body

    def serialize(self) -> bytes:
        return self._body

    def deserialize(self, data: bytes, offset: int) -> Answer:
        return data, offset


def add_watch(path: str, chroot: str) -> Request:
    """Sets a persistent recursive watch for one connection; the node need not exist."""
    return Request(ADD_WATCH, string(absolute(chroot, path)) + INT.pack(RECURSIVE))


def sync(chroot: str) -> Request:
    """A request that is answered when the server has caught up with the leader of the ensemble."""
    return Request(SYNC, string(absolute(chroot, "/")))


class Write:
    """Operations that are performed all or none: a single one as a request of its own, several as a multi."""

    def __init__(self, operations: Sequence[Operation], chroot: str, secure: bool) -> None:
        self.operations = operations
        self._chroot = chroot
        bodies = [_body(each, chroot, secure) for each in operations]
        self._alone = len(bodies) == 1 and not isinstance(operations[0], Check)  # a check exists only in a multi
        if self._alone:
            self.request = Request(_TYPES[type(operations[0])], bodies[0])
        else:
            parts: list[bytes] = []
            for operation, body in zip(operations, bodies, strict=True):
                parts += (MULTI_HEADER.pack(_TYPES[type(operation)], 0, -1), body)
            self.request = Request(MULTI, b"".join(parts) + MULTI_END)

    def created(self, answer: Answer) -> list[str]:
        """For each operation the path that it created, else "". Raises OperationFailed for the one that failed,
        Malformed."""
        data, offset = answer
        if self._alone:
            return [self._path(data, offset)[0] if isinstance(self.operations[0], Create) else ""]
        result = []
        failed = None
        for index, operation in enumerate(self.operations):
            ((kind, _, _), offset) = read_fields(MULTI_HEADER, data, offset)
            path = ""
            if kind == ERROR:
                ((code,), offset) = read_fields(INT, data, offset)
                if failed is None and code not in (_ROLLED_BACK, _NOT_TRIED):
                    failed = failure(code, operation.path, index)
            elif kind == CREATE:
                path, offset = self._path(data, offset)
            elif kind == SET_DATA:
                offset += STAT_SIZE
            result.append(path)
        if failed is not None:
            raise failed
        return result

    def _path(self, data: bytes, offset: int) -> tuple[str, int]:
        path, end = read_string(data, offset)
        return path[len(self._chroot) :], end


_TYPES: dict[type[Operation], int] = {Create: CREATE, SetData: SET_DATA, Delete: DELETE, Check: CHECK}


def _body(operation: Operation, chroot: str, secure: bool) -> bytes:
    path = string(absolute(chroot, operation.path))
    if isinstance(operation, Create):
        flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
        return path + buffer(operation.data) + access_list(operation.path, secure) + INT.pack(flags)
    if isinstance(operation, SetData):
        return path + buffer(operation.data) + INT.pack(operation.version)
    return path + INT.pack(operation.version)


def _entry(permissions: int, scheme: str, identity: str) -> bytes:
    return INT.pack(permissions) + string(scheme) + string(identity)


_READ, _ALL = 1, 31
_OPEN = INT.pack(1) + _entry(_ALL, "world", "anyone")
_CREATOR = INT.pack(1) + _entry(_ALL, "auth", "")
_CREATOR_AND_READERS = INT.pack(2) + _entry(_ALL, "auth", "") + _entry(_READ, "world", "anyone")


def access_list(path: str, secure: bool) -> bytes:
    """The ACL of a new node: all rights for every client. With zookeeper.set.acl: all rights for its creator, and read
    access for others, unless the node may contain secrets."""
    if not secure or znode_paths.is_open(path):
        return _OPEN
    return _CREATOR if znode_paths.is_sensitive(path) else _CREATOR_AND_READERS


def watch_event(data: bytes, offset: int) -> str:
    """The path of a watch event. Its type and state (4 bytes each) are skipped, since the node is read again anyway.
    Raises Malformed."""
    return read_string(data, offset + 8)[0]


BATCH_COUNT = 250  # paths of one request
BATCH_BYTES = 256 * 1024  # ZooKeeper takes no request of more than 1 MiB

_RESULT_HEADER = struct.Struct("!ibii")  # type, done, error; length of data, count of children, or the error again
_STAT = struct.Struct("!qq16xi8xq4xi8x")  # czxid, mzxid, -, version, -, owner, -, children, -
_HEADERS = {kind: MULTI_HEADER.pack(kind, 0, -1) for kind in (GET_DATA, GET_CHILDREN)}


def read_batches(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """The paths in their order, in batches that fit into one request each."""
    start = size = 0
    for index, path in enumerate(paths):
        size += len(path) * 4 + 14  # a character has four bytes at most
        if index - start == BATCH_COUNT or (size > BATCH_BYTES and index > start):
            yield paths[start:index]
            start, size = index, len(path) * 4 + 14
    if start < len(paths):
        yield paths[start:]


def read_request(paths: Sequence[str], chroot: str, kind: int = GET_DATA) -> Request:
    """The request for one batch. `kind`: GET_DATA or GET_CHILDREN."""
    header = _HEADERS[kind]
    parts: list[bytes] = []
    for path in paths:
        name = absolute(chroot, path).encode()
        parts += (header, INT.pack(len(name)), name, b"\x00")
    parts.append(MULTI_END)
    return Request(MULTI_READ, b"".join(parts))


def read_results(paths: Sequence[str], answer: Answer) -> list[Any]:
    """For each path its node, or the names of its children in no order; None where there is no node. Raises
    OperationFailed when a node may not be read, Malformed."""
    data, offset = answer
    found: list[Node | list[str] | None] = []
    for index, path in enumerate(paths):
        (kind, _, _, length), offset = read_fields(_RESULT_HEADER, data, offset)
        if kind == GET_DATA:
            end = offset + length if length > 0 else offset
            (czxid, mzxid, version, owner, children_count), behind = read_fields(_STAT, data, end)
            found.append(Node(data[offset:end], version, mzxid, czxid, owner, children_count))
            offset = behind
        elif kind == GET_CHILDREN:
            names = []
            for _ in range(length):
                name, offset = read_string(data, offset)
                names.append(name)
            found.append(names)
        elif length == NO_NODE:
            found.append(None)
        else:
            raise failure(length, path, index)
    return found
