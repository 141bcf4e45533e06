"""Strangers who take their time, and strangers who ask for the impossible: half-written requests that stay open, floods
without a reader, connections that come and go, and single requests that would take all memory there is."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from bench import wire
from bench.records import record_batch
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from tests.support.wait import DEADLINE_S
from tests.system.hostile.conftest import Victim
from tests.system.hostile.fuzz_bombs import giant_value, many_records
from tests.system.hostile.fuzz_frames import FRAME_BYTES_MAX, produce
from tests.system.hostile.fuzz_golden import COMPACTED, PLAIN, RECENT, RECOMPRESSED, framed, golden_frame

ALL_SETTINGS = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
LONG = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def exchange(sock: socket.socket, frame: bytes) -> memoryview | None:
    """The answer's frame without its size, or None if the broker ended the connection."""
    sock.settimeout(DEADLINE_S)
    try:
        sock.sendall(frame)
        prefix = bytearray(4)
        wire.receive_exactly(sock, memoryview(prefix))
        body = bytearray(*struct.unpack(">i", prefix))
        wire.receive_exactly(sock, memoryview(body))
    except (wire.BrokerError, ConnectionError):
        return None
    return memoryview(body)


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=LONG)])
def test_half_written_requests_may_stay_open(victim: Victim, stack: ExitStack, count: int) -> None:
    dice = random.Random(count)
    neighbour = victim.neighbour()
    for number in range(count):
        size = dice.choice((100, 5_000, 70_000, 1_000_000, FRAME_BYTES_MAX))
        sock = stack.enter_context(victim.dial())
        sock.sendall((struct.pack(">i", size) + golden_frame(APIS[0], 9)[4:60])[: 1 + number % 60])
        if number % 4 == 0:
            with suppress(BlockingIOError):
                sock.setblocking(False)
                sock.send(bytes(min(size, 30_000) - 60))
    print(f"\n{count} half-written: {neighbour.observe(1.0)}, {victim.above_idle_bytes >> 20} MiB above idle")
    victim.assert_alive_below_ceiling()
    stack.close()
    neighbour.leave()
    victim.assert_unharmed()


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=LONG)])
def test_floods_without_a_reader_hold_up_nobody_and_are_answered_when_it_reads(
    victim: Victim, stack: ExitStack, count: int
) -> None:
    neighbour = victim.neighbour()
    with wire.Connection(victim.bootstrap) as connection:
        for _ in range(20):
            connection.produce(wire.produce_frame(PLAIN, 0, record_batch(900, 1000)))
    floods = (
        wire.fetch_frame(PLAIN, 0, 0, 8 << 20),
        request_frame(MetadataRequest(topics=None), 9, 0, "flood"),
        wire.produce_frame(PLAIN, 0, record_batch(1, 100)),
        request_frame(DescribeConfigsRequest(resources=[ALL_SETTINGS]), 4, 0, "flood"),
    )
    lines = []
    for number in range(count):
        sock = stack.enter_context(victim.dial())
        sock.setblocking(False)
        frame = floods[number % len(floods)]
        sent = 0
        with suppress(BlockingIOError):
            while sent < 2_000 * len(frame):
                sent += sock.send((frame * 50)[sent % len(frame) :])
        lines.append((sock, sent // len(frame)))
    print(f"\n{count} floods: {neighbour.observe(1.0)}, {victim.above_idle_bytes >> 20} MiB above idle")
    # half of them leave without a word, the others read at last
    for sock, _ in lines[::2]:
        sock.close()
    for sock, frame_count in lines[1:8:2]:
        sock.settimeout(DEADLINE_S)
        for _ in range(min(frame_count, 40)):
            prefix = bytearray(8)
            wire.receive_exactly(sock, memoryview(prefix))
            size, correlation_id = struct.unpack(">ii", prefix)
            assert correlation_id == 0
            wire.receive_exactly(sock, memoryview(bytearray(size - 4)))
    stack.close()
    neighbour.leave()
    victim.assert_unharmed()


@pytest.mark.parametrize("count", [1000, pytest.param(30_000, marks=LONG)])
def test_connections_come_and_go(victim: Victim, count: int) -> None:
    neighbour = victim.neighbour()
    frame = golden_frame(APIS[18], 0)
    for number in range(count):
        sock = victim.dial()
        with suppress(OSError):
            sock.sendall(frame[: (0, 1, 4, 12, len(frame))[number % 5]])
        if number % 3:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    print(f"\n{count} came and went: {neighbour.figures()}, {victim.above_idle_bytes >> 20} MiB above idle")
    neighbour.leave()
    victim.assert_unharmed()


def large_requests() -> dict[str, bytes]:
    """Requests within the limits on bytes whose objects, or whose answers, would take gigabytes."""
    head = golden_frame(APIS[0], 8)[4:]
    head = head[: head.index(b"\0" + bytes([len(PLAIN)]) + PLAIN.encode()) - 4]
    entries = 10_000_000
    produces = head + struct.pack(">i", 1) + b"\0\1t" + struct.pack(">i", entries) + bytes(8) * entries
    topics = head + struct.pack(">i", 12_000_000) + bytes(6) * 12_000_000
    metadata_head = request_frame(MetadataRequest(topics=None), 1, 7, "x")[4:-4]
    names = b"".join(b"\0\6%06d" % n for n in range(300_000))
    wanted = [FetchPartition(partition=n, partition_max_bytes=1) for n in range(90_000)]
    return {
        "produce to 10,000,000 partitions": framed(produces),
        "produce to 12,000,000 topics": framed(topics),
        "metadata of 300,000 topics": framed(metadata_head + struct.pack(">i", 300_000) + names),
        "metadata of 100,000 topics": request_frame(
            MetadataRequest(topics=[MetadataRequestTopic(name=f"t{n}") for n in range(100_000)]), 9, 7, "x"
        ),
        "all settings 50,000 times": request_frame(
            DescribeConfigsRequest(resources=[ALL_SETTINGS] * 50_000), 4, 7, "x"
        ),
        "a fetch session of 90,000 partitions": request_frame(
            FetchRequest(topics=[FetchTopic(topic="none", partitions=wanted)], session_epoch=0), 11, 7, "x"
        ),
    }


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_request_takes_all_memory(victim: Victim, stack: ExitStack) -> None:
    neighbour = victim.neighbour()
    for what, frame in large_requests().items():
        # a produce request of 80 MB is within the limits, and received as a whole: one of those at a time
        times = 1 if len(frame) > 16 << 20 else 8
        socks = [stack.enter_context(victim.dial()) for _ in range(times)]
        threads = [threading.Thread(target=exchange, args=(sock, frame)) for sock in socks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"\n{what}, {times} at once: {neighbour.figures()}, {victim.above_idle_bytes >> 20} MiB above idle")
        victim.assert_alive_below_ceiling(what)
        stack.close()
    neighbour.leave()
    victim.assert_unharmed()


def test_a_thing_asked_for_a_thousand_times_is_answered_once(victim: Victim) -> None:
    request = DescribeConfigsRequest(resources=[ALL_SETTINGS] * 1000)
    with victim.dial() as sock:
        answer = exchange(sock, request_frame(request, 4, 7, "x"))
        assert answer is not None and len(decode_response(APIS[32], 4, answer)[1].results) == 1


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.long
@pytest.mark.timeout(300)
def test_compressed_bombs_of_many_connections_at_once(victim: Victim, stack: ExitStack, codec: int) -> None:
    neighbour = victim.neighbour()
    made = [many_records(codec, 1_000_000), giant_value(codec, 63 << 20 if codec != SNAPPY else 15 << 20)]
    for bomb in (one for one in made if len(one) < 1_000_000):
        socks = [stack.enter_context(victim.dial()) for _ in range(12)]
        for number, sock in enumerate(socks):
            # a gigabyte and more, if it were unpacked all at once
            sock.sendall(produce((COMPACTED, RECOMPRESSED, RECENT)[number % 3], bomb, 9, -1))
        for sock in socks:
            assert exchange(sock, golden_frame(APIS[18], 0)) is not None
        stack.close()
    print(f"\nbombs: {neighbour.figures()}, {victim.above_idle_bytes >> 20} MiB above idle")
    neighbour.leave()
    victim.assert_unharmed()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_gigabytes_of_unfinished_requests_give_way_to_the_one_that_goes_on(victim: Victim, stack: ExitStack) -> None:
    neighbour = victim.neighbour()
    chunk = bytes(1 << 20)
    for _ in range(40):  # 2 GB in all, each of them half of what it announced
        sock = stack.enter_context(victim.dial())
        with suppress(ConnectionError):
            sock.sendall(struct.pack(">i", FRAME_BYTES_MAX))
            for _ in range(50):
                sock.sendall(chunk)
    print(f"\n2 GB unfinished: {neighbour.figures()}, {victim.above_idle_bytes >> 20} MiB above idle")
    with victim.dial() as sock:
        large = [PartitionProduceData(index=0, records=memoryview(bytes(90 << 20)))]
        request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name=PLAIN, partition_data=large)])
        answer = exchange(sock, request_frame(request, 9, 7, "x"))
        assert answer is not None, "a large request that is sent without a pause comes through"
    victim.assert_alive_below_ceiling()
    stack.close()
    neighbour.leave()
    victim.assert_unharmed()
