"""`python -m bench mirror`: `kafkalite mirror`, in transactions and with the offsets of its source, and Kafka's
MirrorMaker 2 by turns, between the same two brokers.

    rate       a topic that is full before the mirror starts: records from its first one at the target to its last
    cpu        of the mirror's process, for a million of these records
    memory     its peak
    latency    of records at a steady rate, from the producer to a consumer of committed records at the target

MirrorMaker runs in its dedicated mode with its defaults, at least once; kafkalite's mirror has its defaults, exactly
once. Both brokers are kafkalite's. Each turn has topics of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.reference import ReferenceUnavailable
from bench.reference.kafka import LOG4J, command_line
from bench.report import latency, machine
from bench.usage import ProcessTree
from bench.wire import BrokerError

VERSION = "3.9.1"
PARTITIONS = 4
TURNS = 2
_LIMIT_S = 300.0
_STEADY_PER_S = 200
_STEADY_S = 15.0
_WARM_S = 5.0
_POLL_S = 0.02


class Figures(NamedTuple):
    """One turn of one mirror."""

    records_per_s: float
    cpu_s_per_million: float
    peak_mb: float
    p50_ms: float
    p99_ms: float


def mirror_maker_properties(west: str, east: str, topics: str) -> str:
    """The settings of MirrorMaker in its dedicated mode: one direction, one replica of everything."""
    own = {
        "clusters": "west, east",
        "west.bootstrap.servers": west,
        "east.bootstrap.servers": east,
        "west->east.enabled": "true",
        "west->east.topics": topics,
        "east->west.enabled": "false",
        "tasks.max": str(PARTITIONS),
        "refresh.topics.interval.seconds": "5",
    }
    factors = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
    own |= {f"{name}replication.factor": "1" for name in factors}
    own |= {f"{name}.storage.replication.factor": "1" for name in ("offset", "status", "config")}
    return "".join(f"{name} = {value}\n" for name, value in own.items())


class Brokers:
    """Two kafkalite processes."""

    def __init__(self, home: Path) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self.addresses: list[str] = []
        for name in ("west", "east"):
            serve = [sys.executable, "-m", "kafkalite", "serve", "--port", "0", "--data-dir", str(home / name)]
            process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._processes.append(process)
            assert process.stdout is not None
            line = next((each for each in process.stdout if "is ready on" in each), "")
            if not line:
                raise BrokerError("a broker did not start")
            self.addresses.append(f"127.0.0.1:{line.split('is ready on ')[1].split()[0].rsplit(':', 1)[1].rstrip(',')}")

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def kafkalite_mirror(west: str, east: str, topics: str, home: Path, *more: str) -> Iterator[ProcessTree]:
    command = [sys.executable, "-m", "kafkalite", "mirror", "--from", f"west={west}", "--to", east, "--topics", topics]
    with _running([*command, "--name", f"mirror-{topics}", *more], home / "kafkalite.txt") as tree:
        yield tree


def preserving_mirror(west: str, east: str, topics: str, home: Path) -> contextlib.AbstractContextManager[ProcessTree]:
    return kafkalite_mirror(west, east, topics, home, "--preserve-offsets")


@contextlib.contextmanager
def mirror_maker(west: str, east: str, topics: str, home: Path) -> Iterator[ProcessTree]:
    path = home / f"mm2-{topics}.properties"
    path.write_text(mirror_maker_properties(west, east, topics))
    (home / "log4j.properties").write_text(LOG4J)
    name = "org.apache.kafka.connect.mirror.MirrorMaker"
    with _running(command_line(VERSION, home, "1g", name, str(path)), home / "mm2.txt") as tree:
        yield tree


@contextlib.contextmanager
def _running(command: Sequence[str], output: Path) -> Iterator[ProcessTree]:
    with output.open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield ProcessTree(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


Mirror = Callable[[str, str, str, Path], contextlib.AbstractContextManager[ProcessTree]]
SIDES: Mapping[str, Mirror] = {
    "kafkalite": kafkalite_mirror,
    "same offsets": preserving_mirror,
    "MirrorMaker 2": mirror_maker,
}


def turn(run: Mirror, brokers: Brokers, topic: str, size: int, count: int, home: Path) -> Figures:
    """Copies a topic that is full, then records at a steady rate. Raises BrokerError after a while without an end."""
    west, east = brokers.addresses
    _create(west, topic)
    _fill(west, topic, size, count)
    with run(west, east, topic, home) as tree:
        rate, cpu_s = _copy(east, f"west.{topic}", count, tree)
        found = latency(_trickle(west, east, topic, size))
        peak_mb = tree.memory().peak_bytes / 1e6
        return Figures(rate, cpu_s * 1e6 / count, peak_mb, found.p50_us / 1e3, found.p99_us / 1e3)


def _create(address: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()


def _fill(address: str, topic: str, size: int, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})
    value = bytes(size)
    for number in range(count):
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def _copy(address: str, topic: str, count: int, tree: ProcessTree) -> tuple[float, float]:
    """(records a second, CPU seconds) from the first records at the target to the last."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "isolation.level": "read_committed"})
    deadline, first, began, cpu_before = time.monotonic() + _LIMIT_S, 0, 0.0, 0.0
    try:
        while time.monotonic() < deadline:
            ends = 0
            with contextlib.suppress(KafkaException):
                ends = sum(
                    consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=10)[1]
                    for index in range(PARTITIONS)
                )
            if ends and not first:
                first, began, cpu_before = ends, time.monotonic(), tree.cpu().total_s
            if ends >= count:
                took_s = time.monotonic() - began
                return (count - first) / took_s if took_s else 0.0, tree.cpu().total_s - cpu_before
            time.sleep(_POLL_S)
    finally:
        consumer.close()
    raise BrokerError(f"{topic} is not copied within {_LIMIT_S:.0f} s")


def _trickle(west: str, east: str, topic: str, size: int) -> list[int]:
    """The nanoseconds of each record from its producer to a consumer at the target."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": west, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": east,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    copies = [TopicPartition(f"west.{topic}", index) for index in range(PARTITIONS)]
    for one in copies:
        one.offset = consumer.get_watermark_offsets(one, timeout=10)[1]
    consumer.assign(copies)
    samples: list[int] = []
    count, padding = int((_WARM_S + _STEADY_S) * _STEADY_PER_S), bytes(max(0, size - 8))

    def consume() -> None:
        """Takes each record as it comes: a call that waits for several would hold the first one back."""
        until_s = time.monotonic() + _WARM_S + _STEADY_S + _LIMIT_S
        while len(samples) < count and time.monotonic() < until_s:
            record = consumer.poll(_POLL_S)
            if record is None or record.error() is not None:
                continue
            value = record.value()
            if value is not None:
                samples.append(time.monotonic_ns() - int.from_bytes(value[:8], "big"))

    consuming = threading.Thread(target=consume)
    consuming.start()
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / _STEADY_PER_S - time.monotonic()))
        producer.produce(topic, time.monotonic_ns().to_bytes(8, "big") + padding, partition=number % PARTITIONS)
        producer.poll(0)
    consuming.join()
    consumer.close()
    if len(samples) < count:
        raise BrokerError("records at a steady rate do not arrive")
    return samples[int(_WARM_S * _STEADY_PER_S) :]


def median(turns: Sequence[Figures]) -> Figures:
    return Figures(*(statistics.median(column) for column in zip(*turns, strict=True)))


def table(found: Mapping[tuple[int, str], Sequence[Figures]]) -> str:
    """A Markdown table: a row for each size and mirror."""
    lines = [
        "| value | mirror | records/s | CPU s a million | peak MB | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for (size, name), turns in found.items():
        one = median(turns)
        lines.append(
            f"| {size} B | {name} | {one.records_per_s:,.0f} | {one.cpu_s_per_million:.2f} | {one.peak_mb:.0f} | "
            f"{one.p50_ms:.1f} | {one.p99_ms:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench mirror", description=__doc__.split("\n\n")[0])
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of each mirror and size (default: {TURNS})")
    parser.add_argument("--mb", type=int, default=200, help="of values a turn (default: 200)")
    parser.add_argument("--sizes", default="100,1000", help="bytes of a value (default: 100,1000)")
    parser.add_argument("--only", action="append", choices=list(SIDES), help="one of the mirrors; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    found: dict[tuple[int, str], list[Figures]] = {}
    try:
        with tempfile.TemporaryDirectory() as home, contextlib.closing(Brokers(Path(home))) as brokers:
            for size in map(int, options.sizes.split(",")):
                for number in range(options.turns):
                    for name, run in SIDES.items():
                        if not options.only or name in options.only:
                            topic = f"bench-{size}-{number}-{name[0].lower()}"
                            figures = turn(run, brokers, topic, size, options.mb * 1_000_000 // size, Path(home))
                            found.setdefault((size, name), []).append(figures)
                            print(f"{size} B, {name}: {figures}", flush=True)
    except (BrokerError, ReferenceUnavailable) as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 2
    print(f"\n{', '.join(machine().values())}\n\n{table(found)}")
    if options.json:
        rows: list[Any] = [{"size": key[0], "mirror": key[1], "turns": turns} for key, turns in found.items()]
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    return 0
