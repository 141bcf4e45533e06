from __future__ import annotations

import asyncio
import os
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.common.region import FileRegion, OpenFile, Part
from kafkalite.network.client_connection import Answer, ClientConnection
from kafkalite.network.connection_quotas import NetworkLimits
from kafkalite.network.sender import COPIED_REGION_BYTES

if TYPE_CHECKING:
    from .conftest import Client, Tell, World

MIB = 1024 * 1024


@pytest.fixture
def segment(tmp_path: Path) -> OpenFile:
    (tmp_path / "segment").write_bytes(random.Random(3).randbytes(6 * MIB))
    return OpenFile(str(tmp_path / "segment"), os.O_RDONLY)


def whole(parts: list[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)


def mixes(segment: OpenFile) -> list[list[Part]]:
    """Answers of all shapes, without their sizes."""
    large, small, edge = (FileRegion(segment, 100, 5 * MIB), FileRegion(segment, 7, 99), COPIED_REGION_BYTES)
    return [
        [large],
        [b"head", large, b"tail"],
        [b"a", small, bytearray(b"b"), large, memoryview(b"c"), large, small],
        [FileRegion(segment, 0, edge), FileRegion(segment, 1, edge + 1), b"", FileRegion(segment, 0, 0), b"end"],
        [part for number in range(200) for part in (b"partition %d" % number, FileRegion(segment, number, 20_000))],
        [bytes(3 * MIB), small, bytes(100_000), small],
        [FileRegion(segment, 5, 0)],
        [b"plain"],
    ]


@pytest.mark.parametrize(("send_bytes", "receive_bytes"), [(-1, None), (30_000, 30_000)])
def test_every_mix_of_bytes_and_regions_arrives_whole_and_in_order(
    tell: Tell, segment: OpenFile, send_bytes: int, receive_bytes: int | None
) -> None:
    answers = mixes(segment)
    if receive_bytes is not None:
        answers = [answer for answer in answers if sum(map(len, answer)) < 6 * MIB]

    async def story(world: World) -> None:
        await world.start(NetworkLimits(socket_send_buffer_bytes=send_bytes))

        def answer(peer: ClientConnection, request: memoryview) -> Answer:
            parts = answers[request[1]]
            sized: list[Part] = [struct.pack(">i", sum(map(len, parts))), *parts]

            async def later() -> list[Part]:
                await asyncio.sleep(0)
                return sized

            return later() if request[0] else sized

        world.answer = answer
        client = await world.connect(receive_bytes)
        order = [(waits, number) for waits in (0, 1) for number in range(len(answers))]
        random.Random(5).shuffle(order)
        await client.ask(*map(bytes, order))
        for _, number in order:
            assert await client.answer() == whole(answers[number])

    tell(story)


def test_a_region_of_an_unlinked_file_still_leaves(tell: Tell, segment: OpenFile) -> None:
    expected = FileRegion(segment, 0, 4 * MIB).read()

    async def story(world: World) -> None:
        await world.start()
        world.answer = lambda peer, request: [struct.pack(">i", 4 * MIB), FileRegion(segment, 0, 4 * MIB)]
        client = await world.connect(receive_bytes=10_000)
        await client.ask(b"fetch")
        head = await client.read(5, piece=1000)
        if os.path.exists(segment.path):  # noqa: ASYNC240
            os.unlink(segment.path)
        assert head[4:] + await client.read(4 * MIB - 1) == expected

    tell(story)


@pytest.mark.parametrize("size", [1000, 5 * MIB])
def test_a_file_shorter_than_promised_closes_the_connection(
    tell: Tell, segment: OpenFile, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        caplog.clear()
        os.truncate(segment.path, 6 * MIB)
        await world.start()
        world.answer = lambda peer, request: [struct.pack(">i", size), FileRegion(segment, 6 * MIB - 500, size)]
        client, other = await world.connect(), await world.connect()
        await client.ask(b"fetch", b"fetch")
        assert len(await client.read(4 + size)) < 4 + size
        assert "ended before" in caplog.text
        world.answer = None
        await other.ask(b"fine")
        assert await other.answer() == b"fine"

    tell(story)


def test_a_fast_reader_of_much_does_not_starve_the_others(tell: Tell, segment: OpenFile) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(socket_send_buffer_bytes=8 * MIB))
        parts: list[Part] = [struct.pack(">i", 50 * 5 * MIB), *[FileRegion(segment, 0, 5 * MIB)] * 50]
        world.answer = lambda peer, request: parts if request == b"much" else [world.frame(bytes(request))]
        greedy, modest = await world.connect(), await world.connect()
        await greedy.ask(b"much")
        reading = asyncio.ensure_future(_discard(greedy, 4 + 50 * 5 * MIB))
        for number in range(20):
            await modest.ask(b"%d" % number)
            assert await modest.answer() == b"%d" % number
        assert not reading.done()
        await reading

    tell(story)


async def _discard(client: Client, size: int) -> None:
    while size > 0:
        size -= len(await client.receive(4 * MIB))
