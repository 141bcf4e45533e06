"""Handshakes of TLS that do not get on."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import pytest

from kafkalite.network import tls_handshake
from kafkalite.network.tls_handshake import TIMEOUT_MS

if TYPE_CHECKING:
    from .conftest import Client, Tell, World


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("tell", ["uvloop-TLS", "asyncio-TLS"], indirect=True)


async def dial(world: World, first: bytes = b"") -> Client:
    """A client that has sent no more than these bytes."""
    world.with_tls = False
    client = await world.connect()
    world.with_tls = True
    if first:
        await client.send(first)
    return client


def test_it_may_take_some_seconds_and_no_more(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        await world.start()
        silent = await dial(world)
        await world.until(lambda: world.server.connection_count == 1)
        world.clock.advance(TIMEOUT_MS // 2)
        begun = await dial(world, b"\x16\x03")
        await world.until(lambda: world.server.connection_count == 2)
        world.clock.advance(TIMEOUT_MS // 2)
        assert await silent.is_closed()
        assert world.server.connection_count == 1
        world.clock.advance(TIMEOUT_MS // 2)
        assert await begun.is_closed()

    with caplog.at_level(logging.WARNING):
        tell(story)
    assert "has not finished the TLS handshake in 10000 ms" in caplog.text


def test_one_too_many_closes_the_oldest(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshake, "HANDSHAKES_MAX", 2)

    async def story(world: World) -> None:
        await world.start()
        first, second = await dial(world), await dial(world)
        await world.until(lambda: world.server.connection_count == 2)
        good = await world.connect()
        assert await first.is_closed()
        await good.ask(b"hello")
        assert await good.answer() == b"hello"
        second.leave()

    tell(story)


@pytest.mark.parametrize("first", [b"\0\0\0\x0a\0\x12", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\4garbage" * 9])
def test_what_is_no_tls_is_closed_in_order(tell: Tell, first: bytes) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await dial(world, first)
        client.sock.shutdown(socket.SHUT_WR)
        while await client.read(1):
            pass  # an alert
        await world.until(lambda: not world.server.connection_count)

    tell(story)


@pytest.mark.parametrize(
    "first",
    [b"\x16\x03\x01\x02\x00\x01\x02\x01\x44" + bytes(100), b"\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x01\x00"],
    ids=["131,396 bytes", "in pieces"],
)
def test_a_first_message_that_is_to_be_enormous_takes_no_memory(
    tell: Tell, first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        await world.start()
        assert await (await dial(world, first)).is_closed()

    with caplog.at_level(logging.WARNING):
        tell(story)
    assert "is in pieces, or longer than 16384 bytes" in caplog.text


def test_a_stop_ends_handshakes(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        clients = [await dial(world), await dial(world, b"\x16")]
        await world.until(lambda: world.server.connection_count == 2)
        await world.server.stop(grace_ms=60_000)
        for client in clients:
            assert await client.is_closed()

    tell(story)
