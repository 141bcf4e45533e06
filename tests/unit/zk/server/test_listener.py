"""The socket of our ZooKeeper: kazoo as a client, four-letter words, limits, sessions that stay behind a restart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import CREATOR_ALL_ACL

from kafkalite.zk.client.wire_requests import string
from kafkalite.zk.server.access_lists import OPEN
from kafkalite.zk.server.listener import ListenerLimits
from kafkalite.zk.server.transactions import access_list_field
from tests.support.wait import DEADLINE_S
from tests.support.zk import raw_client as raw
from tests.support.zk.own_zookeeper import own_zookeeper
from tests.support.zk.raw_client import RawClient

ANYONE = access_list_field(OPEN)


def with_kazoo(directory: Path, story: Callable[[str], None]) -> None:
    """Run `story` on a thread, with the address of a server."""

    async def serve() -> None:
        async with own_zookeeper(directory) as listener:
            await asyncio.to_thread(story, f"127.0.0.1:{listener.port}")

    asyncio.run(serve())


def test_a_node_of_one_client_is_closed_to_others(tmp_path):
    def story(address: str) -> None:
        owner, other = KazooClient(address, auth_data=[("digest", "user:password")]), KazooClient(address)
        owner.start(DEADLINE_S)
        other.start(DEADLINE_S)
        owner.create("/mine", b"x", acl=CREATOR_ALL_ACL)
        with pytest.raises(NoAuthError):
            other.get("/mine")
        assert owner.get("/mine")[0] == b"x"
        for client in (owner, other):
            client.stop()
            client.close()

    with_kazoo(tmp_path, story)


def test_a_watch_notifies_once(tmp_path):
    def story(address: str) -> None:
        client = KazooClient(address)
        client.start(DEADLINE_S)
        client.create("/watched", b"1")
        seen: list[Any] = []
        notified = threading.Event()
        client.get("/watched", watch=lambda event: (seen.append((event.type, event.path)), notified.set()))
        client.set("/watched", b"2")
        client.set("/watched", b"3")
        assert notified.wait(DEADLINE_S) and client.server_version() == (3, 9, 0)
        client.sync("/")
        assert seen == [("CHANGED", "/watched")]
        client.stop()
        client.close()

    with_kazoo(tmp_path, story)


def test_four_letter_words(tmp_path):
    async def word(port: int, name: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(name)
        answer = await reader.read()
        writer.close()
        return answer

    async def story() -> None:
        async with own_zookeeper(tmp_path) as listener:
            assert await word(listener.port, b"ruok") == b"imok"
            assert b"Mode: standalone\n" in await word(listener.port, b"srvr")
            assert b"zk_znode_count\t4\n" in await word(listener.port, b"mntr")
            assert await word(listener.port, b"dump") == b"dump is not executed because it is not in the whitelist.\n"

    asyncio.run(story())


def test_what_exceeds_a_limit_ends_its_connection_only(tmp_path):
    limits = ListenerLimits(connections=2, request_bytes=1000, sessions=3)

    async def story() -> None:
        async with own_zookeeper(tmp_path, limits) as listener:
            first, second = await RawClient.open(listener.port), await RawClient.open(listener.port)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await RawClient.open(listener.port)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await second.ask(raw.CREATE, raw.create("/large", bytes(2000), ANYONE, 0))
            assert (await first.ask(raw.CREATE, raw.create("/small", b"x", ANYONE, 0)))[1] == 0

    asyncio.run(story())


def test_a_session_and_its_nodes_outlive_the_server(tmp_path):
    async def story() -> None:
        async with own_zookeeper(tmp_path) as listener:
            client = await RawClient.open(listener.port)
            await client.ask(raw.CREATE, raw.create("/mine", b"x", ANYONE, 1))
        async with own_zookeeper(tmp_path) as listener:
            again = await RawClient.open(listener.port, client.session, client.password, zxid=client.zxid)
            assert again.session == client.session
            assert (await again.ask(raw.EXISTS, string("/mine") + b"\0"))[1] == 0

    asyncio.run(story())


def test_a_silent_session_expires(tmp_path):
    async def story() -> None:
        async with own_zookeeper(tmp_path) as listener:
            silent = await RawClient.open(listener.port, timeout_ms=200)
            await silent.ask(raw.CREATE, raw.create("/mine", b"x", ANYONE, 1))
            witness = await RawClient.open(listener.port)
            await witness.ask(raw.EXISTS, string("/mine") + b"\1")
            event = await witness.frame()
            assert event.endswith(string("/mine"))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await silent.frame()

    asyncio.run(story())
