from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from typing import TYPE_CHECKING

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.network.acceptor import RETRY_MS
from kafkalite.network.connection_quotas import NetworkLimits
from kafkalite.network.listener import plain_address
from kafkalite.network.socket_server import Listener, SocketServer
from tests.support.descriptors import open_sockets
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from .conftest import Client, Tell, World

WITHOUT_TLS = True  # what is told here is over before a connection says anything


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Not asyncio's, which has its own things to say when it debugs."""
    return [record for record in caplog.records if record.name.startswith("kafkalite")]


LONG_MS = 60_000


def test_stopping_lets_requests_finish_and_closes_the_rest(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        idle, busy, slow = await world.connect(), await world.connect(), await world.connect(receive_bytes=5_000)
        await busy.ask(b"wait for me", b"not begun")
        await slow.ask(b"x" * 5_000_000)
        await world.until(lambda: len(world.requests) == 2)
        stopping = asyncio.ensure_future(world.server.stop(LONG_MS))
        assert await idle.is_closed()
        with pytest.raises(OSError):
            await world.connect()
        assert not stopping.done()
        world.release(b"wait for me")
        assert await busy.answer() == b"wait for me"
        assert await busy.is_closed()
        assert await slow.answer() == b"x" * 5_000_000
        await stopping
        assert b"not begun" not in world.requests

    tell(story)


def test_who_is_not_done_within_the_grace_is_cut_off(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        tidied: list[bytes] = []

        async def for_ever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                tidied.append(b"yes")

        world.answer = lambda peer, request: for_ever() if request == b"park" else [bytes(20_000_000)]
        parked, slow = await world.connect(), await world.connect()
        await parked.ask(b"park")
        await slow.ask(b"much")
        await world.until(lambda: len(world.requests) == 2)
        await world.server.stop(grace_ms=20)
        await world.until(lambda: tidied)  # a broker's dispatcher waits for the tasks of cancelled requests
        assert await parked.is_closed()
        await world.server.stop(grace_ms=20)

    tell(story)


def test_connections_spread_over_the_processors(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(processors=3)
        clients = [await world.connect() for _ in range(7)]
        for client in clients:
            await client.ask(b"hello")
            await client.answer()
        assert sorted(len(processor.connections) for processor in world.server.processors) == [2, 2, 3]
        assert sorted(processor.requests for processor in world.server.processors) == [2, 2, 3]

    tell(story)


def test_several_listeners_and_ipv6(tell: Tell) -> None:
    async def story(world: World) -> None:
        listeners = [Listener("INSIDE", "127.0.0.1", 0), Listener("OUTSIDE", "", 0), Listener("LOCAL", "localhost", 0)]
        server = world.server = SocketServer(listeners, world.handle, NetworkLimits(), world.clock, processors=1)
        await server.start()
        assert len(set(server.ports.values())) == 3
        dials = [("INSIDE", "127.0.0.1"), ("OUTSIDE", "127.0.0.1"), ("LOCAL", "127.0.0.1")]
        if _has_ipv6():
            dials += [("OUTSIDE", "::1")]
        for name, host in dials:
            server.ports["PLAINTEXT"] = server.ports[name]
            client = await world.connect(host=host)
            await client.ask(b"hello")
            await client.answer()
            peer = world.peers[-1]
            assert (peer.listener_name, peer.host, peer.local_host) == (name, host, host)

    tell(story)


def test_a_listener_comes_and_goes_and_requests_in_flight_are_answered(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        server = world.server
        other = Listener("OTHER", "127.0.0.1", 0)
        await server.check_address(other)
        await server.add(other)
        port, first = server.ports["OTHER"], server.ports["PLAINTEXT"]
        with pytest.raises(ConfigError, match="is in use"):
            await server.check_address(Listener("THIRD", "127.0.0.1", port))
        stays = await world.connect()
        server.ports["PLAINTEXT"] = port
        idle, busy, parked = await world.connect(), await world.connect(), await world.connect()
        await busy.ask(b"wait for me")
        await parked.ask(b"wait for ever")
        await world.until(lambda: len(world.requests) == 2)
        assert {peer.listener_name for peer in world.peers} == {"OTHER"}
        server.remove("OTHER", grace_ms=0)
        assert await idle.is_closed()
        with pytest.raises(OSError):
            await world.connect()
        assert await parked.is_closed(), "the grace is over"
        server.ports["PLAINTEXT"] = first
        await stays.ask(b"hello")
        assert await stays.answer() == b"hello"
        await server.add(Listener("THIRD", "127.0.0.1", port))
        assert server.ports["THIRD"] == port

    tell(story)


def test_who_leaves_a_removed_listener_has_been_answered(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        await world.server.add(Listener("OTHER", "127.0.0.1", 0))
        busy = await world.connect()
        await busy.ask(b"wait for me")
        await world.until(lambda: world.requests)
        world.server.remove("PLAINTEXT", LONG_MS)
        world.release(b"wait for me")
        assert await busy.answer() == b"wait for me"
        assert await busy.is_closed()

    tell(story)


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_addresses_lose_their_ipv6_clothes() -> None:
    assert [plain_address(host) for host in ("::ffff:10.0.0.1", "::1", "10.0.0.1", "::ffff:1")] == [
        "10.0.0.1",
        "::1",
        "10.0.0.1",
        "::ffff:1",
    ]


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("127.0.0.1", None, ["listener PLAINTEXT", "127.0.0.1:", "in use", "`listeners`"]),
        ("192.0.2.1", 0, ["listener PLAINTEXT", "192.0.2.1", "not an address of this machine"]),
        ("no such host.invalid", 0, ["listener PLAINTEXT", "no such host.invalid", "not known"]),
    ],
)
def test_an_address_that_cannot_be_had_is_one_plain_line(host: str, port: int | None, words: list[str]) -> None:
    async def story() -> None:
        before = open_sockets()
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1] if port is None else port
            listeners = [Listener("FINE", "127.0.0.1", 0), Listener("PLAINTEXT", host, taken)]
            server = SocketServer(listeners, lambda peer, request: None, NetworkLimits(), ManualClock(), processors=1)
            with pytest.raises(ConfigError) as failure:
                await server.start()
        line = str(failure.value)
        assert "\n" not in line
        assert all(word in line for word in words), line
        await server.stop(0)
        assert open_sockets() <= before

    asyncio.run(story())


def test_one_connection_too_many_waits_until_another_goes(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(max_connections=2))
        first, second = await world.connect(), await world.connect()
        third = await world.connect()
        await second.ask(b"hello")
        assert await second.answer() == b"hello"
        assert world.server.connection_count == 2
        first.leave()
        await third.ask(b"at last")
        assert await third.answer() == b"at last"
        assert world.server.connection_count == 2

    tell(story)


@pytest.mark.parametrize("overrides", [{}, {"localhost": 1}])
def test_connections_from_one_address_are_limited(tell: Tell, overrides: dict[str, int]) -> None:
    async def story(world: World) -> None:
        limit = 5 if overrides else 1
        limits = NetworkLimits(max_connections_per_ip=limit, max_connections_per_ip_overrides=overrides)
        await world.start(limits)
        await world.connect()
        assert await (await world.connect()).is_closed()
        assert world.server.connection_count == 1

    tell(story)


def test_idle_connections_expire_and_waiting_ones_do_not(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(connections_max_idle_ms=8000))
        idle, active, waiting = await world.connect(), await world.connect(), await world.connect()
        await waiting.ask(b"wait long")
        await idle.ask(b"once")
        await idle.answer()
        await world.until(lambda: world.waiting)
        for _ in range(8):
            await active.ask(b"again")
            await active.answer()
            world.clock.advance(1000)
        assert world.server.connection_count == 3
        world.clock.advance(2000)
        assert await idle.is_closed()
        assert world.server.connection_count == 2
        world.clock.advance(100_000)
        assert await active.is_closed()
        world.release(b"wait long")
        assert await waiting.answer() == b"wait long"
        world.clock.advance(100_000)
        assert await waiting.is_closed()

    tell(story)


def test_without_descriptors_accepting_rests_for_a_second(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        caplog.clear()
        await world.start()
        attempts = 0

        def refuse(self: socket.socket) -> tuple[socket.socket, object]:
            nonlocal attempts
            attempts += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "accept", refuse)
            client = await world.connect()
            await world.until(lambda: attempts)
            await idle()
            assert attempts == 1
        assert "ulimit" in caplog.text
        await client.ask(b"hello")
        world.clock.advance(RETRY_MS)
        assert await client.answer() == b"hello"

    tell(story)


def test_many_idle_connections_are_cheap(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        warm = [await world.connect() for _ in range(20)]
        await _ask_all(warm)
        before = _resident_bytes()
        clients = [await world.connect() for _ in range(300)]
        await _ask_all(clients)
        assert (_resident_bytes() - before) / len(clients) < 10_000, "both ends of each"

    tell(story)


async def _ask_all(clients: list[Client]) -> None:
    for client in clients:
        await client.ask(b"hello" * 100)
        await client.send(b"\0\0")
        await client.answer()


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
