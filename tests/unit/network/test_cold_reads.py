"""A region that is not in memory is read by another thread before it is sent; one in memory is sent at once.

The disk is the test's: a door that says what is cold and reads it when it is told to. A last story asks the real one.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import random
import struct
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.common.region import FileRegion, OpenFile, Part
from kafkalite.network.sender import COPIED_REGION_BYTES, THREADS, TURN_BYTES, ColdReads
from tests.support.wait import DEADLINE_S

if TYPE_CHECKING:
    from .conftest import Client, Tell, World

MIB = 1024 * 1024
SIZE = 6 * MIB


@pytest.fixture
def segment(disk_path: Path) -> OpenFile:
    (disk_path / "segment").write_bytes(random.Random(3).randbytes(SIZE))
    return OpenFile(str(disk_path / "segment"), os.O_RDONLY)


class SlowDisk:
    """All that lies before `cold_to` is cold until it was read. `reading`: what the thread was asked for, and whom to
    tell when it is done."""

    def __init__(self, cold_to: int = SIZE) -> None:
        self.cold_to = cold_to
        self.reading: list[tuple[FileRegion, Callable[[], None]]] = []
        self.pieces: list[tuple[int, int]] = []
        self.warm_pieces: list[range] = []
        self.looks = self.close_looks = 0

    def attach(self, world: World) -> None:
        for processor in world.server.processors:
            processor.cold_reads = self  # type: ignore[assignment]

    def is_cold(self, region: FileRegion, size: int, *, closely: bool) -> bool:
        self.looks += 1
        self.close_looks += closely
        return region.position < self.cold_to and not any(region.position in piece for piece in self.warm_pieces)

    def warm(self, piece: FileRegion, done: Callable[[], None]) -> None:
        self.reading.append((piece, done))
        self.pieces.append((piece.position, piece.size))

    def read(self) -> None:
        """The thread has read what it was asked for first."""
        piece, done = self.reading.pop(0)
        self.warm_pieces.append(range(piece.position, piece.position + piece.size))
        done()


On = Callable[..., None]
"""Tells a story of a server whose files lie on a disk: on(disk, story)."""


@pytest.fixture
def on(tell: Tell) -> On:

    def on(disk: SlowDisk, story: Callable[[World], Awaitable[None]]) -> None:
        async def whole(world: World) -> None:
            await world.start()
            disk.attach(world)
            await story(world)

        tell(whole)

    return on


async def fetch(world: World, client: Client, region: FileRegion, *parts: Part) -> asyncio.Task[bytes]:
    answer: list[Part] = [struct.pack(">i", region.size + sum(map(len, parts))), region, *parts]
    world.answer = lambda peer, request: answer if request == b"fetch" else [world.frame(bytes(request))]
    await client.ask(b"fetch")
    return asyncio.ensure_future(client.answer())


def test_a_cold_region_is_read_piece_by_piece_while_others_are_served(on: On, segment: OpenFile) -> None:
    disk = SlowDisk()

    async def story(world: World) -> None:
        client, other = await world.connect(), await world.connect()
        region = FileRegion(segment, 100, 3 * MIB)
        answer = await fetch(world, client, region, b"tail")
        await world.until(lambda: disk.reading)
        for number in range(20):
            await other.ask(b"%d" % number)
            assert await other.answer() == b"%d" % number
        assert not answer.done() and len(disk.reading) == 1
        for _ in range(3):
            await world.until(lambda: disk.reading)
            disk.read()
        assert await answer == region.read() + b"tail"
        assert disk.pieces == [(100, TURN_BYTES), (100 + TURN_BYTES, TURN_BYTES), (100 + 2 * TURN_BYTES, TURN_BYTES)]

    on(disk, story)


def test_a_region_in_memory_is_not_given_away(on: On, segment: OpenFile) -> None:
    disk = SlowDisk(cold_to=0)

    async def story(world: World) -> None:
        client = await world.connect()
        region = FileRegion(segment, 0, 3 * MIB)
        assert await (await fetch(world, client, region)) == region.read()
        assert disk.looks and not disk.pieces and not disk.close_looks

    on(disk, story)


def test_what_was_appended_last_is_not_even_looked_at(on: On, segment: OpenFile) -> None:
    disk = SlowDisk()

    async def story(world: World) -> None:
        client = await world.connect()
        for size in (1000, COPIED_REGION_BYTES + 1, 100_000):
            region = FileRegion(segment, 0, size, is_fresh=True)
            assert await (await fetch(world, client, region)) == region.read()
        assert not disk.looks

    on(disk, story)


def test_only_the_cold_part_of_a_region_is_waited_for(on: On, segment: OpenFile) -> None:
    disk = SlowDisk(cold_to=TURN_BYTES)

    async def story(world: World) -> None:
        client = await world.connect()
        region = FileRegion(segment, 0, 4 * MIB)
        answer = await fetch(world, client, region)
        await world.until(lambda: disk.reading)
        disk.read()
        assert await answer == region.read()
        assert disk.pieces == [(0, TURN_BYTES)]
        assert disk.close_looks == 1  # and then it was all there

    on(disk, story)


def test_a_slow_peer_does_not_have_a_piece_read_twice(on: On, segment: OpenFile) -> None:
    disk = SlowDisk()

    async def story(world: World) -> None:
        client = await world.connect(receive_bytes=10_000)
        region = FileRegion(segment, 0, SIZE)
        answer = await fetch(world, client, region)
        while not answer.done():
            if disk.reading:
                disk.read()
            await asyncio.sleep(0)
        assert await answer == region.read()
        assert disk.pieces == [(at, TURN_BYTES) for at in range(0, SIZE, TURN_BYTES)]

    on(disk, story)


def test_what_went_out_of_memory_again_while_a_peer_took_its_time_is_read_again(on: On, segment: OpenFile) -> None:
    disk = SlowDisk()

    async def story(world: World) -> None:
        client = await world.connect(receive_bytes=10_000)
        region = FileRegion(segment, 0, SIZE)
        answer = await fetch(world, client, region)
        while not answer.done():
            if disk.reading:
                disk.read()
            elif disk.warm_pieces and len(disk.pieces) < 100:
                disk.warm_pieces.clear()  # others read much more than fits into memory
            await asyncio.sleep(0)
        assert await answer == region.read()
        assert len(disk.pieces) > SIZE // TURN_BYTES
        ends = [position + size for position, size in disk.pieces]
        assert ends == sorted(ends) and len({position for position, _ in disk.pieces}) == len(ends), "always forward"

    on(disk, story)


@pytest.mark.parametrize("how", ["leave", "reset"])
def test_a_peer_that_leaves_while_its_piece_is_read_is_forgotten(on: On, segment: OpenFile, how: str) -> None:
    disk = SlowDisk()

    async def story(world: World) -> None:
        client, other = await world.connect(), await world.connect()
        answer = await fetch(world, client, FileRegion(segment, 0, SIZE))
        await world.until(lambda: disk.reading)
        answer.cancel()
        getattr(client, how)()
        await world.until(lambda: world.server.connection_count == 1)
        disk.read()
        await other.ask(b"fine")
        assert await other.answer() == b"fine"
        assert not disk.reading

    on(disk, story)


def test_requests_that_come_meanwhile_are_answered_in_their_order(on: On, segment: OpenFile) -> None:
    disk = SlowDisk()

    async def story(world: World) -> None:
        client = await world.connect()
        region = FileRegion(segment, 0, MIB)
        answer = await fetch(world, client, region)
        await client.ask(b"first", b"second")
        await world.until(lambda: disk.reading)
        disk.read()
        assert await answer == region.read()
        assert [await client.answer(), await client.answer()] == [b"first", b"second"]

    on(disk, story)


class TestTheSystem:
    """`ColdReads` itself, with a file that is put out of the page cache."""

    def evict(self, segment: OpenFile) -> None:
        os.fsync(segment.fd)
        for _ in range(100):  # what the kernel has in hand just now stays at first
            os.posix_fadvise(segment.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not self.pages_in_memory(segment):
                return
        pytest.skip("this file system cannot put a file out of memory")

    def pages_in_memory(self, segment: OpenFile) -> int:
        """mincore(2), for asking with RWF_NOWAIT makes the kernel begin to read."""
        flags = (ctypes.c_ubyte * (SIZE // mmap.PAGESIZE))()
        with mmap.mmap(segment.fd, SIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
            address = ctypes.c_char.from_buffer(mapped)
            assert not ctypes.CDLL(None).mincore(ctypes.byref(address), ctypes.c_size_t(SIZE), flags)
            del address
        return sum(flag & 1 for flag in flags)

    def run(self, story: Callable[[ColdReads, Any], Any]) -> None:
        async def whole() -> None:
            loop = asyncio.get_running_loop()
            cold_reads = ColdReads(loop)
            try:
                await story(cold_reads, loop)
            finally:
                cold_reads.close()

        asyncio.run(whole())

    def test_what_was_warmed_is_in_memory(self, segment: OpenFile) -> None:
        async def story(cold_reads: ColdReads, loop: asyncio.AbstractEventLoop) -> None:
            assert not cold_reads.is_cold(FileRegion(segment, 0, SIZE), SIZE, closely=True)
            piece = FileRegion(segment, MIB + 5, MIB)
            for _ in range(100):  # each look makes the kernel read
                self.evict(segment)
                if cold_reads.is_cold(piece, piece.size, closely=True):
                    break
            else:
                pytest.skip("this disk is quicker than the question whether it is cold")
            warmed, told_by = loop.create_future(), []

            def done() -> None:
                told_by.append(threading.current_thread())
                warmed.set_result(None)

            cold_reads.warm(piece, done)
            await warmed
            assert told_by == [threading.main_thread()]
            assert not cold_reads.is_cold(piece, piece.size, closely=True)
            assert piece.read() == random.Random(3).randbytes(SIZE)[MIB + 5 : 2 * MIB + 5]

        self.run(story)

    def test_at_the_end_only_what_is_read_just_now_is_waited_for(
        self, segment: OpenFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at_work, go_on = threading.Semaphore(0), threading.Event()
        read: list[int] = []

        def sendfile(out_fd: int, in_fd: int, position: int, size: int) -> int:
            at_work.release()
            assert go_on.wait(DEADLINE_S)
            read.append(position)
            return size

        async def story(cold_reads: ColdReads, loop: asyncio.AbstractEventLoop) -> None:
            for number in range(1000):
                cold_reads.warm(FileRegion(segment, number, MIB), lambda: None)
            for _ in range(THREADS):
                assert at_work.acquire(timeout=DEADLINE_S)
            shutdown = cold_reads._executor.shutdown

            def shut_down(**how: Any) -> None:
                shutdown(wait=False, **how)
                go_on.set()
                shutdown()

            cold_reads._executor.shutdown = shut_down
            cold_reads.close()
            assert sorted(read) == list(range(THREADS))

        monkeypatch.setattr(os, "sendfile", sendfile)
        self.run(story)

    def test_small_reads_do_not_wait_either(self, segment: OpenFile) -> None:
        small = FileRegion(segment, 5, 4000)
        assert small.read_at_once() == small.read()
        for _ in range(100):  # the kernel begins to read, and may be done by the time that it says so
            self.evict(segment)
            if small.read_at_once() is None:
                break
        else:
            pytest.skip("this disk is quicker than the question whether it is cold")
        assert FileRegion(segment, SIZE - 10, 20).read_at_once() is None  # cut: who waits for it will say so

    @pytest.mark.parametrize("size", [4000, 100_000, 5 * MIB])
    def test_a_cold_answer_arrives_whole(self, tell: Tell, segment: OpenFile, size: int) -> None:
        async def story(world: World) -> None:
            await world.start()
            region = FileRegion(segment, 1000, size)
            cold_reads = world.server.processors[0].cold_reads
            for _ in range(100):  # at the first look the kernel begins to read, and may be done at the second
                self.evict(segment)
                client = await world.connect()
                assert await (await fetch(world, client, region, b"tail")) == region.read() + b"tail"
                if cold_reads.warmed_bytes:
                    return
            assert size < MIB, "nothing was left to a thread"  # what is small may each time be there at the second look

        tell(story)

    def test_without_a_descriptor_the_answer_comes_all_the_same(
        self, tell: Tell, segment: OpenFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "devnull", "/nowhere/at/all")
        self.test_a_cold_answer_arrives_whole(tell, segment, 3 * MIB)

    def test_a_file_system_that_cannot_tell_is_read_as_ever(
        self, tell: Tell, segment: OpenFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cannot(*_: object) -> int:
            raise OSError(95, "Operation not supported")

        async def story(world: World) -> None:
            await world.start()
            self.evict(segment)
            monkeypatch.setattr(os, "preadv", cannot)
            client = await world.connect()
            for size in (4000, 3 * MIB):
                region = FileRegion(segment, 1000, size)
                assert await (await fetch(world, client, region, b"tail")) == region.read() + b"tail"
            assert world.server.processors[0].cold_reads.warmed_bytes == 0
            assert FileRegion(segment, SIZE - 10, 20).read_at_once() is None
            monkeypatch.undo()

        tell(story)
