"""The bench's own parts: frames that stock code accepts, an honest count of answers, and a table that says what failed.

No broker here: a thread at the other end of a socket pair answers as one would.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from bench import wire
from bench.__main__ import parse
from bench.discard import Reader
from bench.records import frame_cycle, record_batch, varint
from bench.reference.kafka import cluster_id, server_properties
from bench.replay import AnswerShape, closed_loop, pump
from bench.report import Result, latency, table
from bench.session import Session
from bench.startup import command_launcher
from bench.usage import Cpu, ProcessTree, parse_stat, parse_status
from bench.wire import BrokerError, Cursor
from bench.works import WORKS, chosen

TOPIC = "orders"


def frame_of(sock: socket.socket) -> Cursor:
    """The next request, past its header."""
    size = bytearray(4)
    wire.receive_exactly(sock, memoryview(size))
    body = bytearray(int.from_bytes(size, "big"))
    wire.receive_exactly(sock, memoryview(body))
    cursor = Cursor(memoryview(body))
    cursor.int16(), cursor.int16(), cursor.int32(), cursor.string()
    return cursor


def produce_answer(partition: int, code: int = 0) -> bytes:
    body = struct.pack(">ii", 0, 1) + wire.string(TOPIC)
    body += struct.pack(">iihqqqi", 1, partition, code, 7, -1, 0, 0)
    return struct.pack(">i", len(body)) + body


@contextlib.contextmanager
def broker(answer: Callable[[Cursor], bytes]) -> Iterator[socket.socket]:
    """The client's end of a connection to a broker that answers every request by `answer`, until it is closed."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, contextlib.suppress(BrokerError, OSError):
            while True:
                theirs.sendall(answer(frame_of(theirs)))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join()


def partition_of(cursor: Cursor) -> int:
    """The partition that a Produce request is for."""
    cursor.string(), cursor.int16(), cursor.int32(), cursor.int32(), cursor.string(), cursor.int32()
    return cursor.int32()


def test_a_stock_client_reads_our_batches() -> None:
    batch = record_batch(150, 100, timestamp_ms=1_700_000_000_000)
    records = MemoryRecords(batch)
    parsed = records.next_batch()
    assert parsed.validate_crc()
    rows = list(parsed)
    assert [row.offset for row in rows] == list(range(150))
    assert {(row.key, len(row.value), row.timestamp) for row in rows} == {(None, 100, 1_700_000_000_000)}
    assert not records.has_next()


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (-1, "01"), (63, "7e"), (64, "8001"), (-65, "8101")])
def test_varints_are_zigzag(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


def test_every_request_is_answered_for_and_partitions_take_turns() -> None:
    seen: list[int] = []

    def answer(cursor: Cursor) -> bytes:
        seen.append(partition_of(cursor))
        return produce_answer(seen[-1])

    cycle = frame_cycle(TOPIC, 1, 10, partitions=7)
    with broker(answer) as sock:
        assert pump(sock, cycle, 30.0, 1000) == 1000
    assert seen == [index % 7 for index in range(1000)]


def test_the_window_is_never_exceeded_and_time_ends_the_run() -> None:
    ours, theirs = socket.socketpair()
    cycle = frame_cycle(TOPIC, 1, 10, window=5)
    done: list[int] = []
    with ours, theirs:
        thread = threading.Thread(target=lambda: done.append(pump(ours, cycle, 0.0, 1000)))
        thread.start()
        for _ in range(5):
            frame_of(theirs)
        # The time is up: the five in flight are waited for, in any pieces, and nothing follows.
        answers = produce_answer(0) * 5
        for start in range(0, len(answers), 17):
            theirs.sendall(answers[start : start + 17])
        thread.join()
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
    assert done == [5]


@pytest.mark.parametrize("run", [pump, closed_loop])
def test_an_error_code_ends_the_replay(run: Callable[..., object]) -> None:
    with broker(lambda _: produce_answer(0, code=6)) as sock, pytest.raises(BrokerError, match="error 6"):
        run(sock, frame_cycle(TOPIC, 1, 10), 30.0, 100)


def test_one_request_is_in_flight_and_each_is_timed_even_if_its_answer_comes_in_pieces() -> None:
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with contextlib.suppress(BrokerError, OSError):
            while True:
                frame_of(theirs)
                answer = produce_answer(0)
                theirs.sendall(answer[:5])
                theirs.sendall(answer[5:])

    with ours, theirs:
        thread = threading.Thread(target=serve)
        thread.start()
        samples = closed_loop(ours, frame_cycle(TOPIC, 1, 10, window=1), 30.0, 200)
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert len(samples) == 200
    assert min(samples) > 0


def test_the_shape_of_an_answer_is_the_answer() -> None:
    answer = produce_answer(3)
    shape = AnswerShape(TOPIC)
    assert shape.size_bytes == len(answer)
    shape.check(bytearray(answer))


def test_a_reader_follows_whole_batches_and_ignores_the_torn_tail() -> None:
    cycle = frame_cycle(TOPIC, 150, 100)
    batch = record_batch(150, 100)
    end_offset, asked = 150 * 10, []

    def answer(cursor: Cursor) -> bytes:
        for skip in (cursor.int32, cursor.int32, cursor.int32, cursor.int32, cursor.int8, cursor.int32, cursor.int32):
            skip()
        cursor.int32(), cursor.string(), cursor.int32(), cursor.int32(), cursor.int32()
        offset = cursor.int64()
        asked.append(offset)
        left = (end_offset - offset) // 150
        batches = [struct.pack(">q", offset + 150 * index) + batch[8:] for index in range(min(3, left))]
        records = b"".join(batches) + (batch[:1000] if left > 3 else b"")
        body = struct.pack(">iihii", 0, 0, 0, 0, 1) + wire.string(TOPIC)
        body += struct.pack(">iihqqqiii", 1, 0, 0, end_offset, end_offset, 0, -1, -1, len(records)) + records
        return struct.pack(">i", len(body)) + body

    with broker(answer) as sock:
        requests, read_bytes = Reader(sock, cycle, 50_000).read_to(end_offset)
    assert asked == [0, 450, 900, 1350]
    assert (requests, read_bytes) == (4, 10 * len(batch))


def test_only_this_machine_is_loaded() -> None:
    assert wire.split_host("127.0.0.1:9092,127.0.0.1:9093") == ("127.0.0.1", 9092)
    for bootstrap in ("192.0.2.1:9092", "9092", "127.0.0.1:"):
        with pytest.raises(BrokerError):
            wire.split_host(bootstrap)


def test_an_answer_that_ends_inside_a_field_is_refused() -> None:
    cursor = Cursor(memoryview(b"\0\0\0\1\0\5ab"))
    assert cursor.int32() == 1
    with pytest.raises(BrokerError):
        cursor.string()
    with pytest.raises(BrokerError):
        Cursor(memoryview(b"\0")).int16()


def test_cpu_and_memory_come_from_proc() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    line = "7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 " + f"{3 * ticks} {2 * ticks} 0 0 20 0 1 0 5 1 1"
    assert parse_stat(line) == Cpu(3.0, 2.0)
    memory = parse_status("Name:\tx\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\nRssAnon:\t  50 kB\n")
    assert (memory.resident_bytes, memory.own_bytes, memory.peak_bytes) == (102_400, 51_200, 204_800)
    here = ProcessTree(os.getpid())
    assert here.pids()[0] == os.getpid()
    assert here.memory().resident_bytes > 1_000_000


def test_a_broker_gets_warm_only_as_long_as_it_gets_faster() -> None:
    now, gains = [0.0], iter([100, 200, 400, 400, 410, 400, 4000])

    def work(seconds: float) -> int:
        now[0] += seconds
        return next(gains)

    assert Session("127.0.0.1:1", seconds=5.0).warm_up(work, lambda: now[0]) == 1910


def test_warming_up_ends_in_any_case() -> None:
    now, rate = [0.0], [1]

    def work(seconds: float) -> int:
        now[0] += seconds
        rate[0] *= 2
        return rate[0]

    Session("127.0.0.1:1", seconds=5.0, warm_up_limit_s=10.0).warm_up(work, lambda: now[0])
    assert now[0] == 10.0


def test_percentiles_and_rates() -> None:
    spread = latency(range(1000, 1_001_000, 1000))
    assert (spread.p50_us, spread.p99_us, spread.p999_us) == (501.0, 991.0, 1000.0)
    result = Result("w", seconds=2.0, requests=1000, records=4000, payload_bytes=8_000_000, cpu=Cpu(0.75, 0.25))
    assert (result.requests_per_s, result.records_per_s, result.mb_per_s) == (500.0, 2000.0, 4.0)
    assert (result.cpu_us_per_request, result.cpu_s_per_gb) == (1000.0, 125.0)
    assert result.as_json()["cpu"] == {"user_s": 0.75, "system_s": 0.25}


def test_the_table_leaves_empty_columns_out_and_names_what_failed() -> None:
    text = table([Result("one", seconds=1.0, requests=5), Result("two", error="no\nbroker")])
    heading, _, first, second = text.splitlines()
    assert "requests/s" in heading
    assert "p50" not in heading
    assert first.startswith("| one")
    assert "FAILED: no broker" in second


def test_work_is_chosen_by_name_and_pattern() -> None:
    assert chosen(None) == ["start", *WORKS, "memory"]
    replays = [name for name in WORKS if name.startswith("replay-")]
    assert chosen("replay-*,start") == ["start", *replays]
    assert chosen("java-*") == ["java-produce-100B", "java-consume-100B"]
    with pytest.raises(BrokerError, match="nonsense"):
        chosen("nonsense")
    assert parse(["--bootstrap", "127.0.0.1:9092"]).seconds == 5.0
    with pytest.raises(SystemExit):
        parse(["--seconds", "0"])


def test_a_command_gets_its_port_and_directory(tmp_path: Path) -> None:
    launch = command_launcher("serve --port {port} --data '{dir}'", None)(tmp_path)
    port = launch.bootstrap.rpartition(":")[2]
    assert launch.command == ["serve", "--port", port, "--data", str(tmp_path)]


def test_a_reference_is_a_single_node_whose_settings_can_be_overruled(tmp_path: Path) -> None:
    ours = {"num.partitions": "3", "offsets.topic.replication.factor": "2"}
    settings = server_properties(tmp_path, 1, 2, 0, ours)
    assert settings["num.partitions"] == "3"
    assert settings["offsets.topic.replication.factor"] == "2"
    assert settings["group.initial.rebalance.delay.ms"] == "0"
    ids = {cluster_id() for _ in range(200)}
    assert all(len(one) == 22 and one[0] != "-" for one in ids)
