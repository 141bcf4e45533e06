"""A whole broker in the running loop, asked by raw frames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.broker import Broker
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.schema import Message


class Asker:
    """One connection to a broker. `ask` sends a request in a version and gives the decoded answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    async def ask(self, request: Message, version: int) -> Any:
        self._correlation_id += 1
        self._writer.write(request_frame(request, version, self._correlation_id, "asker"))
        async with asyncio.timeout(10):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
        correlation_id, response = decode_response(type(request), version, memoryview(frame))
        assert correlation_id == self._correlation_id
        return response

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def is_closed(self) -> bool:
        async with asyncio.timeout(10):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True


Story = Callable[[Asker, Broker], Awaitable[None]]


@pytest.fixture
def tell(tmp_path: Path) -> Callable[..., None]:
    """Run a story against a broker that is made for it."""

    def run(story: Story, **settings: Any) -> None:
        async def scene() -> None:
            settings.setdefault("group_initial_rebalance_delay_ms", 0)
            async with Broker(data_dir=tmp_path / "data", port=0, **settings) as broker:
                reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
                try:
                    await story(Asker(reader, writer), broker)
                finally:
                    writer.close()

        uvloop.run(scene())

    return run
