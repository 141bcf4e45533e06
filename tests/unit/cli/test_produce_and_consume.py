"""`kafkalite produce` and `kafkalite consume`, with confluent-kafka on the other side."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite import Broker
from kafkalite.cli import produce_command
from kafkalite.cli.main import main
from kafkalite.record.batch import HEADER_BYTES, compute_crc, parse_header
from kafkalite.testing import Cluster
from tests.support.broker_process import environment
from tests.support.local_zone import local_zone
from tests.support.wait import DEADLINE_S, until

json_values = st.sampled_from(["1.10", "1e400", "-0", "true", '{"a":1,"a" :2}', "[ ]"]) | st.text(max_size=8).filter(
    lambda text: text.isprintable()
).map(json.dumps)

Say = Callable[..., tuple[int, str, str]]


class Stdin:
    """As sys.stdin, with bytes at hand."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.fixture
def say(capfdbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Run the command: (exit code, stdout, stderr)."""

    def run(place: Broker | Cluster, *arguments: str, typed: bytes = b"") -> tuple[int, str, str]:
        capfdbinary.readouterr()
        monkeypatch.setattr("sys.stdin", Stdin(typed))
        code = main([*arguments, "--bootstrap-server", place.bootstrap_servers])
        said = capfdbinary.readouterr()
        return code, said.out.decode(errors="backslashreplace"), said.err.decode()

    return run


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def consumed(broker: Broker, topic: str, count: int) -> list[Any]:
    """As a stock consumer reads them."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.consume(count - len(found), DEADLINE_S)
        return found
    finally:
        consumer.close()


def test_lines_become_records(say: Say, broker: Broker) -> None:
    broker.create_topic("orders")
    assert say(broker, "produce", "orders", typed=b"one\ntwo\r\n\nlast") == (0, "", "")
    found = consumed(broker, "orders", 4)
    assert [(one.key(), one.value()) for one in found] == [(None, value) for value in (b"one", b"two", b"", b"last")]
    assert say(broker, "consume", "orders") == (0, "one\ntwo\n\nlast\n", "")


def test_keys_go_where_stock_producers_put_them(say: Say, broker: Broker) -> None:
    broker.create_topic("orders", 5)
    typed = b"".join(b"key-%d\tvalue\n" % number for number in range(200))
    assert say(broker, "produce", "orders", "-K", "\\t", "-z", "zstd", typed=typed)[0] == 0
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    for number in range(200):
        producer.produce("orders", b"value", b"key-%d" % number)
    producer.flush()
    places: dict[bytes, set[int]] = {}
    for one in consumed(broker, "orders", 400):
        places.setdefault(one.key(), set()).add(one.partition())
    assert len(places) == 200 and all(len(each) == 1 for each in places.values())


def test_json_goes_round(say: Say, broker: Broker) -> None:
    broker.create_topic("a", 2)
    broker.create_topic("b", 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("a", b"\xff\x00", "k", partition=1, timestamp=17, headers=[("h", b"\xfe"), ("n", None)])
    producer.produce("a", None, "k", partition=1)
    producer.flush()
    code, out, _ = say(broker, "consume", "a", "--json")
    assert code == 0 and len(out.splitlines()) == 2
    assert say(broker, "produce", "b", "--json", "--keep-partitions", "--header", "more=yes", typed=out.encode()) == (
        0,
        "",
        "",
    )
    first, second = consumed(broker, "b", 2)
    assert (first.partition(), first.key(), first.value(), first.timestamp()[1]) == (1, b"k", b"\xff\x00", 17)
    assert first.headers() == [("h", b"\xfe"), ("n", None), ("more", b"yes")] and second.value() is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "0 1 2 3 4 5 6 7 8 9"),
        (("--from", "7"), "7 8 9"),
        (("--from", "end"), ""),
        (("--tail", "2"), "8 9"),
        (("--count", "3"), "0 1 2"),
        (("--from", "4", "--count", "1"), "4"),
        (("--from", "99"), ""),
        (("--from", "2001-09-09T01:46:45+00:00"), "5 6 7 8 9"),
    ],
)
def test_where_it_begins_and_ends(say: Say, broker: Broker, arguments: tuple[str, ...], expected: str) -> None:
    broker.create_topic("t")
    lines = b"".join(b"%d %d\n" % (1_000_000_000_000 + number * 1000, number) for number in range(10))
    assert say(broker, "produce", "t", "--format", "%T %v", typed=lines)[0] == 0
    code, out, _ = say(broker, "consume", "t", *arguments)
    assert (code, out.split()) == (0, expected.split())


def test_the_newest_of_several_partitions_come_in_the_order_of_time(say: Say, broker: Broker) -> None:
    for topic in ("a", "b"):
        broker.create_topic(topic, 3)
    for number in range(30):
        line = b"%d %d %d" % (number % 3, 1_000 + number, number)
        assert say(broker, "produce", "ab"[number % 2], "--format", "%p %T %v", typed=line)[0] == 0
    code, out, _ = say(broker, "consume", "a", "b", "--tail", "7", "--format", "%t%p=%v ")
    assert code == 0 and [word.partition("=")[2] for word in out.split()] == [str(number) for number in range(23, 30)]


def test_only_committed_records_unless_others_are_asked_for(say: Say, broker: Broker) -> None:
    broker.create_topic("t")
    for name, commits in (("first", True), ("second", False), ("third", True)):
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce("t", name)
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
    assert say(broker, "consume", "t")[1].split() == ["first", "third"]
    assert say(broker, "consume", "t", "--tail", "1")[1].split() == ["third"]
    assert say(broker, "consume", "t", "--uncommitted")[1].split() == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("consume", "nowhere"), "topic nowhere not found"),
        (("consume", "t", "--from", "soon"), "must be beginning, end, an offset, or a time"),
        (("consume", "t", "--partition", "7"), "topic t has no partition 7"),
        (("consume", "t", "--format", "%x"), "has %x"),
        (("consume", "t", "--tail", "0"), "from 1 to"),
        (("consume", "t", "--tail", "1", "--from", "2"), "give only one"),
        (("produce", "t", "--partition", "7"), "line 1 is for partition 7, and topic t has the partitions 0 to 0"),
        (("produce", "t", "--json"), "line 1 "),
        (("produce", "t", "-K", ":"), "line 1 does not have the form"),
        (("produce", "a b"), "INVALID_TOPIC_EXCEPTION"),
        (("produce", "t", "--header", "x"), "is not NAME=VALUE"),
        (("produce", "t", "--file", "/nowhere"), "cannot be read"),
    ],
)
def test_mistakes_are_told_in_a_line(say: Say, broker: Broker, arguments: tuple[str, ...], words: str) -> None:
    broker.create_topic("t")
    code, out, complaints = say(broker, *arguments, typed=b"hello\n")
    assert code == 1 and not out and words in complaints.splitlines()[0]


def test_records_of_many_partitions_are_copied_into_a_topic_of_one(say: Say, broker: Broker) -> None:
    """As docs/terminal.md prints it: `kafkalite consume orders --json | kafkalite produce copies --json`."""
    broker.create_topic("orders", partitions=6)
    broker.create_topic("copies")
    for number in range(6):
        broker.produce("orders", str(number), partition=number)
    _, lines, _ = say(broker, "consume", "orders", "--json")
    assert say(broker, "produce", "copies", "--json", typed=lines.encode()) == (0, "", "")
    assert sorted(say(broker, "consume", "copies")[1].split()) == list("012345")


def test_what_came_before_a_bad_line_is_written(say: Say, broker: Broker) -> None:
    broker.create_topic("t")
    code, _, complaints = say(broker, "produce", "t", "-K", ":", typed=b"a:1\nb:2\nnothing\nc:3\n")
    assert code == 1 and "line 3" in complaints and "2 records written" in complaints
    assert say(broker, "consume", "t", "--format", "%k%v ")[1].split() == ["a1", "b2"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"nothing", "line 3 is no JSON"),
        (b'{"value": "", "headers": 5}', "line 3 has headers that are neither"),
        (b'{"value": ' + b"[" * 100_000, "line 3 is nested too deeply"),
        (b'{"value": "\\ud800"}', "line 3 has half a character"),
        (b'{"value": "", "headers": {"\\ud800": ""}}', "line 3 has half a character"),
        (b'{"value": "\xff"}', "line 3 is not UTF-8 from byte 12 on"),
        (b'{"value": "", "partition": 7}', "line 3 is for partition 7, and topic t has the partitions 0 to 0"),
        (b'{"value": "", "timestamp": 9223372036854775808}', "line 3 has a timestamp"),
        (b'{"value": "' + b"x" * 300_000 + b'"}', "line 3 is longer than 262144 bytes"),
    ],
)
def test_what_came_before_a_bad_line_of_json_is_written(
    say: Say, broker: Broker, monkeypatch: pytest.MonkeyPatch, bad: bytes, words: str
) -> None:
    monkeypatch.setattr(produce_command, "_LINE_BYTES_MAX", 262_144)
    broker.create_topic("t")
    typed = b'{"value": 1.10}\n{"value": {"a": 1e400, "a": 2}, "key": 7}\n' + bad + b'\n{"value": "after"}\n'
    code, _, complaints = say(broker, "produce", "t", "--json", "--keep-partitions", typed=typed)
    first, second = complaints.splitlines()
    assert code == 1 and first.startswith(f"kafkalite: {words}") and len(first) < 200 and "2 records written" in second
    assert say(broker, "consume", "t", "--format", r"%k=%v\n")[1].splitlines() == ["=1.10", '7={"a": 1e400, "a": 2}']


@given(
    st.lists(json_values, max_size=4),
    st.binary(max_size=12) | st.text(max_size=12).map(lambda one: f'{{"{one}'.encode()),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_good_lines_are_written_whatever_follows(say: Say, broker: Broker, good: list[str], bad: bytes) -> None:
    topic = f"t{uuid.uuid4().hex}"
    broker.create_topic(topic)
    typed = "".join(f'{{"value": {one}}}\n' for one in good).encode() + bad.replace(b"\n", b"")
    code, _, complaints = say(broker, "produce", topic, "--json", typed=typed)
    assert code == 0 if not bad.strip() else f"line {len(good) + 1} " in complaints
    values = [json.loads(line)["value"] for line in say(broker, "consume", topic, "--json")[1].splitlines()]
    assert values == [json.loads(one) if one[0] == '"' else one for one in good]


def test_a_batch_that_cannot_be_read_is_named_once_and_ends_in_1(say: Say, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        for number in range(3):
            said = say(broker, "produce", "t", "-z", "gzip" if number == 1 else "none", typed=b"value %d" % number)
            assert said[0] == 0
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    at = parse_header(data).size_bytes
    end = at + parse_header(data, at).size_bytes
    data[at + HEADER_BYTES : end] = b"\x55" * (end - at - HEADER_BYTES)
    data[at + 17 : at + 21] = compute_crc(data[at:end]).to_bytes(4, "big")
    path.write_bytes(data)
    with Broker(data_dir=tmp_path) as broker:
        for arguments in ((), ("--tail", "3"), ("--json",)):
            code, out, complaints = say(broker, "consume", "t", *arguments)
            assert code == 1 and "value 0" in out and "value 2" in out and len(out.splitlines()) == 2
            assert complaints.count("\n") == 1
            assert complaints.startswith("kafkalite: t-0: the batch at offset 1 cannot be read, and is left out: ")
        assert say(broker, "consume", "t", "--count", "1")[0] == 1  # it was read along with the first


def test_null_and_empty_look_different(say: Say, broker: Broker) -> None:
    broker.create_topic("t")
    broker.produce("t", value=b"v", headers=[("none", None), ("empty", b"")])
    assert say(broker, "consume", "t", "--format", "%h")[1] == "none,empty="
    assert say(broker, "consume", "t", "--json")[1].endswith(
        '"headers":[{"name":"none","value":null},{"name":"empty","value":""}]}\n'
    )
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "kafkalite", "consume", "t", "--bootstrap-server", broker.bootstrap_servers]
    try:
        subprocess.run(command, stdout=theirs, env=environment(), timeout=DEADLINE_S, check=True)
        assert os.read(ours, 4096).decode().rstrip().endswith("v  none  empty=")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_record_that_is_too_large_is_refused(say: Say, broker: Broker) -> None:
    broker.create_topic("t", max_message_bytes=1000)
    code, _, complaints = say(broker, "produce", "t", typed=b"small\n" + b"x" * 2_000)
    assert code == 1 and "MESSAGE_TOO_LARGE" in complaints


def test_many_records_are_sent_together_and_none_is_lost(say: Say, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("t", 3)
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d:%d\n" % (number % 100, number) for number in range(20_000)))
    assert say(broker, "produce", "t", "-K", ":", "--file", str(file), "-z", "lz4")[0] == 0
    found = say(broker, "consume", "t")[1].split()
    assert sorted(map(int, found)) == list(range(20_000))


def test_records_that_come_are_shown_while_leaders_move() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("t", 1, replicas=3)
        follow = [sys.executable, "-m", "kafkalite", "consume", "t", "--follow", "--from", "beginning"]
        reader = subprocess.Popen(
            [*follow, "--bootstrap-server", cluster.bootstrap_servers], stdout=subprocess.PIPE, env=environment()
        )
        writer = subprocess.Popen(
            [sys.executable, "-m", "kafkalite", "produce", "t", "--bootstrap-server", cluster.bootstrap_servers],
            stdin=subprocess.PIPE,
            env=environment(),
        )
        assert reader.stdout is not None and writer.stdin is not None
        try:
            for number in range(4):
                writer.stdin.write(b"%d\n" % number)
                writer.stdin.flush()
                assert reader.stdout.readline() == b"%d\n" % number
                if number == 1:
                    leader = cluster.leader_of("t", 0)
                    assert leader is not None
                    cluster.stop(leader)
                    cluster.wait_for_leader("t", 0)
            writer.stdin.close()
            assert writer.wait(DEADLINE_S) == 0
            reader.send_signal(signal.SIGINT)
            assert reader.wait(DEADLINE_S) == 0
        finally:
            for process in (reader, writer):
                process.kill()
                process.wait()
            reader.stdout.close()


def test_a_terminal_is_told_in_words_and_a_closed_pipe_ends_quietly(broker: Broker) -> None:
    broker.create_topic("t")
    broker.produce("t", value=b"\x1b[2Jhello", key=b"k")
    command = [sys.executable, "-m", "kafkalite", "consume", "t", "--bootstrap-server", broker.bootstrap_servers]
    ours, theirs = os.openpty()
    try:
        assert subprocess.run(command, stdout=theirs, env=environment(), timeout=DEADLINE_S).returncode == 0
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown.startswith("0:0  ") and shown.rstrip().endswith("k  \\x1b[2Jhello") and "\x1b" not in shown
    for number in range(2_000):
        broker.produce("t", value=b"x" * 100 + b"%d" % number)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as reader:
        assert reader.stdout is not None and reader.stderr is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.stderr.read() == b""
        until(lambda: reader.poll() is not None, "its end")


@pytest.mark.parametrize("time", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "0099-01-01T00:00Z"])
def test_a_time_before_1970_is_before_all_records(say: Say, broker: Broker, time: str) -> None:
    broker.create_topic("t", 2)
    for number in range(4):
        broker.produce("t", str(number), partition=number % 2, timestamp=number)
    assert sorted(say(broker, "consume", "t", "--from", time)[1].split()) == ["0", "1", "2", "3"]


def test_a_time_is_looked_up_in_all_partitions_or_refused(say: Say, broker: Broker) -> None:
    for topic in ("one", "two"):
        broker.create_topic(topic)
        broker.produce(topic, topic, timestamp=1_000_000)
    consume = ("consume", "one", "two", "--from", "1970-01-02")
    with broker.faults.error("LIST_OFFSETS", "LEADER_NOT_AVAILABLE", topic="two", after=2, times=3):
        assert say(broker, "consume", "one", "two", "--from", "1970-01-01T00:10Z")[:2] == (0, "one\ntwo\n")
    with broker.faults.error("LIST_OFFSETS", "UNKNOWN_SERVER_ERROR", topic="two", after=2):
        assert say(broker, *consume) == (
            1, "", "kafkalite: the offsets of two-0 cannot be read: UNKNOWN_SERVER_ERROR\n",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("timestamp", "date"),
    [
        (1_792_888_200_000, "2026-10-25 02:30:00.000+02:00"),
        (1_792_891_800_000, "2026-10-25 02:30:00.000+01:00"),
        (1_792_891_800_000_000, "1792891800000000 ms"),
        (1_792_891_800_000_000_000, "1792891800000000000 ms"),
    ],
)
def test_a_date_has_its_zone(say: Say, broker: Broker, timestamp: int, date: str) -> None:
    broker.create_topic("t", message_timestamp_after_max_ms=(1 << 63) - 1)
    broker.produce("t", b"v", timestamp=timestamp)
    with local_zone():
        assert say(broker, "consume", "t", "--format", "%d")[:2] == (0, date)


def test_values_are_json_lines_for_others(say: Say, broker: Broker) -> None:
    broker.create_topic("t")
    broker.produce("t", value=b"1")
    (line,) = say(broker, "consume", "t", "--json")[1].splitlines()
    assert json.loads(line)["value"] == "1"
