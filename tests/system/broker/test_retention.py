"""Retention as clients and operators meet it: a whole broker, its sockets, its files, and time that is told to pass."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bench.startup import kafkalite_launcher
from kafkalite.common.clock import Timer
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.record.batch import NewRecord, build_batch, compute_crc, iter_batches
from kafkalite.server.broker import Broker
from tests.compatibility.differential import asking
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S
from tests.unit.api.conftest import Asker

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
FIRST_CHECK_MS = 30_000
CHECK_MS = 300_000
EARLIEST = -2


class Scene:
    """A broker whose clock stands still until it is told to go on, and one client."""

    def __init__(self, broker: Broker, clock: ManualClock, asker: Asker) -> None:
        self.broker = broker
        self.clock = clock
        self.ask = asker.ask

    async def create(self, topic: str, **configs: object) -> None:
        made = {name.replace("_", "."): str(value) for name, value in configs.items()}
        answer = await self.ask(asking.create(asking.new_topic(topic, configs=made)), 5)
        assert answer.topics[0].error_code == 0

    async def write(self, topic: str, value: bytes = b"value", age_ms: int = 0) -> ErrorCode:
        batch = build_batch([NewRecord(None, value, (), self.clock.wall_ms() - age_ms)])
        answer = await self.ask(asking.produce(topic, batch), 9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def start_of(self, topic: str) -> int:
        answer = await self.ask(asking.list_offsets(topic, EARLIEST), 5)
        return int(answer.topics[0].partitions[0].offset)

    async def alter(self, topic: str, name: str, value: str) -> None:
        answer = await self.ask(asking.change(asking.TOPIC, topic, (name, asking.SET, value)), 1)
        assert answer.responses[0].error_code == 0

    async def delete_records(self, topic: str, offset: int) -> int:
        answer = (await self.ask(asking.delete_before(topic, offset), 2)).topics[0].partitions[0]
        assert answer.error_code == 0
        return int(answer.low_watermark)

    async def until(self, probe: Callable[[], Awaitable[bool]]) -> None:
        """Other threads are at work, and their outcomes are heard when the loop turns: ask until it is so, while the
        clock goes on a little."""
        async with asyncio.timeout(DEADLINE_S):
            while not await probe():
                self.clock.advance(100)

    async def until_somebody_waits(self, topic: str) -> None:
        partition = self.broker._require().replica_manager.require(topic, 0)

        async def waits() -> bool:
            await self.start_of(topic)
            return bool(partition.delayed_operations)

        await self.until(waits)


def fetch_request(topic: str, offset: int, **how: int) -> FetchRequest:
    one = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 30, "session_epoch": -1} | how
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[one])], **fields)


Story = Callable[[Scene], Awaitable[None]]


def tell(data_dir: Path, story: Story, clock: ManualClock | None = None, **settings: Any) -> None:
    time_ = clock or ManualClock(NOW_MS)

    async def scene() -> None:
        async with Broker(data_dir=data_dir, port=0, clock=time_, **settings) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            try:
                await story(Scene(broker, time_, Asker(reader, writer)))
            finally:
                writer.close()

    uvloop.run(scene())


def test_the_first_look_comes_after_half_a_minute_and_then_every_five(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.create("orders", retention_ms=HOUR_MS, segment_bytes=100)
        await scene.write("orders", age_ms=2 * HOUR_MS)
        await scene.write("orders")
        scene.clock.advance(FIRST_CHECK_MS - 1)
        assert await scene.start_of("orders") == 0
        scene.clock.advance(1)
        scene.clock.advance(0)
        await scene.until(lambda: starts_at(scene, "orders", 1))
        await scene.write("orders", age_ms=2 * HOUR_MS)

    tell(tmp_path, story)


async def starts_at(scene: Scene, topic: str, offset: int) -> bool:
    return await scene.start_of(topic) == offset


def test_the_brokers_own_setting_holds_for_topics_without_one(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.create("orders", segment_bytes=100)
        await scene.create("kept", segment_bytes=100, retention_ms=-1)
        for topic in ("orders", "kept"):
            await scene.write(topic, age_ms=2 * HOUR_MS)
            await scene.write(topic)
        scene.clock.advance(FIRST_CHECK_MS)
        await scene.until(lambda: starts_at(scene, "orders", 1))
        assert await scene.start_of("kept") == 0

    tell(tmp_path, story, log_retention_hours=1)


def test_a_setting_that_is_changed_holds_at_the_next_look(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.create("orders", segment_bytes=100)
        for _ in range(5):
            await scene.write("orders", age_ms=2 * HOUR_MS)
        scene.clock.advance(FIRST_CHECK_MS)
        assert await scene.start_of("orders") == 0
        await scene.alter("orders", "retention.bytes", "150")
        scene.clock.advance(CHECK_MS - 1)
        assert await scene.start_of("orders") == 0
        scene.clock.advance(1)
        await scene.until(lambda: starts_at(scene, "orders", 2))
        await scene.alter("orders", "retention.ms", str(HOUR_MS))
        scene.clock.advance(CHECK_MS)
        await scene.until(lambda: starts_at(scene, "orders", 5))

    tell(tmp_path, story)


def test_who_waits_for_more_behind_what_is_gone_learns_it_at_once(tmp_path: Path) -> None:
    """Its answer comes although no time passes any more and nothing is written."""

    async def story(scene: Scene) -> None:
        await scene.create("orders", segment_bytes=100, retention_ms=HOUR_MS)
        await scene.write("orders", age_ms=2 * HOUR_MS)
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.broker.port)
        other = Asker(reader, writer)
        waiting = asyncio.ensure_future(
            other.ask(fetch_request("orders", 0, min_bytes=1 << 20, max_wait_ms=1 << 30), 12)
        )
        await scene.until_somebody_waits("orders")
        scene.clock.advance(FIRST_CHECK_MS)
        await scene.until(lambda: starts_at(scene, "orders", 1))
        answer = (await waiting).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await scene.write("orders")
        waiting = asyncio.ensure_future(
            other.ask(fetch_request("orders", 1, min_bytes=1 << 20, max_wait_ms=1 << 30), 12)
        )
        await scene.until_somebody_waits("orders")
        assert await scene.delete_records("orders", -1) == 2
        assert (await waiting).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        writer.close()

    tell(tmp_path, story)


def test_a_slow_reader_gets_all_of_a_segment_that_is_unlinked_meanwhile(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        await scene.create("orders", segment_bytes=64 << 20, segment_ms=1, retention_ms=HOUR_MS, file_delete_delay_ms=0)
        for _ in range(24):
            await scene.write("orders", os.urandom(1 << 20), age_ms=2 * HOUR_MS)
        await scene.write("orders")
        log = scene.broker._require().logs.get("orders", 0)
        assert log is not None
        size_bytes = log.segments[0].size_bytes
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            await loop.sock_connect(slow, ("127.0.0.1", scene.broker.port))
            await loop.sock_sendall(slow, request_frame(fetch_request("orders", 0), 12, 1, "slow"))
            data = bytearray(await loop.sock_recv(slow, 1000))
            scene.clock.advance(FIRST_CHECK_MS)
            await scene.until(lambda: starts_at(scene, "orders", 24))

            async def is_unlinked() -> bool:
                return not list((tmp_path / "orders-0").glob(f"{0:020d}.*"))

            await scene.until(is_unlinked)
            length = int.from_bytes(data[:4], "big") + 4
            assert len(data) < length // 2, "it was to be slow"
            while len(data) < length:
                data += await loop.sock_recv(slow, 1 << 16)
        _, response = decode_response(FetchRequest, 12, memoryview(data)[4:])
        records = response.responses[0].partitions[0].records
        assert len(records) == size_bytes
        for header, batch in iter_batches(records):
            assert header.crc == compute_crc(batch)

    tell(tmp_path, story, message_max_bytes=2 << 20)


def test_what_was_deleted_inside_a_segment_is_written_down_when_the_client_hears_of_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.create("orders")
        await scene.create("lines")
        for topic in ("orders", "lines"):
            for _ in range(5):
                await scene.write(topic)
        assert await scene.delete_records("orders", 3) == 3
        assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
        assert await scene.delete_records("lines", 2) == 2
        assert {"lines 0 2", "orders 0 3"} < set((tmp_path / "log-start-offset-checkpoint").read_text().split("\n"))

    tell(tmp_path, story)


# a disk that is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting needs Linux and root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_broker_on_a_full_disk_takes_records_again_when_retention_has_made_room(small_disk: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.create("orders", segment_bytes=1 << 20, retention_ms=HOUR_MS)
        written = 0
        while await scene.write("orders", os.urandom(100_000), age_ms=2 * HOUR_MS) is ErrorCode.NONE:
            written += 1
            assert written < 100
        assert written > 60
        assert await scene.write("orders", os.urandom(100_000)) is ErrorCode.KAFKA_STORAGE_ERROR
        answer = (await scene.ask(fetch_request("orders", 0), 12)).responses[0].partitions[0]
        assert answer.error_code == 0 and len(answer.records) > 900_000, "it is read all the same"
        scene.clock.advance(FIRST_CHECK_MS)

        async def has_gone() -> bool:
            return await scene.start_of("orders") >= written - 11

        await scene.until(has_gone)
        assert await scene.write("orders", os.urandom(100_000)) is ErrorCode.KAFKA_STORAGE_ERROR, "not unlinked yet"
        scene.clock.advance(60_000)

        async def takes() -> bool:
            return await scene.write("orders", os.urandom(100_000)) is ErrorCode.NONE

        await scene.until(takes)
        scene.clock.advance(CHECK_MS)
        await scene.until(lambda: starts_at(scene, "orders", written))  # the last old segment could be rolled now

    tell(small_disk, story)


# nothing to do


class CountingClock(ManualClock):
    """Counts the timers that fire."""

    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self.fired = 0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        def fire() -> None:
            self.fired += 1
            callback()

        return super().call_later(delay_ms, fire)


def test_an_idle_broker_hardly_wakes(tmp_path: Path) -> None:
    clock = CountingClock()

    async def story(scene: Scene) -> None:
        for number in range(20):
            await scene.create(f"topic-{number}")
        idle = [await asyncio.open_connection("127.0.0.1", scene.broker.port) for _ in range(10)]
        clock.advance(60_000)
        clock.fired = 0
        for _ in range(30):
            clock.advance(60_000)
            await scene.start_of("topic-0")
        assert 0 < clock.fired / 30 < 12, "a minute has more than 12 turns of timers"
        for _, writer in idle:
            writer.close()

    tell(tmp_path, story, clock)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="counts context switches in /proc")
def test_an_idle_process_wakes_fewer_than_twice_a_second(tmp_path: Path) -> None:
    """A minute and more, so that everything that comes every minute is in it."""
    launch = kafkalite_launcher()(tmp_path / "data")
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(launch.command, stdout=out, stderr=out)
    try:
        host, _, port = launch.bootstrap.rpartition(":")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(OSError):
                idle = [socket.create_connection((host, int(port)), timeout=1)]
                break
            assert time.monotonic() < deadline and process.poll() is None, (tmp_path / "out").read_text()
        idle += [socket.create_connection((host, int(port))) for _ in range(9)]
        for seconds in (5, 70):
            before = switches(process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            assert process.poll() is None
            per_second = (switches(process.pid) - before) / seconds
            assert per_second < 2, f"{per_second} wakes a second in {seconds} s"
        for each in idle:
            each.close()
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def switches(pid: int) -> int:
    """How often the threads of a process went to sleep so far."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            lines = (task / "status").read_text().splitlines()
            count += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return count
