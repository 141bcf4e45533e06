"""Offsets of consumers of old, in a ZooKeeper that is made to fail.

In a real one: tests/unit/api/handlers/test_offsets_in_zookeeper.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.zk.client.operations import (
    BadAcl,
    Create,
    Node,
    NodeExists,
    NoNode,
    Operation,
    OperationFailed,
    SetData,
    Unavailable,
)
from kafkalite.zk.cluster.legacy_offsets import MULTI_MAX, WRITE_ATTEMPTS, LegacyOffsets, offset_path


class Nodes:
    """Paths and their data. `interrupt` is called once before a write; `fail` is what every call raises."""

    def __init__(self, **data: str) -> None:
        self.data = {"/" + path.replace("__", "/"): text.encode() for path, text in data.items()}
        self.writes: list[Sequence[Operation]] = []
        self.interrupt: Callable[[], object] = lambda: None
        self.fail: Exception | None = None

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        if self.fail:
            raise self.fail
        return [None if path not in self.data else Node(self.data[path], 0, 0, 0, 0, 0) for path in paths]

    async def write(self, operations: Sequence[Operation]) -> list[str]:
        if self.fail:
            raise self.fail
        self.interrupt()
        data = dict(self.data)
        for index, one in enumerate(operations):
            if isinstance(one, Create):
                if one.path in data:
                    raise NodeExists(one.path, index)
                if (parent := one.path.rpartition("/")[0]) and parent not in data:
                    raise NoNode(one.path, index)
                data[one.path] = one.data
            else:
                assert isinstance(one, SetData)
                if one.path not in data:
                    raise NoNode(one.path, index)
                data[one.path] = one.data
        self.data = data
        self.writes.append(operations)
        return [""] * len(operations)


def committed(nodes: Nodes, group: str, offsets: dict[tuple[str, int], int]) -> None:
    asyncio.run(LegacyOffsets(nodes).commit(group, offsets))


def fetched(nodes: Nodes, group: str, *partitions: tuple[str, int]) -> dict[tuple[str, int], tuple[int, ErrorCode]]:
    return asyncio.run(LegacyOffsets(nodes).fetch(group, partitions))


def test_nodes_are_made_with_all_that_stands_above_them() -> None:
    nodes = Nodes(consumers="")
    committed(nodes, "g", {("t", 0): 7, ("t", 1): -1})
    assert nodes.data == {
        "/consumers": b"", "/consumers/g": b"", "/consumers/g/offsets": b"", "/consumers/g/offsets/t": b"",
        "/consumers/g/offsets/t/0": b"7", "/consumers/g/offsets/t/1": b"-1",
    }  # fmt: skip
    assert len(nodes.writes) == 1
    committed(nodes, "g", {("t", 1): 8})
    assert nodes.writes[1] == [SetData("/consumers/g/offsets/t/1", b"8")]
    assert fetched(nodes, "g", ("t", 1), ("t", 0), ("t", 2)) == {
        ("t", 1): (8, ErrorCode.NONE),
        ("t", 0): (7, ErrorCode.NONE),
        ("t", 2): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }


def test_a_client_that_makes_or_removes_the_node_meanwhile() -> None:
    nodes = Nodes(consumers="")

    def made() -> None:
        nodes.interrupt = removed
        nodes.data |= {"/consumers/g": b"", "/consumers/g/offsets": b"", "/consumers/g/offsets/t": b""}
        nodes.data["/consumers/g/offsets/t/0"] = b"5"

    def removed() -> None:
        nodes.interrupt = lambda: None
        nodes.data = {"/consumers": b""}

    nodes.interrupt = made
    committed(nodes, "g", {("t", 0): 7})
    assert nodes.data["/consumers/g/offsets/t/0"] == b"7"


def test_one_who_always_comes_between_is_given_in_to() -> None:
    nodes = Nodes(consumers="", consumers__g="", consumers__g__offsets="")
    turns = []

    def toggle() -> None:
        turns.append(1)
        if nodes.data.pop("/consumers/g/offsets", None) is None:
            nodes.data["/consumers/g/offsets"] = b""

    nodes.interrupt = toggle
    with pytest.raises(KafkaError) as refused:
        committed(nodes, "g", {("t", 0): 7})
    assert (refused.value.code, len(turns)) == (ErrorCode.UNKNOWN_SERVER_ERROR, WRITE_ATTEMPTS)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Unavailable("127.0.0.1:2181 cannot be reached"), ErrorCode.REQUEST_TIMED_OUT),
        (BadAcl("/consumers/g"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OperationFailed("/consumers/g", 0, -4), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_clients_hear_of_a_failure(failure: Exception, code: ErrorCode) -> None:
    nodes = Nodes()
    nodes.fail = failure
    for work in (lambda: committed(nodes, "g", {("t", 0): 7}), lambda: fetched(nodes, "g", ("t", 0))):
        with pytest.raises(KafkaError) as refused:
            work()
        assert refused.value.code is code


@pytest.mark.parametrize(
    "group", ["", "/", "/g", "g/", "a//b", ".", "..", "../brokers", "a/./b", "a\0b", "a\x1fb", "\ue000"]
)
def test_groups_that_zookeeper_cannot_name(group: str) -> None:
    with pytest.raises(KafkaError) as refused:
        offset_path(group, "t", 0)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("group", ["g", "a b", "a/b", "...", "größe", "%2F", "<default>"])
def test_groups_go_into_the_path_as_they_are(group: str) -> None:
    assert offset_path(group, "t", 3) == f"/consumers/{group}/offsets/t/3"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", (0, ErrorCode.NONE)),
        ("+12", (12, ErrorCode.NONE)),
        ("-9223372036854775808", (-(1 << 63), ErrorCode.NONE)),
        ("9223372036854775807", ((1 << 63) - 1, ErrorCode.NONE)),
        ("9223372036854775808", (-1, ErrorCode.UNKNOWN_SERVER_ERROR)),
        ("9" * 5000, (-1, ErrorCode.UNKNOWN_SERVER_ERROR)),
        ("twelve", (-1, ErrorCode.UNKNOWN_SERVER_ERROR)),
        (" 12", (-1, ErrorCode.UNKNOWN_SERVER_ERROR)),
        ("12\n", (-1, ErrorCode.UNKNOWN_SERVER_ERROR)),
        ("", (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    ],
)
def test_what_a_consumer_may_have_left_there(text: str, found: Any) -> None:
    assert fetched(Nodes(consumers__g__offsets__t__0=text), "g", ("t", 0)) == {("t", 0): found}


def test_a_commit_of_very_many_partitions_is_written_in_pieces() -> None:
    nodes = Nodes()
    offsets = {("t", number): number for number in range(2 * MULTI_MAX + 1)}
    committed(nodes, "g", offsets)
    assert len(nodes.writes) == 3
    assert {key: offset for key, (offset, _) in fetched(nodes, "g", *offsets).items()} == offsets
