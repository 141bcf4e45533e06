"""The last answer of a connection reaches its client, whatever that sends meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafkalite.network.client_connection import Answer, ClientConnection, LastAnswer, Pending
from kafkalite.network.processor import DISCARDED_BYTES_MAX

if TYPE_CHECKING:
    from .conftest import Tell, World


@pytest.mark.parametrize("later", [False, True])
def test_a_client_that_goes_on_sending_still_reads_why(tell: Tell, later: bool) -> None:
    async def story(world: World) -> None:
        await world.start()
        waiting: list[Pending] = []

        def refuse(peer: ClientConnection, request: memoryview) -> Answer:
            if bytes(request) == b"fine":
                return [world.frame(b"fine")]
            if not later:
                raise LastAnswer([world.frame(b"wrong password")])
            waiting.append(Pending(lambda: None))
            return waiting[0]

        world.answer = refuse
        client = await world.connect()
        await client.ask(b"fine", b"password", *[b"unread" * 1000] * 10)
        assert await client.answer() == b"fine"
        if later:
            await world.until(lambda: waiting)
            waiting[0].fail(LastAnswer([world.frame(b"wrong password")]))
        assert await client.answer() == b"wrong password"
        assert await client.is_closed()
        assert world.server.connection_count == 0

    tell(story)


def test_a_client_that_never_stops_sending_is_cut_off(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()

        def refuse(peer: ClientConnection, request: memoryview) -> Answer:
            raise LastAnswer([world.frame(b"no")])

        world.answer = refuse
        client = await world.connect()
        await client.ask(b"first")
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < DISCARDED_BYTES_MAX + (64 << 20):
                await client.send(bytes(1 << 18))
                sent += 1 << 18
                await asyncio.sleep(0)

    tell(story)
