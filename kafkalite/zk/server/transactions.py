"""Operations on nodes and sessions, and the transactions that perform them, as values and as bytes.

An operation of a request is conditional: it has an expected version, a sequential name without its number, an access
list with `auth` in it. An operation of a transaction has been decided: it is applied as it is, by the server that
decided it and by any that reads its log.

    transaction   zxid (8), time (8), session (8), count of operations (4), then each: kind (1), fields
    fields        string: 4 bytes of length, UTF-8; data: 4 bytes of length (-1: none), bytes; list: count (4), entries

Source: org.apache.zookeeper.txn (the same division); the bytes are our own.
"""

from __future__ import annotations

import struct
from typing import Any

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.zk.client.operations import ANY_VERSION
from kafkalite.zk.client.wire_requests import INT, read_fields, read_string, string
from kafkalite.zk.server.access_lists import OPEN, AccessList, Entry, Identity

PERSISTENT, EPHEMERAL, CONTAINER = 0, 1, 2


class CreateNode(NamedTuple):
    """`kind`: PERSISTENT, EPHEMERAL (deleted with its session), CONTAINER (deleted when its last child has gone).
    `sequential`: ten digits are added to the name."""

    path: str
    data: bytes | None = None
    access_list: AccessList = OPEN
    kind: int = PERSISTENT
    sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes | None
    version: int = ANY_VERSION


class DeleteNode(NamedTuple):
    """`if_container`: only if it is a container and has no children, as the server itself deletes them."""

    path: str
    version: int = ANY_VERSION
    if_container: bool = False


class SetAccessList(NamedTuple):
    """`version` is that of the access list."""

    path: str
    access_list: AccessList
    version: int = ANY_VERSION


class CheckVersion(NamedTuple):
    """Changes nothing."""

    path: str
    version: int


class OpenSession(NamedTuple):
    number: int
    timeout_ms: int
    password: bytes


class EndSession(NamedTuple):
    """Deletes the session's ephemeral nodes."""

    number: int


Operation = CreateNode | SetData | DeleteNode | SetAccessList | CheckVersion | OpenSession | EndSession


class Transaction(NamedTuple):
    """All of `operations` at once, decided. Without any it only has its number, of a request that was refused.
    `zxid` is one more than that of the transaction before; `time_ms` is milliseconds since 1970."""

    zxid: int
    time_ms: int
    session: int
    operations: tuple[Operation, ...]


_HEADER = struct.Struct("!qqqi")
_CREATE, _SET_DATA, _DELETE, _SET_ACCESS_LIST, _OPEN_SESSION, _END_SESSION = range(1, 7)
_SESSION = struct.Struct("!qi")
_NUMBER = struct.Struct("!q")
_KIND = struct.Struct("!B")


def data_field(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else INT.pack(len(data)) + data


def read_data(data: bytes, offset: int) -> tuple[bytes | None, int]:
    """The field at `offset`, and the position behind it. Raises Malformed."""
    ((size,), start) = read_fields(INT, data, offset)
    if size < 0:
        return None, start
    if start + size > len(data):
        raise Malformed(f"data of {size} bytes where {len(data) - start} are left")
    return data[start : start + size], start + size


def access_list_field(access_list: AccessList) -> bytes:
    return INT.pack(len(access_list)) + b"".join(
        INT.pack(permissions) + string(scheme) + string(name) for permissions, (scheme, name) in access_list
    )


def read_access_list(data: bytes, offset: int) -> tuple[AccessList, int]:
    """The entries as they are, and the position behind them. Raises Malformed."""
    ((count,), offset) = read_fields(INT, data, offset)
    if count > (len(data) - offset) // 12:  # the least that an entry takes
        raise Malformed(f"{count} entries of an access list in {len(data) - offset} bytes")
    entries = []
    for _ in range(count):
        ((permissions,), offset) = read_fields(INT, data, offset)
        scheme, offset = read_string(data, offset)
        name, offset = _read_optional_string(data, offset)
        entries.append(Entry(permissions, Identity(scheme, name)))
    return tuple(entries), offset


def _read_optional_string(data: bytes, offset: int) -> tuple[str, int]:
    """A string, or none as "": so kazoo sends the name of the scheme `auth`. Raises Malformed."""
    if data[offset : offset + INT.size] == b"\xff\xff\xff\xff":
        return "", offset + INT.size
    return read_string(data, offset)


def encode(transaction: Transaction) -> bytes:
    zxid, time_ms, session, operations = transaction
    parts = [_encode_operation(each) for each in operations if not isinstance(each, CheckVersion)]
    return _HEADER.pack(zxid, time_ms, session, len(parts)) + b"".join(parts)


def _encode_operation(operation: Operation) -> bytes:
    match operation:
        case CreateNode():
            fields = data_field(operation.data) + access_list_field(operation.access_list)
            return _KIND.pack(_CREATE) + string(operation.path) + fields + _KIND.pack(operation.kind)
        case SetData():
            return _KIND.pack(_SET_DATA) + string(operation.path) + data_field(operation.data)
        case DeleteNode():
            return _KIND.pack(_DELETE) + string(operation.path)
        case SetAccessList():
            return _KIND.pack(_SET_ACCESS_LIST) + string(operation.path) + access_list_field(operation.access_list)
        case OpenSession():
            fields = _SESSION.pack(operation.number, operation.timeout_ms)
            return _KIND.pack(_OPEN_SESSION) + fields + data_field(operation.password)
        case EndSession():
            return _KIND.pack(_END_SESSION) + _NUMBER.pack(operation.number)
    raise AssertionError(operation)


def decode(data: bytes, offset: int = 0) -> tuple[Transaction, int]:
    """The transaction at `offset`, and the position behind it. Raises Malformed."""
    ((zxid, time_ms, session, count), offset) = read_fields(_HEADER, data, offset)
    operations = []
    if count > len(data) - offset:
        raise Malformed(f"{count} operations in {len(data) - offset} bytes")
    for _ in range(count):
        operation, offset = _decode_operation(data, offset)
        operations.append(operation)
    return Transaction(zxid, time_ms, session, tuple(operations)), offset


def _decode_operation(data: bytes, offset: int) -> tuple[Operation, int]:
    ((kind,), offset) = read_fields(_KIND, data, offset)
    if kind == _OPEN_SESSION:
        ((number, timeout_ms), offset) = read_fields(_SESSION, data, offset)
        password, offset = read_data(data, offset)
        return OpenSession(number, timeout_ms, password or b""), offset
    if kind == _END_SESSION:
        ((number,), offset) = read_fields(_NUMBER, data, offset)
        return EndSession(number), offset
    path, offset = read_string(data, offset)
    content: Any
    if kind == _CREATE:
        content, offset = read_data(data, offset)
        access_list, offset = read_access_list(data, offset)
        ((node_kind,), offset) = read_fields(_KIND, data, offset)
        return CreateNode(path, content, access_list, node_kind), offset
    if kind == _SET_DATA:
        content, offset = read_data(data, offset)
        return SetData(path, content), offset
    if kind == _DELETE:
        return DeleteNode(path), offset
    if kind == _SET_ACCESS_LIST:
        access_list, offset = read_access_list(data, offset)
        return SetAccessList(path, access_list), offset
    raise Malformed(f"no operation has the kind {kind}")
