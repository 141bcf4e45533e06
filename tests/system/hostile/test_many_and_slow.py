"""Many connections that do nothing, many that work, and a few that are slow on purpose, at one `kafkalite serve`.

The quick form has 300 idle and 30 busy connections; the long one, marked so, 5,000 and 500. Each prints what the busy
ones felt (alone, with the idle ones, with the slow ones too) and what an idle connection costs. The times are told, not
judged; memory and descriptors are judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop

from bench import wire
from bench.records import record_batch
from bench.startup import Started, kafkalite_launcher, started
from tests.support.wait import DEADLINE_S
from tests.system.hostile.many_clients import HELLO, Busy, Client, Crowd, SlowReader, base_offset, fetched, trickle

SPARE_DESCRIPTORS = 500
PARTITIONS = 50
LARGE_BATCHES = 16
LARGE_BYTES = 900_000
IDLE_BYTES_MAX = 24 * 1024  # resident, for each idle connection
SLOW_BYTES_MAX = 32 << 20  # resident, for all slow clients, whose answers are some 14 MB each
IDLE_MS = 3_000  # the busy ones of a machine that is busy itself are silent for a second now and then
SOCKETS_AT_REST = 3  # the listener, and the pair that wakes the loop

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the broker through /proc")


class Size(NamedTuple):
    idle: int
    busy: int
    slow: int
    load_s: float


QUICK = Size(300, 30, 4, 0.5)
FULL = Size(5_000, 500, 50, 15.0)
SIZES = [
    pytest.param(QUICK, id="quick"),
    pytest.param(FULL, id="full", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
]
Story = Callable[[Crowd], Awaitable[None]]


@pytest.fixture
def descriptors() -> Iterator[Callable[[int], None]]:
    """`descriptors(n)` lets this process and its children open so many; skips where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def allow(count: int) -> None:
        if hard != resource.RLIM_INFINITY and hard < count:
            pytest.skip(f"needs {count} open files in a process, the hard limit is {hard} (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    yield allow
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def broker() -> Iterator[Started]:
    with started(kafkalite_launcher("--override log.retention.ms=-1")) as broker:  # some records are from 2023
        prepare(broker)
        yield broker


@pytest.fixture(scope="module")
def impatient() -> Iterator[Started]:
    """A broker that closes who is idle for a second."""
    overrides = f"--override connections.max.idle.ms={IDLE_MS} --override log.retention.ms=-1"
    with started(kafkalite_launcher(overrides)) as broker:
        prepare(broker)
        yield broker


def prepare(broker: Started) -> None:
    with wire.Connection(broker.bootstrap) as connection:
        connection.create_topic("busy", PARTITIONS)
        connection.create_topic("halves", 2)
        for topic in ("large", "doomed"):
            connection.create_topic(topic, config={"file.delete.delay.ms": "0"})
            frame = wire.produce_frame(topic, 0, record_batch(1, LARGE_BYTES))
            for _ in range(LARGE_BATCHES):
                connection.produce(frame)


def tell(story: Story, broker: Started) -> None:
    """Run a story; nothing of it may be left in the broker."""

    async def scene() -> None:
        crowd = Crowd(broker.bootstrap, broker.process.pid)
        await until(lambda: crowd.broker_sockets() <= SOCKETS_AT_REST, "the end of the connections before")
        try:
            await story(crowd)
        finally:
            crowd.close()
        await until(lambda: crowd.broker_sockets() <= SOCKETS_AT_REST, "the end of all connections")
        await until(lambda: not crowd.removed_files(), f"the end of {crowd.removed_files()}")

    uvloop.run(scene())


async def until(done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {DEADLINE_S:g} s for {what}")
        await asyncio.sleep(0.02)


async def whole(crowd: Crowd, topic: str) -> memoryview:
    """The bytes that an undisturbed reader of a whole topic receives."""
    client = await crowd.connect()
    return fetched(await client.exchange(whole_frame(topic)))


def whole_frame(topic: str) -> bytes:
    return wire.fetch_frame(topic, 0, 0, LARGE_BATCHES * LARGE_BYTES * 2)


async def work(crowd: Crowd, size: Size) -> str:
    """All busy clients for a while; what they felt."""
    clients = await asyncio.gather(*(crowd.connect() for _ in range(size.busy)))
    everybody = [Busy(client, "busy", n % PARTITIONS, n) for n, client in enumerate(clients)]
    began = time.perf_counter()
    await asyncio.gather(*(busy.work_until(began + size.load_s) for busy in everybody))
    took_s = time.perf_counter() - began
    for client in clients:
        client.close()
    latencies = [latency for busy in everybody for latency in busy.latencies_s]
    assert all(busy.latencies_s for busy in everybody), "somebody was not served at all"
    cuts = statistics.quantiles(latencies, n=100)
    return (
        f"{len(latencies) / took_s:8,.0f} turns/s, p50 {cuts[49] * 1000:7.1f} ms, p99 {cuts[98] * 1000:7.1f} ms,"
        f" longest {max(latencies) * 1000:7.1f} ms"
    )


@contextlib.asynccontextmanager
async def slow_ones(crowd: Crowd, count: int) -> AsyncIterator[list[SlowReader]]:
    """Readers that have stopped in the midst of an answer, and producers that trickle for as long as this lasts."""
    readers = [SlowReader(await crowd.connect(SlowReader.RECEIVE_BYTES)) for _ in range(count)]
    for reader in readers:
        await reader.begin(whole_frame("large"))

    async def keep_trickling() -> None:
        client, witness = await crowd.connect(), await crowd.connect()
        frame = wire.produce_frame("large", 0, record_batch(1, 100))
        while True:
            base_offset(await trickle(client, witness, frame))

    tricklers = [asyncio.ensure_future(keep_trickling()) for _ in range(count)]
    try:
        yield readers
    finally:
        for task in tricklers:
            task.cancel()
        ended = await asyncio.gather(*tricklers, return_exceptions=True)
    assert {type(one) for one in ended} == {asyncio.CancelledError}, ended


@pytest.mark.parametrize("size", SIZES)
def test_the_busy_are_served_beside_the_idle_and_the_slow(
    size: Size, broker: Started, descriptors: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    descriptors(size.idle + size.busy + SPARE_DESCRIPTORS)

    async def story(crowd: Crowd) -> None:
        expected = await whole(crowd, "large")
        lines = [f"{size.busy} busy connections", f"  alone                 {await work(crowd, size)}"]
        before = crowd.resident_bytes()
        began = time.perf_counter()
        idle = await crowd.idle(size.idle)
        took_s = time.perf_counter() - began
        each = (crowd.resident_bytes() - before) / size.idle
        lines.append(f"  with {size.idle:,} idle ones  {await work(crowd, size)}")
        quiet = crowd.resident_bytes()
        async with slow_ones(crowd, size.slow) as readers:
            lines.append(f"  and {2 * size.slow} slow ones      {await work(crowd, size)}")
            stalled = crowd.resident_bytes() - quiet
            for reader in readers[: size.slow // 2]:
                assert fetched(await reader.go_on())[: len(expected)] == expected, "every byte in its place"
            for reader in readers[size.slow // 2 :]:
                reader.client.reset()
        lines.append(
            f"{size.idle:,} idle connections came in {took_s:.2f} s and take {each / 1024:.1f} KiB each;"
            f" {size.slow} stalled answers of {len(expected) / 1e6:.1f} MB take {stalled / 1e6:.1f} MB in all"
        )
        for client in (idle[0], idle[-1]):
            await client.exchange(HELLO)  # they may speak again
        with capsys.disabled():
            print("", *lines, sep="\n")
        assert each <= IDLE_BYTES_MAX
        assert stalled <= SLOW_BYTES_MAX

    tell(story, broker)


@pytest.mark.parametrize("size", SIZES)
def test_all_idle_ones_expire_and_the_busy_do_not(
    size: Size, impatient: Started, descriptors: Callable[[int], None]
) -> None:
    descriptors(size.idle + size.busy + SPARE_DESCRIPTORS)

    async def story(crowd: Crowd) -> None:
        clients = await asyncio.gather(*(crowd.connect() for _ in range(size.busy)))
        everybody = [Busy(client, "busy", n % PARTITIONS, n) for n, client in enumerate(clients)]
        over = asyncio.Event()

        async def keep_busy(busy: Busy) -> None:
            while not over.is_set():
                await busy.work_until(time.perf_counter() + 0.01)
                with contextlib.suppress(TimeoutError):  # a turn now and then is enough not to be idle
                    await asyncio.wait_for(over.wait(), IDLE_MS / 4000)

        working = asyncio.gather(*map(keep_busy, everybody))
        idle = await crowd.idle(size.idle)
        assert all(await asyncio.gather(*(client.is_closed() for client in idle)))
        over.set()
        await working
        for client in (clients[0], clients[-1]):
            await client.exchange(HELLO)

    tell(story, impatient)


def test_who_reads_slowly_is_not_idle_but_who_stopped_is(impatient: Started) -> None:
    """One reads a large answer over two idle times, a bit at a time, and gets all of it; one reads no more."""

    async def story(crowd: Crowd) -> None:
        expected = await whole(crowd, "large")
        slow, stopped = [SlowReader(await crowd.connect(SlowReader.RECEIVE_BYTES)) for _ in range(2)]
        await stopped.begin(whole_frame("large"))
        await slow.begin(whole_frame("large"))
        assert fetched(await slow.go_on(over_s=2 * IDLE_MS / 1000)) == expected
        with pytest.raises(AssertionError, match="the broker closed"):
            await stopped.go_on()

    tell(story, impatient)


def test_a_frame_that_comes_byte_by_byte_is_a_frame(broker: Started) -> None:
    """A Produce request and, behind it on the same connection, one that asks for what the first one wrote."""

    async def story(crowd: Crowd) -> None:
        client, witness = await crowd.connect(), await crowd.connect()
        batch = record_batch(3, 200, timestamp_ms=1_700_000_000_123)
        offset = base_offset(await trickle(client, witness, wire.produce_frame("busy", 1, batch, acks=-1)))
        data = fetched(await trickle(client, witness, wire.fetch_frame("busy", 1, offset, 1 << 20)))
        assert data[16:] == batch[16:]

    tell(story, broker)


def test_a_reader_that_stopped_goes_on_or_resets(broker: Started) -> None:
    """While one rests, the topic is deleted and its files unlinked: the answer was promised already."""

    async def story(crowd: Crowd) -> None:
        expected = await whole(crowd, "doomed")
        patient, hasty, rude = [SlowReader(await crowd.connect(SlowReader.RECEIVE_BYTES)) for _ in range(3)]
        for reader in (patient, hasty, rude):
            await reader.begin(whole_frame("doomed"))
        assert fetched(await hasty.go_on()) == expected
        rude.client.reset()
        remover = await crowd.connect()
        await remover.exchange(delete_topic_frame("doomed"))
        await until(crowd.removed_files, "the file of the topic to be unlinked")
        assert fetched(await patient.go_on()) == expected

    tell(story, broker)


def delete_topic_frame(topic: str) -> bytes:
    return wire.request_frame(
        wire.DELETE_TOPICS, 3, 0, struct.pack(">i", 1), wire.string(topic), struct.pack(">i", 60_000)
    )


def test_who_closes_one_half_is_heard_and_let_go(broker: Started) -> None:
    """Requests before the end of the stream are served; then the broker closes too, whatever it was waiting for."""

    async def story(crowd: Crowd) -> None:
        silent, writer, waiter, torn = [await crowd.connect() for _ in range(4)]
        batch = record_batch(1, 100, timestamp_ms=1_700_000_000_456)
        frame = wire.produce_frame("halves", 0, batch, acks=-1)
        await writer.send(frame * 3)
        await waiter.send(wire.fetch_frame("halves", 1, 0, 1 << 20, max_wait_ms=100_000))
        await torn.send(frame[:-1])
        for client in (silent, writer, waiter, torn):
            client.sock.shutdown(1)
        for client in (silent, waiter, torn):
            assert await client.is_closed()
        await drained(writer)
        reader = await crowd.connect()
        data = fetched(await reader.exchange(wire.fetch_frame("halves", 0, 0, 1 << 20)))
        assert len(data) == 3 * len(batch), "three records of the one that went, none of the torn one"

    tell(story, broker)


async def drained(client: Client) -> None:
    """Read to the end of the stream, whatever comes before it."""
    async with asyncio.timeout(DEADLINE_S):
        while await client.read(1 << 16):
            pass
