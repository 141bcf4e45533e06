"""A whole broker in the running loop, asked by raw frames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.server.broker import Broker
from tests.support.wait import DEADLINE_S


class Asker:
    """One connection to a broker. `ask` sends a request in a version and gives the decoded answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    async def ask(self, request: Message, version: int) -> Any:
        self._correlation_id += 1
        self._writer.write(request_frame(request, version, self._correlation_id, "asker"))
        async with asyncio.timeout(DEADLINE_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
        correlation_id, response = decode_response(type(request), version, memoryview(frame))
        assert correlation_id == self._correlation_id
        return response

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def is_closed(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True


class Crowd:
    """Connections of their own for whoever asks."""

    def __init__(self, broker: Broker) -> None:
        self._port = broker.port
        self.writers: list[asyncio.StreamWriter] = []

    async def join(self) -> Asker:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.writers.append(writer)
        return Asker(reader, writer)

    async def ask(self, request: Any, version: int = 9) -> Any:
        return await (await self.join()).ask(request, version)

    def begin(self, request: Any, version: int = 9) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.ask(request, version))

    def leave(self) -> None:
        for writer in self.writers:
            writer.close()


Story = Callable[[Asker, Broker], Awaitable[None]]


async def scene(broker: Broker, story: Story) -> None:
    """One life of the broker, with one client."""
    async with broker:
        crowd = Crowd(broker)
        try:
            await story(await crowd.join(), broker)
        finally:
            crowd.leave()


@pytest.fixture
def tell(tmp_path: Path) -> Callable[..., None]:
    """Run a story against a broker that is made for it."""

    def run(story: Story, **settings: Any) -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        uvloop.run(scene(Broker(data_dir=tmp_path / "data", port=0, **settings), story))

    return run
