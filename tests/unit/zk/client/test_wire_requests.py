"""Bulk reads and writes as bytes, and ten thousand nodes out of a real ZooKeeper."""

from __future__ import annotations

import asyncio
import struct
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.zk.client import wire_requests
from kafkalite.zk.client.operations import Check, Create, Delete, Node, NoNode, NotAllowed, OperationFailed, SetData
from kafkalite.zk.client.wire_requests import GET_CHILDREN, Write, access_list, add_watch, watch_event
from tests.support.zk.visits import visit

END = bytes.fromhex("ffffffff01ffffffff")
LONGS, INTS = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 31) - 1)
NODES = st.builds(Node, st.binary(max_size=40), INTS, LONGS, LONGS, LONGS, INTS)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def test_requests_are_zookeepers_bytes():
    request = wire_requests.read_request(["/a", "/"], "/c")
    assert (request.type, request.serialize()) == (
        22,
        bytes.fromhex("0000000400ffffffff 00000004") + b"/c/a\0"
        + bytes.fromhex("0000000400ffffffff 00000002") + b"/c\0" + END,
    )  # fmt: skip
    assert wire_requests.read_request(["/"], "", GET_CHILDREN).serialize() == (
        bytes.fromhex("0000000800ffffffff 00000001") + b"/\0" + END
    )
    watch = add_watch("/é", "")
    assert (watch.type, watch.serialize()) == (106, bytes.fromhex("00000003") + "/é".encode() + b"\0\0\0\1")
    event = struct.pack("!iiii", 3, 3, 3, 2) + b"/x"
    assert watch_event(event, 4) == "/x"


def test_writes_are_zookeepers_bytes():
    alone = Write([Create("/a", b"", ephemeral=True, sequential=True)], "/c", False).request
    anyone = bytes.fromhex("00000001 0000001f 00000005") + b"world" + bytes.fromhex("00000006") + b"anyone"
    assert (alone.type, alone.serialize()) == (
        1,
        bytes.fromhex("00000004") + b"/c/a" + b"\xff" * 4 + anyone + bytes.fromhex("00000003"),
    )
    together = Write([SetData("/a", b"x", 2), Delete("/a"), Check("/b", 1)], "", False).request
    assert (together.type, together.serialize()) == (
        14,
        bytes.fromhex("0000000500ffffffff 00000002") + b"/a" + bytes.fromhex("00000001") + b"x\0\0\0\2"
        + bytes.fromhex("0000000200ffffffff 00000002") + b"/a" + b"\xff" * 4
        + bytes.fromhex("0000000d00ffffffff 00000002") + b"/b\0\0\0\1" + END,
    )  # fmt: skip
    assert Write([Check("/b", 1)], "", False).request.type == 14, "a check alone is unknown to ZooKeeper"


def test_who_may_do_what_is_as_in_kafka():
    creator, readers = bytes.fromhex("0000001f 00000004") + b"auth" + b"\0" * 4, bytes.fromhex("00000001 00000005")
    assert access_list("/brokers/topics/t", True).startswith(bytes.fromhex("00000002") + creator + readers)
    for secret in ("/config/users", "/config/users/bob", "/config/brokers/1", "/delegation_token/tokens/x"):
        assert access_list(secret, True) == bytes.fromhex("00000001") + creator
    assert access_list("/consumers", True) == access_list("/anything", False) != access_list("/consumers/g", True)


def answer(results: list[tuple[int, bytes]], before: bytes = b"") -> tuple[bytes, int]:
    body = b"".join(struct.pack("!ibi", kind, 0, 0 if kind > 0 else -1) + data for kind, data in results)
    return before + body + END, len(before)


@given(st.lists(st.none() | NODES), st.binary(max_size=9))
def test_nodes_come_out_as_they_went_in(nodes, before):
    results = [
        (4, struct.pack("!i", len(n.data) or -1) + n.data + struct.pack(
            "!qqqqiiiqiiq", n.czxid, n.mzxid, 1, 2, n.version, 3, 4, n.ephemeral_owner, 5, n.children_count, 6
        )) if n is not None else (-1, struct.pack("!i", -101))
        for n in nodes
    ]  # fmt: skip
    assert wire_requests.read_results(["/p"] * len(nodes), answer(results, before)) == nodes


@given(st.lists(st.none() | st.lists(NAMES)))
def test_children_come_out_as_they_went_in(children):
    results = [
        (8, struct.pack("!i", len(names)) + b"".join(struct.pack("!i", len(n.encode())) + n.encode() for n in names))
        if names is not None else (-1, struct.pack("!i", -101))
        for names in children
    ]  # fmt: skip
    assert wire_requests.read_results(["/p"] * len(children), answer(results)) == children


def test_what_may_not_be_read_is_named():
    missing, forbidden = (-1, struct.pack("!i", -101)), (-1, struct.pack("!i", -102))
    with pytest.raises(NotAllowed) as refused:
        wire_requests.read_results(["/a", "/b"], answer([missing, forbidden]))
    assert (refused.value.path, refused.value.index) == ("/b", 1)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.sampled_from([-101, -110, -999]))
def test_the_operation_that_failed_stands_between_those_rolled_back_and_those_not_tried(kinds, code):
    operations = [Create(f"/{index}") for index in range(len(kinds) + 1)]
    failing = kinds[0] % len(operations)
    codes = [0] * failing + [code] + [-2] * (len(operations) - failing - 1)
    results = [(-1, struct.pack("!i", each)) for each in codes]
    with pytest.raises(OperationFailed) as failed:
        Write(operations, "", False).created(answer(results))
    assert (failed.value.index, failed.value.code, failed.value.path) == (failing, code, f"/{failing}")
    assert isinstance(failed.value, NoNode) == (code == -101)


@given(st.lists(st.text(max_size=300), max_size=600))
def test_batches_are_the_paths_in_order_and_none_is_too_large(paths):
    found = list(wire_requests.read_batches(paths))
    assert [path for batch in found for path in batch] == paths
    assert all(1 <= len(batch) <= wire_requests.BATCH_COUNT for batch in found)
    sizes = [len(wire_requests.read_request(batch, "").serialize()) for batch in found]
    assert all(size < wire_requests.BATCH_BYTES + 20_000 for size in sizes)


def test_others_have_the_loop_while_ten_thousand_nodes_are_read(zookeeper, chroot):
    count = 10_000
    every = [f"/n/{number}" for number in range(count)]
    data = [b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":%d,"isr":[1]}' % n for n in range(count)]

    async def story():
        async with visit(zookeeper.connect + chroot) as one:
            session = one.session
            await session.write([Create("/n")])
            for start in range(0, count, 1000):
                await session.write([Create(path, data[n]) for n, path in enumerate(every)][start : start + 1000])
            loop = asyncio.get_running_loop()
            turns = [time.thread_time()]

            def turn() -> None:
                turns.append(time.thread_time())
                handle[0] = loop.call_soon(turn)

            handle = [loop.call_soon(turn)]
            began, cpu = time.perf_counter(), time.process_time()
            nodes = await session.read(every)
            took, used = time.perf_counter() - began, time.process_time() - cpu
            handle[0].cancel()
            longest = max(b - a for a, b in pairwise(turns))
            assert len(turns) > len(list(wire_requests.read_batches(every))) > 10
            (names,) = await session.children(["/n"])
            assert [node.data for node in nodes] == data
            assert sorted(names) == sorted(path[3:] for path in every)
            return took, used, longest

    took, used, longest = asyncio.run(story())
    print(f"10,000 nodes: {took * 1000:.0f} ms, {used * 1000:.0f} ms of CPU, {longest * 1000:.1f} ms of it in one turn")
