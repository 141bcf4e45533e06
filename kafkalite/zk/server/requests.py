"""Requests of clients as bytes: decoded, performed, and answered.

A write is decoded to operations, which the sessions decide and apply; its answer is encoded from the nodes as they are
then. A read is answered at once, and may set a watch for its session.
Source: zookeeper.jute, org.apache.zookeeper.MultiOperationRecord, MultiResponse; FinalRequestProcessor (reads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
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
    read_fields,
    read_string,
    string,
)
from kafkalite.zk.server import access_lists
from kafkalite.zk.server.access_lists import AccessList, Identity
from kafkalite.zk.server.refusals import (
    BAD_ARGUMENTS,
    MARSHALLING_ERROR,
    NO_WATCHER,
    RECONFIG_DISABLED,
    UNIMPLEMENTED,
    Refused,
)
from kafkalite.zk.server.transactions import (
    CONTAINER,
    EPHEMERAL,
    PERSISTENT,
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    SetAccessList,
    SetData,
    access_list_field,
    data_field,
    read_access_list,
    read_data,
)
from kafkalite.zk.server.watches import ONCE, RECURSIVE, Watches
from kafkalite.zk.server.watches import PERSISTENT as PERSISTENT_WATCH
from kafkalite.zk.server.znode_tree import (
    CHILDREN_CHANGED,
    CREATED,
    DATA_CHANGED,
    DELETED,
    StoredNode,
    ZnodeTree,
)

EXISTS, GET_ACL, SET_ACL, PING, GET_CHILDREN2, CREATE2 = 3, 6, 7, 11, 12, 15
RECONFIG, CHECK_WATCHES, REMOVE_WATCHES, CREATE_CONTAINER, CREATE_TTL = 16, 17, 18, 19, 21
AUTH, SET_WATCHES, SASL, GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER, SET_WATCHES2, WHO_AM_I = (
    100, 101, 102, 103, 104, 105, 107,
)  # fmt: skip
CLOSE_SESSION = -11

WRITES = frozenset({CREATE, DELETE, SET_DATA, MULTI, SET_ACL, CREATE2, CREATE_CONTAINER, CREATE_TTL, CHECK})

_CREATES = (CREATE, CREATE2, CREATE_CONTAINER)
_ROLLED_BACK, _NOT_TRIED = 0, -2
_SEQUENTIAL_FLAGS = (2, 3)
_EPHEMERAL_FLAGS = (1, 3)
_CONTAINER_FLAG, _TTL_FLAGS = 4, (5, 6)
_WATCHER_CHILDREN, _WATCHER_DATA, _WATCHER_ANY, _WATCHER_PERSISTENT, _WATCHER_RECURSIVE = 1, 2, 3, 4, 5


class Client(Protocol):
    """The session of a request: its number, and the identities that it has proven."""

    @property
    def number(self) -> int: ...

    @property
    def identities(self) -> Sequence[Identity]: ...

    def send_event(self, kind: int, path: str) -> None:
        """Notify it, before the answer of its request."""
        ...


class Fields:
    """Reads the fields of a request's body one after the other. Raises Malformed."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def integer(self) -> int:
        ((number,), self._at) = read_fields(INT, self._body, self._at)
        return int(number)

    def long(self) -> int:
        return self.integer() << 32 | self.integer() & 0xFFFFFFFF

    def flag(self) -> bool:
        if self._at >= len(self._body):
            raise Malformed("a request ends before a flag")
        self._at += 1
        return self._body[self._at - 1] != 0

    def string(self) -> str:
        text, self._at = read_string(self._body, self._at)
        return text

    def optional_string(self) -> str:
        """A string, or none, as "" in either case."""
        data = self.data()
        try:
            return data.decode() if data else ""
        except UnicodeDecodeError:
            raise Malformed("a string that is not UTF-8") from None

    def data(self) -> bytes | None:
        data, self._at = read_data(self._body, self._at)
        return data

    def access_list(self) -> AccessList:
        entries, self._at = read_access_list(self._body, self._at)
        return entries

    def strings(self) -> list[str]:
        count = self.integer()
        if count > (len(self._body) - self._at) // 4:
            raise Malformed(f"{count} strings in {len(self._body) - self._at} bytes")
        return [self.string() for _ in range(count)]

    def kinds(self) -> Iterator[int]:
        """The type of each part of a multi; the caller reads its fields before it takes the next."""
        while True:
            ((kind, done, _), self._at) = read_fields(MULTI_HEADER, self._body, self._at)
            if done:
                return
            yield kind

    def has_more(self) -> bool:
        return self._at < len(self._body)


# writes


class Write(NamedTuple):
    """The operations of a request, each with the type of its result."""

    kinds: tuple[int, ...]
    operations: tuple[Operation, ...]
    is_multi: bool


def read_write(kind: int, body: bytes) -> Write:
    """Raises Refused, also for bytes that are no such request."""
    fields = Fields(body)
    try:
        if kind != MULTI:
            return Write((kind,), (_read_operation(kind, fields),), is_multi=False)
        kinds, operations = [], []
        for each in fields.kinds():
            if each == SET_ACL:
                raise Malformed("a multi has no operation of that type")
            kinds.append(each)
            operations.append(_read_operation(each, fields))
        return Write(tuple(kinds), tuple(operations), is_multi=True)
    except Malformed:
        raise Refused(MARSHALLING_ERROR) from None


def _read_operation(kind: int, fields: Fields) -> Operation:
    if kind == CREATE_TTL:
        raise Refused(UNIMPLEMENTED)  # as ZooKeeper, unless its extended types are enabled
    if kind not in (*_CREATES, SET_DATA, DELETE, CHECK, SET_ACL):
        raise Refused(MARSHALLING_ERROR)
    path = fields.string()
    if kind in _CREATES:
        data, access_list, flags = fields.data(), fields.access_list(), fields.integer()
        if flags in _TTL_FLAGS:
            raise Refused(UNIMPLEMENTED)
        if not 0 <= flags <= _CONTAINER_FLAG:
            raise Refused(BAD_ARGUMENTS)
        node_kind = EPHEMERAL if flags in _EPHEMERAL_FLAGS else PERSISTENT
        if kind == CREATE_CONTAINER:  # with whatever flags; to the other kinds _CONTAINER_FLAG says nothing
            node_kind = CONTAINER
        return CreateNode(path, data, access_list, node_kind, flags in _SEQUENTIAL_FLAGS)
    if kind == SET_DATA:
        return SetData(path, fields.data(), fields.integer())
    if kind == SET_ACL:
        return SetAccessList(path, fields.access_list(), fields.integer())
    return DeleteNode(path, fields.integer()) if kind == DELETE else CheckVersion(path, fields.integer())


def answer_write(write: Write, decided: Sequence[Operation], tree: ZnodeTree) -> bytes:
    """The answer to a write that was applied."""
    if not write.is_multi:
        return _result(write.kinds[0], decided[0], tree)
    parts = []
    for kind, operation in zip(write.kinds, decided, strict=True):
        # in a multi ZooKeeper answers a container like any other node with its stat
        as_kind = CREATE2 if kind == CREATE_CONTAINER else kind
        parts.append(MULTI_HEADER.pack(as_kind, 0, 0) + (b"" if kind == CHECK else _result(kind, operation, tree)))
    return b"".join(parts) + MULTI_END


def answer_refused(write: Write, refusal: Refused) -> bytes:
    """The answer to a multi that was refused: an error for each operation."""
    parts = []
    for index in range(len(write.operations)):
        before_or_after = _ROLLED_BACK if index < refusal.index else _NOT_TRIED
        code = refusal.code if index == refusal.index else before_or_after
        parts.append(MULTI_HEADER.pack(ERROR, 0, code) + INT.pack(code))
    return b"".join(parts) + MULTI_END


def _result(kind: int, operation: Operation, tree: ZnodeTree) -> bytes:
    match operation:
        case CreateNode():
            return string(operation.path) + (b"" if kind == CREATE else _stat(tree, operation.path))
        case SetData() | SetAccessList() | CheckVersion():
            return _stat(tree, operation.path)
    return b""


def _stat(tree: ZnodeTree, path: str) -> bytes:
    """A node may have been deleted by the same transaction; no client reads the stat then."""
    return tree.find(path if path in tree else "/").stat()


# reads


def answer_read(kind: int, body: bytes, tree: ZnodeTree, watches: Watches[Client], client: Client) -> bytes:
    """Raises Refused, also for bytes that are no such request."""
    handler = _READS.get(kind)
    if handler is None:
        raise Refused(RECONFIG_DISABLED if kind == RECONFIG else UNIMPLEMENTED)
    try:
        return handler(_Reading(Fields(body), tree, watches, client))
    except Malformed:
        raise Refused(MARSHALLING_ERROR) from None


class _Reading(NamedTuple):
    fields: Fields
    tree: ZnodeTree
    watches: Watches[Client]
    client: Client

    def readable(self, path: str, permissions: int = access_lists.READ) -> StoredNode:
        node = self.tree.find(path)
        access_lists.require(node.access_list, permissions, self.client.identities)
        return node


def _get_data(r: _Reading) -> bytes:
    path, is_watched = r.fields.string(), r.fields.flag()
    node = r.readable(path)
    if is_watched:
        r.watches.data.add(path, r.client, ONCE)
    return data_field(node.data) + node.stat()


def _exists(r: _Reading) -> bytes:
    path, is_watched = r.fields.string(), r.fields.flag()
    if "\0" in path:
        raise Refused(BAD_ARGUMENTS)
    if path in r.tree:
        r.readable(path)
    if is_watched:
        r.watches.data.add(path, r.client, ONCE)
    return r.tree.find(path).stat()


def _get_children(r: _Reading) -> bytes:
    return _children(r)[0]


def _get_children2(r: _Reading) -> bytes:
    names, node = _children(r)
    return names + node.stat()


def _children(r: _Reading) -> tuple[bytes, StoredNode]:
    path, is_watched = r.fields.string(), r.fields.flag()
    node = r.readable(path)
    if is_watched:
        r.watches.children.add(path, r.client, ONCE)
    return _strings(list(node.children)), node


def _get_acl(r: _Reading) -> bytes:
    path = r.fields.string()
    node = r.readable(path, access_lists.READ | access_lists.ADMIN)
    found = node.access_list
    try:
        r.readable(path, access_lists.ADMIN)
    except Refused:
        found = access_lists.redact(found)
    return access_list_field(found) + node.stat()


def _sync(r: _Reading) -> bytes:
    return string(r.fields.string())


def _multi_read(r: _Reading) -> bytes:
    parts = []
    for kind in r.fields.kinds():
        if kind not in (GET_DATA, GET_CHILDREN):
            raise Refused(MARSHALLING_ERROR)
        try:
            parts.append(MULTI_HEADER.pack(kind, 0, 0) + _READS[kind](r))
        except Refused as refusal:
            parts.append(MULTI_HEADER.pack(ERROR, 0, refusal.code) + INT.pack(refusal.code))
    return b"".join(parts) + MULTI_END


def _add_watch(r: _Reading) -> bytes:
    path, mode = r.fields.string(), r.fields.integer()
    if mode not in (0, 1):
        raise Refused(MARSHALLING_ERROR)
    r.watches.add(path, r.client, RECURSIVE if mode else PERSISTENT_WATCH)
    return INT.pack(0)


_MODES = {
    _WATCHER_DATA: (ONCE, 0),
    _WATCHER_CHILDREN: (0, ONCE),
    _WATCHER_ANY: (ONCE | PERSISTENT_WATCH | RECURSIVE,) * 2,
    _WATCHER_PERSISTENT: (PERSISTENT_WATCH,) * 2,
    _WATCHER_RECURSIVE: (RECURSIVE, 0),
}
"""The modes that a type of watcher means, of data and of children."""


def _check_watches(r: _Reading) -> bytes:
    path, (of_data, of_children) = _watcher(r)
    modes = r.watches.data.modes(path, r.client) & of_data, r.watches.children.modes(path, r.client) & of_children
    if not any(modes):
        raise Refused(NO_WATCHER)
    return b""


def _remove_watches(r: _Reading) -> bytes:
    path, (of_data, of_children) = _watcher(r)
    removed = [
        r.watches.data.remove(path, r.client, of_data), r.watches.children.remove(path, r.client, of_children)
    ]  # fmt: skip
    if not any(removed):
        raise Refused(NO_WATCHER)
    return b""


def _watcher(r: _Reading) -> tuple[str, tuple[int, int]]:
    path, kind = r.fields.string(), r.fields.integer()
    if kind not in _MODES:
        raise Refused(MARSHALLING_ERROR)
    return path, _MODES[kind]


def _set_watches(r: _Reading) -> bytes:
    """Sets the watches of an earlier connection again; a change since then is notified at once."""
    since = r.fields.long()
    of_data, of_existence, of_children = r.fields.strings(), r.fields.strings(), r.fields.strings()
    for path in of_data:
        node = r.tree.nodes.get(path)
        if node is None or node.mzxid > since:
            r.client.send_event(DELETED if node is None else DATA_CHANGED, path)
        else:
            r.watches.data.add(path, r.client, ONCE)
    for path in of_existence:
        if path in r.tree:
            r.client.send_event(CREATED, path)
        else:
            r.watches.data.add(path, r.client, ONCE)
    for path in of_children:
        node = r.tree.nodes.get(path)
        if node is None or node.pzxid > since:
            r.client.send_event(DELETED if node is None else CHILDREN_CHANGED, path)
        else:
            r.watches.children.add(path, r.client, ONCE)
    return b""


def _set_watches2(r: _Reading) -> bytes:
    _set_watches(r)
    for path in r.fields.strings():
        r.watches.add(path, r.client, PERSISTENT_WATCH)
    for path in r.fields.strings():
        r.watches.add(path, r.client, RECURSIVE)
    return b""


def _get_ephemerals(r: _Reading) -> bytes:
    prefix = r.fields.optional_string().strip()
    owned = r.tree.ephemerals(r.client.number)
    return _strings([path for path in owned if prefix in ("", "/") or path.startswith(prefix)])


def _get_all_children_number(r: _Reading) -> bytes:
    path = r.fields.string()
    r.readable(path)
    if path == "/":
        return INT.pack(len(r.tree.nodes) - 1)
    return INT.pack(sum(each.startswith(path + "/") for each in r.tree.nodes))


def _who_am_i(r: _Reading) -> bytes:
    users = [string(scheme) + string(name.partition(":")[0]) for scheme, name in r.client.identities]
    return INT.pack(len(users)) + b"".join(users)


def _strings(names: Sequence[str]) -> bytes:
    return INT.pack(len(names)) + b"".join(map(string, names))


_READS: dict[int, Callable[[_Reading], bytes]] = {
    GET_DATA: _get_data,
    EXISTS: _exists,
    GET_CHILDREN: _get_children,
    GET_CHILDREN2: _get_children2,
    GET_ACL: _get_acl,
    SYNC: _sync,
    MULTI_READ: _multi_read,
    ADD_WATCH: _add_watch,
    CHECK_WATCHES: _check_watches,
    REMOVE_WATCHES: _remove_watches,
    SET_WATCHES: _set_watches,
    SET_WATCHES2: _set_watches2,
    GET_EPHEMERALS: _get_ephemerals,
    GET_ALL_CHILDREN_NUMBER: _get_all_children_number,
    WHO_AM_I: _who_am_i,
}
