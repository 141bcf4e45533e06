"""All nodes and sessions of a ZooKeeper as bytes, with a checksum over all of them.

    magic (4)  checksum of the rest (4)  zxid (8)  count of access lists, sessions, nodes (4 each)
    access list    as in a request
    session        number (8)  timeout in ms (4)  password
    node           path  data  number of its access list (4)  owner, czxid, ctime, mzxid, mtime, pzxid (8 each)
                   version, version of the access list, children ever created (4 each); parents come first

Source: org.apache.zookeeper.server.persistence.FileSnap, whose bytes are others.
"""

from __future__ import annotations

import struct

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.zk.client.wire_requests import read_fields, read_string, string
from kafkalite.zk.server.access_lists import AccessList
from kafkalite.zk.server.transactions import access_list_field, data_field, read_access_list, read_data
from kafkalite.zk.server.znode_tree import SessionRecord, StoredNode, ZnodeTree, parent_of

_MAGIC = b"KZS1"
_START = struct.Struct("!4sI")
_COUNTS = struct.Struct("!qiii")
_SESSION = struct.Struct("!qi")
_NODE = struct.Struct("!iqqqqqqiii")


def encode_snapshot(tree: ZnodeTree) -> bytes:
    lists: dict[AccessList, int] = {}
    nodes: list[bytes] = []
    for path, node in tree.nodes.items():
        number = lists.setdefault(node.access_list, len(lists))
        fields = _NODE.pack(
            number, node.owner, node.czxid, node.ctime_ms, node.mzxid, node.mtime_ms, node.pzxid, node.version,
            node.access_version, node.creations,
        )  # fmt: skip
        nodes += (string(path), data_field(node.data), fields)
    sessions = [
        _SESSION.pack(number, record.timeout_ms) + data_field(record.password)
        for number, record in tree.sessions.items()
    ]
    counts = _COUNTS.pack(tree.zxid, len(lists), len(sessions), len(tree.nodes))
    body = b"".join([counts, *map(access_list_field, lists), *sessions, *nodes])
    return _START.pack(_MAGIC, crc32c(body)) + body


def decode_snapshot(data: bytes) -> ZnodeTree:
    """Raises Malformed."""
    ((magic, checksum), at) = read_fields(_START, data, 0)
    if magic != _MAGIC or crc32c(memoryview(data)[at:]) != checksum:
        raise Malformed("no snapshot, or not all of it")
    tree = ZnodeTree()
    tree.nodes.clear()
    tree.tree_bytes = 0
    ((tree.zxid, list_count, session_count, node_count), at) = read_fields(_COUNTS, data, at)
    lists = []
    for _ in range(list_count):
        access_list, at = read_access_list(data, at)
        lists.append(access_list)
    for _ in range(session_count):
        ((number, timeout_ms), at) = read_fields(_SESSION, data, at)
        password, at = read_data(data, at)
        tree.sessions[number] = SessionRecord(timeout_ms, password or b"")
    for _ in range(node_count):
        at = _add_node(tree, lists, data, at)
    if "/" not in tree:
        raise Malformed("a snapshot without a root")
    return tree


def _add_node(tree: ZnodeTree, lists: list[AccessList], data: bytes, at: int) -> int:
    path, at = read_string(data, at)
    content, at = read_data(data, at)
    ((number, owner, czxid, ctime, mzxid, mtime, pzxid, version, access_version, creations), at) = read_fields(
        _NODE, data, at
    )
    if not 0 <= number < len(lists) or (path != "/" and parent_of(path) not in tree):
        raise Malformed(f"the node {path!r} of a snapshot has no parent or no access list")
    node = StoredNode(
        content, lists[number], owner, czxid, ctime, mzxid, mtime, pzxid, version, access_version, creations
    )
    tree.add(path, node)
    return at
