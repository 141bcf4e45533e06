"""Our ZooKeeper over its socket beside Apache's: the same bytes get the same answers, events, versions and zxids."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.zk.client.wire_requests import string
from kafkalite.zk.server.access_lists import Entry, Identity, digest_identity
from kafkalite.zk.server.transactions import access_list_field, data_field
from tests.support.zk import raw_client as raw
from tests.support.zk.own_zookeeper import own_zookeeper
from tests.support.zk.raw_client import INT, RawClient
from tests.support.zookeeper import ZooKeeper, without_zookeeper

CLIENTS = 2
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One of its own: another client's transactions would count."""
    if (reason := without_zookeeper()) is not None:
        pytest.skip(reason)
    properties = {"zookeeper.extendedTypesEnabled": "false"}
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), properties=properties) as server:
        yield server


class Request(NamedTuple):
    client: int
    kind: int
    body: bytes


class Move(NamedTuple):
    """The session goes over to another connection."""

    client: int


class End(NamedTuple):
    """The session is closed, and the client opens another."""

    client: int


Step = Request | Move | End

ROOT = "/r00000"
PATHS = [ROOT, *(f"{ROOT}{below}" for below in ("/a", "/b", "/a/b", "/a/c", "/s-0000000000", "/a/s-0000000001", "/c"))]
own_path = st.sampled_from([*PATHS, *PATHS[:4], f"{ROOT}//x", f"{ROOT}/..", f"{ROOT}/\0", "r"])
path = st.one_of(own_path, own_path, own_path, st.just("/zookeeper"))  # which all stories share: none may change it
version = st.sampled_from([-1, -1, 0, 1, 2])
data = st.sampled_from([None, b"", b"x", b"\x00\xff"])
me, other = digest_identity("me:secret"), digest_identity("other:secret")
entries = st.lists(
    st.builds(
        Entry,
        st.sampled_from([31, 31, 1, 2, 4, 8, 16, 0]),
        st.sampled_from([
            Identity("world", "anyone"), Identity("auth", ""), me, other, Identity("ip", "127.0.0.1"),
            Identity("ip", "10.0.0.0/8"), Identity("ip", "nowhere"), Identity("digest", "x"), Identity("other", "x"),
        ]),
    ),
    max_size=3,
)  # fmt: skip
open_list = access_list_field((Entry(31, Identity("world", "anyone")),))
access_list = st.one_of(st.just(open_list), st.just(open_list), entries.map(lambda e: access_list_field(tuple(e))))
flags = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
SEQUENTIAL = (2, 3)
below_root = st.one_of(own_path.filter(lambda name: name != ROOT), st.sampled_from([f"{ROOT}/s-", f"{ROOT}/a/s-"]))
flag = st.sampled_from([b"\0", b"\1"])


def fields(*parts: Any) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(lambda values: b"".join(map(_encoded, values)))


def _encoded(value: Any) -> bytes:
    return string(value) if isinstance(value, str) else INT.pack(value) if isinstance(value, int) else value


creations = st.one_of(
    *[fields(below_root, data.map(data_field), access_list, flags)] * 4,
    # a sequence of / goes on in the ZooKeeper that all stories share
    fields(st.just(ROOT), data.map(data_field), access_list, flags.filter(lambda one: one not in SEQUENTIAL)),
)
changes = st.one_of(
    st.tuples(st.sampled_from([1, 1, 15, 19]), creations),
    st.tuples(st.just(raw.SET_DATA), fields(own_path, data.map(data_field), version)),
    st.tuples(st.just(raw.DELETE), fields(own_path, version)),
    st.tuples(st.just(raw.CHECK), fields(path, version)),
)
paths = st.lists(st.sampled_from(PATHS), max_size=2).map(
    lambda names: INT.pack(len(names)) + b"".join(map(string, names))
)
requests = st.one_of(
    changes.filter(lambda change: change[0] != raw.CHECK),
    changes.filter(lambda change: change[0] != raw.CHECK),
    st.lists(changes.filter(lambda c: c[0] != 19), max_size=4).map(lambda parts: (raw.MULTI, raw.multi(parts))),
    st.tuples(st.just(raw.SET_ACL), fields(own_path, access_list, version)),
    st.tuples(st.sampled_from([raw.EXISTS, raw.GET_DATA, raw.GET_CHILDREN, raw.GET_CHILDREN2]), fields(path, flag)),
    st.tuples(st.sampled_from([raw.EXISTS, raw.GET_DATA, raw.GET_CHILDREN, raw.GET_CHILDREN2]), fields(path, flag)),
    st.lists(st.tuples(st.sampled_from([raw.GET_DATA, raw.GET_CHILDREN]), fields(path, flag)), max_size=4).map(
        lambda parts: (raw.MULTI_READ, raw.multi(parts))
    ),
    st.tuples(st.just(raw.ADD_WATCH), fields(st.sampled_from(PATHS), st.sampled_from([0, 1]))),
    st.tuples(
        st.sampled_from([raw.CHECK_WATCHES, raw.REMOVE_WATCHES]),
        fields(st.sampled_from(PATHS), st.sampled_from([1, 2, 3])),
    ),
    st.tuples(st.sampled_from([raw.GET_ACL, raw.SYNC, raw.GET_EPHEMERALS]), fields(path)),
    st.tuples(st.sampled_from([raw.WHO_AM_I, raw.PING]), st.just(b"")),
    st.tuples(
        st.just(raw.AUTH),
        fields(st.just(0), st.just("digest"), st.sampled_from([b"me:secret", b"other:secret"]).map(data_field)),
    ),
)
who = st.integers(0, CLIENTS - 1)
steps: st.SearchStrategy[Step] = st.one_of(
    *[st.tuples(who, requests).map(lambda drawn: Request(drawn[0], *drawn[1]))] * 8,
    st.builds(Move, who),
    st.builds(End, who),
)


async def play(port: int, story: list[Step], root: str) -> list[Any]:
    """Everything that clients see; `root` stands for ROOT in all paths."""
    clients = [await new_client(port) for _ in range(CLIENTS)]
    names = {0: "none"} | {client.session: f"client {n}" for n, client in enumerate(clients)}
    await clients[0].ask(raw.CREATE, raw.create(root, b"", open_list, 0))
    base = clients[0].zxid - 1
    seen: list[Any] = []
    for number, step in enumerate(story):
        client = clients[step.client]
        outcome: Any = None
        if isinstance(step, Request):
            events, error, body = await client.ask(step.kind, _renamed(step.body, root))
            outcome = (
                events,
                error,
                body and raw.decoded(step.kind, body, base, names),
                client.zxid and client.zxid - base,
            )
        elif isinstance(step, Move):
            clients[step.client] = await RawClient.open(port, client.session, client.password, zxid=client.zxid)
            outcome = clients[step.client].session == client.session
            client.close()
        else:
            outcome = (await client.ask(raw.CLOSE))[:2]
            client.close()
            clients[step.client] = await new_client(port)
            names[clients[step.client].session] = f"client {step.client} at {number}"
        heard = [(await each.ask(raw.PING))[0] for each in clients]
        seen.append((step, outcome, [sorted(each) if isinstance(step, End) else each for each in heard]))
    for client in clients:
        await client.ask(raw.CLOSE)
        client.close()
    return seen


async def new_client(port: int) -> RawClient:
    """Apache's closes a new connection now and then, when a session has moved before."""
    for _ in range(3):
        with suppress(asyncio.IncompleteReadError, ConnectionResetError):
            return await RawClient.open(port)
    return await RawClient.open(port)


def _renamed(body: bytes, root: str) -> bytes:
    """The paths in it are as long as before."""
    assert len(root) == len(ROOT)
    return body.replace(ROOT.encode(), root.encode())


def compare(server: ZooKeeper, directory: Path, story: list[Step]) -> None:
    async def both() -> None:
        root = f"/r{next(_numbers):05}"  # a story may leave nodes that no client may delete
        theirs = await play(server.port, story, root)
        async with own_zookeeper(directory) as listener:
            ours = await play(listener.port, story, root)
        for mine, right in zip(ours, theirs, strict=True):
            assert mine == right, f"kafkalite {mine} and ZooKeeper {right}"

    asyncio.run(both())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=st.lists(steps, min_size=5, max_size=40))
def test_the_same_bytes_have_the_same_answers(server, tmp_path_factory, story):
    compare(server, tmp_path_factory.mktemp("own"), story)


def test_a_session_whose_password_is_wrong_is_not_resumed(server, tmp_path):
    async def refused(port: int) -> Any:
        client = await RawClient.open(port)
        thief = await RawClient.open(port, client.session, b"x" * 16)
        stranger = await RawClient.open(port, 4711, b"x" * 16)
        return thief.session, thief.timeout_ms, stranger.session, (await client.ask(raw.PING))[1]

    async def both() -> None:
        async with own_zookeeper(tmp_path) as listener:
            assert await refused(listener.port) == (0, 0, 0, 0)

    asyncio.run(both())


def test_malformed_requests_are_refused_alike(server, tmp_path):
    bodies = [
        (raw.GET_DATA, b"\0\0\0\x09/r"), (raw.MULTI, b"\0"), (raw.CREATE, string("/m") + b"\x7f\xff\xff\xff"),
        (raw.SET_WATCHES, struct.pack("!qi", 0, 7)), (raw.DELETE, b""),
    ]  # fmt: skip

    async def errors(port: int) -> list[int]:
        client = await RawClient.open(port)
        return [(await client.ask(kind, body))[1] for kind, body in bodies]

    async def both() -> None:
        async with own_zookeeper(tmp_path) as listener:
            assert await errors(listener.port) == await errors(server.port)

    asyncio.run(both())
