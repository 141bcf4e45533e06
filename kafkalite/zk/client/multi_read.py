"""MultiRead: reads many nodes, or the children of many nodes, in few requests.

A request has getData or getChildren of hundreds of paths, and each path gets a result of its own; a missing node is not
an error of the request. An answer is decoded on the event loop; the batch size limits this to 2 ms at a time.

10,000 state nodes take 90 ms and 32 ms of CPU on two slow cores that others share; kazoo's `get_async`, 200 at a time,
takes 4 s and 2 s of CPU (tests/unit/zk/client/test_multi_read.py prints it).

    request    (type, done=0, error=-1) path, watch=0, ..., (-1, done=1, -1)
    answer     (type, 0, 0) data, stat | count, names       or (-1, 0, error) error

Source: ZooKeeper 3.6's MultiOperationRecord of kind READ (ZOOKEEPER-1407), org.apache.zookeeper.data.Stat.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from kafkalite.zk.client.operations import NO_NODE, Node, failure
from kafkalite.zk.client.wire_requests import (
    GET_CHILDREN,
    GET_DATA,
    INT,
    MULTI_END,
    MULTI_HEADER,
    MULTI_READ,
    Answer,
    Request,
    absolute,
    read_fields,
    read_string,
)

BATCH_COUNT = 250  # paths of one request
BATCH_BYTES = 256 * 1024  # ZooKeeper takes no request of more than 1 MiB

_RESULT_HEADER = struct.Struct("!ibii")  # type, done, error; length of data, count of children, or the error again
_STAT = struct.Struct("!qq16xi8xq4xi8x")  # czxid, mzxid, -, version, -, owner, -, children, -
_HEADERS = {kind: MULTI_HEADER.pack(kind, 0, -1) for kind in (GET_DATA, GET_CHILDREN)}


def batches(paths: Sequence[str]) -> Iterator[Sequence[str]]:
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


def results(paths: Sequence[str], answer: Answer) -> list[Any]:
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
