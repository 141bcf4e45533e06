"""The session against a real ZooKeeper: what is asked is answered, what changes is heard, and nothing ever hangs."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from random import Random

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.zk.client import kazoo_connection
from kafkalite.zk.client.kazoo_connection import KazooConnection
from kafkalite.zk.client.operations import (
    BadVersion,
    Check,
    ConnectionState,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    OperationFailed,
    SetData,
    Unavailable,
)
from kafkalite.zk.znodes import znode_paths
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S
from tests.support.zk.visits import Visit, settings_for, visit
from tests.support.zookeeper import ZooKeeper

CONNECTED, SUSPENDED, EXPIRED = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.EXPIRED


def door_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafkalite-zookeeper")]


async def no_threads_left() -> None:
    """They end a moment after their session, or later on busy cores."""
    async with asyncio.timeout(DEADLINE_S):
        while door_threads():  # noqa: ASYNC110 - the end of a thread is no event
            await asyncio.sleep(0.005)


def test_what_is_written_is_read(place):
    async def story():
        async with visit(place) as one:
            session = one.session
            made = await session.write(
                [Create("/a", b"x"), Create("/a/e", ephemeral=True), Create("/a/s-", b"\x00\xff", sequential=True)]
            )
            assert made == ["/a", "/a/e", "/a/s-0000000001"], "paths are those below the chroot"
            a, e, s, none, top = await session.read(["/a", "/a/e", made[2], "/nowhere", "/"])
            assert (a.data, a.version, a.children_count, a.ephemeral_owner) == (b"x", 0, 2, 0)
            assert (e.data, e.ephemeral_owner) == (b"", session.session_id) and s.data == b"\x00\xff"
            assert none is None and top.children_count == 1 and a.czxid == a.mzxid
            assert await session.write([SetData("/a", b"y", 0)]) == [""]
            (again,) = await session.read(["/a"])
            assert (again.data, again.version, again.czxid) == (b"y", 1, a.czxid) and again.mzxid > a.mzxid
            found = await session.children(["/a", "/nowhere", "/a/e", "/"])
            assert [sorted(names) if names is not None else None for names in found] == [
                ["e", "s-0000000001"], None, [], ["a"],
            ]  # fmt: skip
            assert await session.write([Delete("/a/e"), Delete(made[2]), Delete("/a", 1)]) == ["", "", ""]
            assert await session.read(["/a"]) == [None]
            assert await session.read([]) == await session.children([]) == await session.write([]) == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("operation", "failure"),
    [
        (Create("/there"), NodeExists),
        (Create("/nowhere/below"), NoNode),
        (SetData("/nowhere", b""), NoNode),
        (SetData("/there", b"", 7), BadVersion),
        (Delete("/nowhere"), NoNode),
        (Delete("/there/below", 7), BadVersion),
        (Delete("/there"), NotEmpty),
        (Check("/there", 7), BadVersion),
        (Check("/nowhere", 0), NoNode),
    ],
    ids=lambda each: f"{type(each).__name__}{each.path}" if not isinstance(each, type) else each.__name__,
)
def test_one_operation_that_fails_fails_all_and_is_named(place, operation, failure):
    async def story():
        async with visit(place) as one:
            await one.session.write([Create("/there"), Create("/there/below")])
            with pytest.raises(OperationFailed) as alone:
                await one.session.write([operation])
            assert (type(alone.value), alone.value.index, alone.value.path) == (failure, 0, operation.path)
            operations = [Create("/new", b"1"), SetData("/new", b"2"), Check("/there", 0), operation, Delete("/new")]
            with pytest.raises(OperationFailed) as among:
                await one.session.write(operations)
            assert (type(among.value), among.value.index, among.value.path) == (failure, 3, operation.path)
            assert await one.session.read(["/new"]) == [None]

    asyncio.run(story())


def test_the_chroot_is_made_with_its_parents_and_kept(place):
    async def story():
        async with visit(place + "/deep/down") as one:
            await one.session.write([Create("/x")])
        async with visit(place + "/deep/down") as one:
            assert await one.session.children(["/"]) == [["x"]]
        async with visit(place) as one:
            assert await one.session.children(["/deep/down"]) == [["x"]]

    asyncio.run(story())


def test_paths_are_made_where_they_are_missing(place):
    async def story():
        async with visit(place) as one:
            await one.session.write([Create("/brokers"), Create("/brokers/topics", b"kept")])
            await one.session.make_paths(znode_paths.PERSISTENT)
            await one.session.make_paths(znode_paths.PERSISTENT)
            data = [node.data for node in await one.session.read(znode_paths.PERSISTENT) if node is not None]
            assert sorted(data) == [b""] * (len(znode_paths.PERSISTENT) - 1) + [b"kept"]

    asyncio.run(story())


def test_all_that_changes_below_a_watched_tree_is_heard_before_the_write_returns(place):
    async def story():
        async with visit(place) as one, visit(place) as other:
            await one.session.watch_tree("/tree")  # it need not be there yet
            await one.session.write([Create("/tree"), Create("/tree/a"), Create("/tree/a/b"), Create("/aside")])
            assert one.paths == {"/tree", "/tree/a", "/tree/a/b"}
            one.forget()
            await one.session.write([SetData("/tree/a", b"1"), SetData("/aside", b"1"), Delete("/tree/a/b")])
            assert one.paths == {"/tree/a", "/tree/a/b"}, "the watch is still there"
            one.forget()
            await other.session.write([Create("/tree/a/b"), Create("/tree/a/b/c")])
            await one.until(lambda: one.paths >= {"/tree/a/b", "/tree/a/b/c"})
            assert not other.heard

    asyncio.run(story())


def test_a_node_that_changes_often_in_one_turn_is_told_of_once(place):
    async def story():
        async with visit(place) as one, visit(place) as other:
            await one.session.write([Create("/n")])
            await one.session.watch_tree("/")
            event = threading.Event()
            last = other.session.write([SetData("/n", b"%d" % i) for i in range(50)])
            asyncio.get_running_loop().call_later(0.01, event.wait, 0.5)  # the loop is busy while they come in
            await last
            await one.until(lambda: one.heard)
            assert len([path for batch in one.heard for path in batch]) < 10 and one.paths == {"/n"}

    asyncio.run(story())


def test_a_thousand_writes_at_once_neither_block_nor_get_lost(place):
    async def story():
        async with visit(place, in_flight_max=10_000) as one:
            await one.session.write([Create("/n")])
            await asyncio.gather(*(one.session.write([Create(f"/n/{i}", b"%d" % i)]) for i in range(1000)))
            nodes = await one.session.read([f"/n/{i}" for i in range(1000)])
            assert [node.data for node in nodes] == [b"%d" % i for i in range(1000)]

    asyncio.run(story())


def test_who_is_cancelled_leaves_the_line_to_the_others(place):
    async def story():
        async with visit(place, in_flight_max=1) as one:
            reads = [asyncio.ensure_future(one.session.read(["/"] * 600)) for _ in range(10)]
            await asyncio.sleep(0)
            for each in reads[::2]:
                each.cancel()
            done = await asyncio.gather(*reads, return_exceptions=True)
            assert [type(each) for each in done] == [asyncio.CancelledError, list] * 5

    asyncio.run(story())


def test_a_lost_connection_comes_back_with_the_same_session_and_its_watches(cut, chroot, caplog):
    caplog.set_level(logging.INFO, logger="kafkalite")

    async def story():
        async with visit(cut.connect + chroot) as one:
            await one.session.watch_tree("/tree")
            await one.session.write([Create("/tree", ephemeral=True)])
            session_id = one.session.session_id
            one.forget()
            cut.cut()
            await one.until_states(SUSPENDED)
            reading, writing = one.session.read(["/"]), one.session.write([Delete("/tree")])
            for work in (reading, writing, one.session.children(["/"]), one.session.watch_tree("/later")):
                with pytest.raises(Unavailable, match=cut.connect):
                    work.send(None)  # at once, without a turn of the loop
            assert not one.session.is_connected
            cut.mend()
            await one.until_states(SUSPENDED, CONNECTED)
            assert one.session.session_id == session_id and one.session.is_connected
            await one.session.write([SetData("/tree", b"1"), Create("/later")])
            assert one.paths == {"/tree", "/later"}

    asyncio.run(story())
    said = [
        (r.levelname, r.getMessage().partition(": ")[2]) for r in caplog.records if r.name.startswith("kafkalite.zk")
    ]
    assert said == [
        ("WARNING", "the connection is lost; reconnecting"),
        ("INFO", "the connection is back"),
    ]


@pytest.mark.parametrize("rounds", [8, pytest.param(150, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_however_often_it_is_cut_it_comes_back_with_all_that_it_promised(zookeeper, cut, chroot, rounds):
    random = Random(rounds)

    async def story():
        async with visit(cut.connect + chroot) as one, visit(zookeeper.connect + chroot) as witness:
            session = one.session
            await session.watch_tree("/n")
            await session.write([Create("/n", b"0")])
            count = unknown = 0

            async def add(number: int) -> None:
                nonlocal count, unknown
                try:
                    await session.write([Create(f"/n/{number}")])
                    count += 1
                except Unavailable:
                    unknown += 1

            for number in range(rounds):
                work = [asyncio.ensure_future(add(number * 20 + i)) for i in range(20)]
                for _ in range(random.randrange(8)):
                    await asyncio.sleep(0)
                random.choice([cut.cut, cut.cut, cut.silence])()
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0.01)  # so that it is sometimes heard of, and sometimes not
                cut.mend()
                await asyncio.gather(*work)
                await one.until(lambda: session.is_connected)
            one.forget()
            await one.until(lambda: session.is_connected)
            (names,) = await witness.session.children(["/n"])
            assert names is not None and count <= len(names) <= count + unknown
            one.forget()
            await witness.session.write([SetData("/n", b"1")])
            # the last cut may be noticed only now: then it is told that everything is to be read again
            await one.until(lambda: "/n" in one.paths or ConnectionState.CONNECTED in one.states)

    asyncio.run(story())


def test_a_server_that_says_nothing_any_more_is_given_up_within_the_session_timeout(cut, chroot):
    async def story():
        async with visit(cut.connect + chroot, session_timeout_ms=1_500) as one:
            await one.session.write([Create("/n")])
            cut.silence()
            began = time.monotonic()
            asked = await asyncio.gather(
                one.session.read(["/n"]),
                one.session.write([SetData("/n", b"1")]),
                *(one.session.read(["/n"] * 3000) for _ in range(3)),
                return_exceptions=True,
            )
            assert [type(each) for each in asked] == [Unavailable] * 5
            assert time.monotonic() - began < 1.5 + 10  # on a busy machine
            await one.until(lambda: one.states == [CONNECTED, SUSPENDED])
            cut.mend()
            await one.until(lambda: one.states[-1] is CONNECTED)
            (node,) = await one.session.read(["/n"])
            assert node is not None

    asyncio.run(story())


def test_a_session_that_expires_is_followed_by_another(zookeeper, cut, chroot):
    async def story():
        async with (
            visit(cut.connect + chroot, session_timeout_ms=400) as one,
            visit(zookeeper.connect + chroot) as witness,
        ):
            assert one.session.session_timeout_ms == 400
            before = one.session.session_id
            await one.session.watch_tree("/me")
            await witness.session.watch_tree("/me")
            await one.session.write([Create("/me", b"first", ephemeral=True)])
            await witness.until(lambda: witness.paths == {"/me"})
            witness.forget()
            one.forget()
            cut.cut()
            await witness.until(lambda: witness.paths == {"/me"})
            assert await witness.session.read(["/me"]) == [None]
            assert one.states == [SUSPENDED], "nobody can have told it"
            cut.mend()
            await one.until_states(SUSPENDED, EXPIRED, CONNECTED)
            assert one.session.session_id not in (0, before)
            await one.session.write([Create("/me", b"second", ephemeral=True)])
            assert one.paths == {"/me"}, "the watches went over to it"
            (node,) = await witness.session.read(["/me"])
            assert (node.data, node.ephemeral_owner) == (b"second", one.session.session_id)

    asyncio.run(story())


def test_what_went_under_with_a_connection_is_not_done_over_the_next(zookeeper, cut, chroot):
    async def story():
        async with visit(cut.connect + chroot) as one, visit(zookeeper.connect + chroot) as witness:
            await one.session.write([Create("/n")])
            cut.silence()
            late = [asyncio.ensure_future(one.session.write([Create(f"/n/{i}")])) for i in range(300)]
            await asyncio.sleep(0)
            cut.cut()
            done = await asyncio.gather(*late, return_exceptions=True)
            assert {type(each) for each in done} == {Unavailable}
            cut.mend()
            await one.until(lambda: one.states[-1] is CONNECTED)
            await one.session.write([Create("/n/last")])
            assert await witness.session.children(["/n"]) == [["last"]]

    asyncio.run(story())


def test_a_fault_of_the_connection_thread_ends_the_session_and_begins_another(place, caplog, monkeypatch):
    monkeypatch.setattr("kafkalite.zk.client.session.REOPEN_DELAY_S", 0.01)

    class Poison:
        type = 1

        def serialize(self) -> bytes:
            raise RuntimeError("poison")

    async def story():
        async with visit(place) as one:
            before = one.session.session_id
            connection = one.session._connection
            assert connection is not None
            connection.submit(Poison(), kazoo_connection.Reply(lambda *_: None))  # type: ignore[arg-type]
            await one.until(lambda: one.states[-2:] == [EXPIRED, CONNECTED])
            assert one.session.session_id != before
            await one.session.write([Create("/n")])
        await no_threads_left()

    asyncio.run(story())
    assert "poison" in caplog.text


@pytest.mark.parametrize("how", ["connected", "cut", "silent"])
def test_stop_leaves_no_thread_and_takes_the_ephemeral_nodes_along(zookeeper, cut, chroot, how, monkeypatch):
    monkeypatch.setattr(kazoo_connection, "CLOSE_TIMEOUT_S", 0.2)

    async def story():
        async with visit(zookeeper.connect + chroot) as witness:
            await witness.session.watch_tree("/me")
            async with visit(cut.connect + chroot, session_timeout_ms=20_000) as one:
                await one.session.write([Create("/me", ephemeral=True)])
                if how == "cut":
                    cut.cut()
                    await one.until(lambda: one.states[-1] is SUSPENDED)
                elif how == "silent":
                    cut.silence()
                asked = asyncio.ensure_future(one.session.read(["/me"] * 1000))
                await asyncio.sleep(0)
                began = time.monotonic()
                await one.session.stop()
                assert time.monotonic() - began < 10, "half of a session's time"
                if how != "connected":
                    with pytest.raises(Unavailable):
                        await asked
                with pytest.raises(Unavailable):
                    await one.session.read(["/"])
            assert len(door_threads()) == 1, "the witness"
            if how == "connected":
                assert await witness.session.read(["/me"]) == [None]
        await asyncio.gather(asked, return_exceptions=True)
        await no_threads_left()

    asyncio.run(story())


def test_without_a_server_a_start_says_where_it_looked():
    async def story():
        connect = f"127.0.0.1:{free_port()}/kafka"
        with pytest.raises(
            ConfigError, match=f"zookeeper.connect={connect}: no ZooKeeper answers there within .* \\(.*refused"
        ):
            await Visit(settings_for(connect, connection_timeout_ms=300)).session.start()
        await no_threads_left()

    asyncio.run(story())


def test_a_server_that_swallows_packets_holds_up_no_stop():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, ExitStack() as stack:
        for _ in range(4):  # as many as its queue holds: from then on the system answers nobody
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())

        async def story():
            began = time.monotonic()
            connect = f"127.0.0.1:{deaf.getsockname()[1]}"
            with pytest.raises(ConfigError, match="no ZooKeeper answers"):
                await Visit(settings_for(connect, session_timeout_ms=30_000, connection_timeout_ms=300)).session.start()
            assert time.monotonic() - began < 15, "half of a session's time"
            await no_threads_left()

        asyncio.run(story())


def test_a_server_that_cannot_read_in_bulk_is_too_old(place, monkeypatch):
    from kazoo.exceptions import UnimplementedError

    def refuse(connection: KazooConnection, request: object, reply: kazoo_connection.Reply) -> bool:
        reply.set_exception(UnimplementedError())
        return True

    monkeypatch.setattr(KazooConnection, "submit", refuse)

    async def story():
        with pytest.raises(ConfigError, match=r"needs ZooKeeper 3.6"):
            await Visit(settings_for(place)).session.start()

    asyncio.run(story())


@pytest.mark.long
def test_zookeeper_may_be_killed_and_started_again(tmp_path):
    async def story(server: ZooKeeper):
        async with visit(server.connect, session_timeout_ms=30_000) as one:
            await one.session.write([Create("/n", ephemeral=True)])
            session_id = one.session.session_id
            server.kill()
            await one.until(lambda: one.states[-1] is SUSPENDED)
            await asyncio.get_running_loop().run_in_executor(None, server.start)
            began = time.monotonic()
            await one.until(lambda: one.states[-1] is CONNECTED)
            assert time.monotonic() - began < 3
            (node,) = await one.session.read(["/n"])
            assert node is not None and node.ephemeral_owner == session_id == one.session.session_id

    with ZooKeeper(tmp_path) as server:
        asyncio.run(story(server))


def test_with_access_lists_others_read_but_what_is_secret_and_change_nothing(place, caplog):
    caplog.set_level(logging.DEBUG)
    ours = {"set_acl": True, "digest": "kafka:secret"}

    async def story():
        async with visit(place, **ours) as one, visit(place) as stranger, visit(place, **ours) as colleague:
            await one.session.make_paths(["/config/users", "/config/topics", "/consumers"])
            await one.session.write([Create("/config/users/bob", b"scram"), Create("/config/topics/t", b"open")])
            (topic,) = await stranger.session.read(["/config/topics/t"])
            assert topic.data == b"open"
            with pytest.raises(NotAllowed, match="/config/users/bob"):
                await stranger.session.read(["/config/topics/t", "/config/users/bob"])
            with pytest.raises(NotAllowed):
                await stranger.session.children(["/config/users"])
            for operation in (SetData("/config/topics/t", b""), Create("/config/topics/u"), Create("/u")):
                with pytest.raises(NotAllowed):
                    await stranger.session.write([operation])
            await stranger.session.write([Create("/consumers/group")])
            await colleague.session.write([SetData("/config/users/bob", b"new"), Delete("/config/topics/t")])

    asyncio.run(story())
    assert "Sending request" in caplog.text and "kafka:secret" not in caplog.text


def test_another_kazoo_is_refused_and_not_found_out_later(monkeypatch):
    from kazoo.protocol.connection import ConnectionHandler

    monkeypatch.delattr(ConnectionHandler, "_read_watch_event")
    with pytest.raises(ConfigError, match="_read_watch_event"):
        KazooConnection(settings_for("127.0.0.1:1"), on_state=print, on_watch_event=print, on_end=print)


def test_kazoo_is_imported_only_for_a_session():
    script = "import kafkalite.zk.client.session, sys; print(*sys.modules)"
    root = ROOT
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert not [name for name in done.stdout.split() if name.startswith("kazoo")]
