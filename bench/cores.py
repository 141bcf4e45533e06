"""`kafkalite serve --cores N`: the same clients on one process, two, four, ...; CPU a request, chatter, memory, start.

    python -m bench scaling --cores 1,2,4 [--seconds 3] [--rounds 2] [--reference 3.9.1] [--svg FILE]

Each client is a process that sends frames made ahead (`replay`) or fetches and discards (`discard`), to a topic of its
own; the topics are dealt to the brokers. Rounds go through all numbers by turns, and the median counts. Brokers and
clients share the machine, so rates say what both reach together. The CPU that the brokers take for a request does not
depend on that: a core is full at 1,000,000 / that. Rows for more cores than there are, or than were measured, are
computed from it and marked. With --reference the same clients use an Apache Kafka in the same rounds. With --stock the
clients are stock ones (`many_clients`), with --partitions thousands are started with (`many_partitions`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from bench import wire
from bench.discard import Reader
from bench.records import FrameCycle, frame_cycle
from bench.replay import blocking_socket, pump
from bench.report import machine
from bench.startup import Started, reference_launcher, started
from bench.usage import Cpu, Memory, ProcessTree

SMALL, BATCHES, FETCHES = "produce, 1 record of 100 B", "produce, 150 records of 100 B", "fetch, 1 MiB"
WORKS: Mapping[str, int] = {SMALL: 1, BATCHES: 150, FETCHES: 150}  # records of a batch
_VALUE_BYTES = 100
_FETCH_BYTES = 1 << 20
_LOG_BATCHES = 500
_WARM_UP_S = 0.5
_IDLE_S = 5.0
_LEADER_S = 20.0
_REFERENCE_WARM_UP_S = 10.0
_READY = re.compile(r"kafkalite is ready on (\S+), data in .* ZooKeeper (\S+?)(?:,.*)?\n")
_SERVES = re.compile(r"(broker \d+|ZooKeeper) \(process (\d+)\) serves")


@dataclass(frozen=True, slots=True)
class Run:
    """One work on one number of processes, of which the brokers and all others took so much CPU."""

    requests: int
    seconds: float
    brokers: Cpu
    others: Cpu
    zookeeper_requests: int

    @property
    def cpu_us(self) -> float:
        """CPU of the brokers for a request, in microseconds."""
        return self.brokers.total_s * 1e6 / self.requests


@dataclass(frozen=True, slots=True)
class Start:
    """Times from the start of the process, in seconds, and the idle machine before any client."""

    ready_s: float
    first_ack_s: float
    idle_cores: float
    memory: Memory
    processes: int


class Target(Protocol):
    """A broker, or several, under the load of the clients."""

    @property
    def first_id(self) -> int: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def addresses(self) -> Sequence[str]: ...

    @property
    def tree(self) -> ProcessTree: ...

    def brokers_cpu(self) -> Cpu: ...

    def zookeeper_requests(self) -> int: ...


class Kafka:
    """An Apache Kafka, which is one process for all cores."""

    first_id = 1

    def __init__(self, broker: Started) -> None:
        self.bootstrap = broker.bootstrap
        self.addresses = [broker.bootstrap]
        self.tree = broker.process

    def brokers_cpu(self) -> Cpu:
        return self.tree.cpu()

    def zookeeper_requests(self) -> int:
        return 0


class Machine:
    """`kafkalite serve --cores N` while it runs."""

    first_id = 0

    def __init__(self, home: Path, count: int, settings: Mapping[str, str] = {}) -> None:
        self._errors = home / "stderr.txt"
        began_s = time.perf_counter()
        command = [sys.executable, "-m", "kafkalite", "serve", "--cores", str(count), "--port", "0"]
        command += [part for name, text in settings.items() for part in ("--override", f"{name}={text}")]
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(home / "data")], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        found = _READY.match(self.process.stdout.readline())
        if found is None:
            self.end()
            raise wire.BrokerError(f"--cores {count} did not start: {self._errors.read_text()[-2000:]}")
        self.ready_s = time.perf_counter() - began_s
        self.bootstrap, self.zookeeper = found[1], found[2]
        self.addresses = found[1].split(",")
        pids = dict(_SERVES.findall(self._errors.read_text()))
        self._brokers = [ProcessTree(int(pid)) for name, pid in pids.items() if name.startswith("broker")]
        self.tree = ProcessTree(self.process.pid)
        first = f"first-{time.time_ns()}"
        create(self.bootstrap, {first: [0]})
        await_leader(self.addresses[0], first)
        self.first_ack_s = time.perf_counter() - began_s

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def brokers_cpu(self) -> Cpu:
        return sum((tree.cpu() for tree in self._brokers), Cpu())

    def zookeeper_requests(self) -> int:
        """The packets that the ZooKeeper has got, by its word `mntr`."""
        host, _, port = self.zookeeper.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.sendall(b"mntr")
            text = b"".join(iter(lambda: sock.recv(65536), b"")).decode()
        return int(re.search(r"zk_packets_received\s+(\d+)", text)[1])  # type: ignore[index]


def create(bootstrap: str, leaders: Mapping[str, Sequence[int]]) -> None:
    """Topics with a partition on each of the brokers that are given."""
    own = (-1).to_bytes(4, "big", signed=True) + (-1).to_bytes(2, "big", signed=True)  # the assignment says both
    topics = b"".join(
        wire.string(name)
        + own
        + len(brokers).to_bytes(4, "big")  # assignments: a partition, and one broker
        + b"".join(
            index.to_bytes(4, "big") + (1).to_bytes(4, "big") + n.to_bytes(4, "big") for index, n in enumerate(brokers)
        )
        + bytes(4)  # settings
        for name, brokers in leaders.items()
    )
    body = len(leaders).to_bytes(4, "big") + topics + (30_000).to_bytes(4, "big") + b"\0"
    with wire.Connection(bootstrap.split(",")[0], timeout_s=60.0) as connection:
        cursor = connection.request(wire.CREATE_TOPICS, 4, body)
    cursor.int32()
    for _ in range(cursor.int32()):
        name, code, message = cursor.string(), cursor.int16(), cursor.string()
        if code:
            raise wire.BrokerError(f"topic {name} was not created: error {code}, {message}")


def await_leader(address: str, topic: str) -> None:
    """Until the broker has taken a record: the controller answers before every leader has opened its partition."""
    deadline_s = time.monotonic() + _LEADER_S
    while True:
        try:
            with blocking_socket(address) as sock:
                pump(sock, cycle(topic, 1), 10.0, 1)
                return
        except wire.BrokerError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.002)


def cycle(topic: str, records: int) -> FrameCycle:
    return frame_cycle(topic, records, _VALUE_BYTES)


# a client, in a process of its own


def client(arguments: Sequence[str]) -> int:
    """Prints a line when it is warm, waits for one, and prints the number of its requests."""
    address, topic, work, seconds = arguments
    frames = cycle(topic, WORKS[work])
    await_leader(address, topic)
    with blocking_socket(address) as sock:
        if work == FETCHES:
            end_offset = 1 + pump(sock, frames, 300.0, _LOG_BATCHES) * frames.record_count
            reader = Reader(sock, frames, _FETCH_BYTES)
            read(reader, end_offset)
        else:
            pump(sock, frames, _WARM_UP_S, 10**9)
        print("warm", flush=True)
        sys.stdin.readline()
        began_s = time.perf_counter()
        requests = 0
        if work == FETCHES:
            while time.perf_counter() < began_s + float(seconds):
                requests += read(reader, end_offset)
        else:
            requests = pump(sock, frames, float(seconds), 10**9)
        print(json.dumps({"requests": requests, "seconds": time.perf_counter() - began_s}), flush=True)
    return 0


def read(reader: Reader, end_offset: int) -> int:
    """All but the first record, which is in a batch of its own. Returns the requests."""
    offset, requests = 1, 0
    while offset < end_offset:
        offset += reader.fetch(offset) * reader.cycle.record_count
        requests += 1
    return requests


@contextlib.contextmanager
def clients(commands: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.cores", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def perform(target: Target, work: str, client_count: int, seconds: float) -> Run:
    """All clients at once, dealt to the brokers."""
    name = re.sub(r"\W+", "-", work)
    leaders = {f"{name}-{time.time_ns()}-{n}": n % len(target.addresses) for n in range(client_count)}
    create(target.bootstrap, {topic: [target.first_id + leader] for topic, leader in leaders.items()})
    commands = [(target.addresses[leader], topic, work, str(seconds)) for topic, leader in leaders.items()]
    with clients(commands) as running:
        for process in running:
            _line_of(process)
        before = target.brokers_cpu(), target.tree.cpu(), target.zookeeper_requests()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [json.loads(_line_of(process)) for process in running]
        after = target.brokers_cpu(), target.tree.cpu(), target.zookeeper_requests()
    brokers = after[0] - before[0]
    requests = sum(answer["requests"] for answer in answers)
    longest_s = max(answer["seconds"] for answer in answers)
    return Run(requests, longest_s, brokers, after[1] - before[1] - brokers, after[2] - before[2])


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise wire.BrokerError("a client has ended")
    return line


def measure_start(target: Machine, idle_s: float) -> Start:
    before = target.tree.cpu()
    time.sleep(idle_s)
    idle = (target.tree.cpu() - before).total_s / idle_s
    return Start(target.ready_s, target.first_ack_s, idle, target.tree.memory(), len(target.tree.pids()))


# the whole


@dataclass(frozen=True, slots=True)
class Report:
    """By number of processes: the starts, the memory of all processes after the load, and by work the runs of all
    rounds. The same of Apache Kafka, by version."""

    starts: dict[int, list[Start]]
    runs: dict[str, dict[int, list[Run]]]
    resident: dict[int | str, list[int]]
    peers: dict[str, dict[str, list[Run]]]

    def lines(self, counts: Sequence[int], cores: int) -> Iterator[str]:
        """Markdown: the starts, what was measured of each work, and what is computed from it."""
        yield "| processes | ready | first record acknowledged | idle CPU | memory of a process, not files |"
        yield "|---|---|---|---|---|"
        for count, starts in self.starts.items():
            own = median(one.memory.own_bytes / one.processes for one in starts) / 1e6
            yield (
                f"| {count} | {median(one.ready_s for one in starts):.2f} s | "
                f"{median(one.first_ack_s for one in starts):.2f} s | "
                f"{100 * median(one.idle_cores for one in starts):.1f} % of a core | {own:.0f} MB |"
            )
        yield ""
        yield (
            "| work | processes | requests/s, brokers and clients together | broker CPU a request | beside one process "
            "| others' CPU | ZooKeeper requests/s |"
        )
        yield "|---|---|---|---|---|---|---|"
        for work, by_count in self.runs.items():
            first = median(run.cpu_us for run in next(iter(by_count.values())))
            for count, runs in by_count.items():
                yield _measured(work, str(count), runs, first)
            for version, runs in self.peers.get(work, {}).items():
                yield _measured(work, f"Apache Kafka {version}", runs, first)
        yield ""
        yield "| processes | memory of all after the load, RSS |"
        yield "|---|---|"
        for name, sizes in self.resident.items():
            yield f"| {name} | {median(sizes) / 1e6:,.0f} MB |"
        yield ""
        yield "| work | cores | requests/s of brokers alone |"
        yield "|---|---|---|"
        for work in self.runs:
            for count, rate in self.capacity(work, counts, cores).items():
                how = "from the CPU of a request" if count <= cores and count in self.runs[work] else "computed"
                yield f"| {work} | {count} | {rate:,.0f} ({how}) |"

    def capacity(self, work: str, counts: Sequence[int], cores: int) -> dict[int, float]:
        """Requests a second of so many full cores, by the CPU of a request with the nearest number of processes that
        was measured, each of which had a core of its own."""
        by_count = self.runs[work]
        most = {count: max(min(count, cores), min(by_count)) for count in counts}
        nearest = {count: max(one for one in by_count if one <= most[count]) for count in counts}
        return {count: count * 1e6 / median(run.cpu_us for run in by_count[nearest[count]]) for count in counts}


def _measured(work: str, name: str, runs: Sequence[Run], first_us: float) -> str:
    cpu_us = median(run.cpu_us for run in runs)
    rate = median(run.requests / run.seconds for run in runs)
    others = 100 * median(run.others.total_s / run.seconds for run in runs)
    chatter = median(run.zookeeper_requests / run.seconds for run in runs)
    return (
        f"| {work} | {name} | {rate:,.0f} | {cpu_us:.1f} us | {cpu_us / first_us:.2f} | {others:.1f} % of a core | "
        f"{chatter:.1f} |"
    )


def measure(counts: Sequence[int], rounds: int, seconds: float, idle_s: float, peers: Mapping[str, Kafka]) -> Report:
    """Every number of processes in each round, and every peer, which runs already."""
    names: list[int | str] = [*counts, *peers]
    report = Report(
        {count: [] for count in counts},
        {work: {count: [] for count in counts} for work in WORKS},
        {name: [] for name in names},
        {work: {version: [] for version in peers} for work in WORKS},
    )
    for _ in range(rounds):
        for version, kafka in peers.items():
            for work, by_version in report.peers.items():
                by_version[version].append(perform(kafka, work, max(counts), seconds))
            report.resident[version].append(kafka.tree.memory().resident_bytes)
        for count in counts:
            with tempfile.TemporaryDirectory(dir=_memory()) as home:
                target = Machine(Path(home), count)
                try:
                    report.starts[count].append(measure_start(target, idle_s))
                    for work, by_count in report.runs.items():
                        by_count[count].append(perform(target, work, max(counts), seconds))
                    report.resident[count].append(target.tree.memory().resident_bytes)
                finally:
                    target.end()
    return report


@contextlib.contextmanager
def reference(version: str, client_count: int) -> Iterator[Kafka]:
    """An Apache Kafka with its data in memory, too, that has compiled what the works need."""
    tempfile.tempdir = _memory()
    with started(reference_launcher(version)) as broker:
        kafka = Kafka(broker)
        for work in WORKS:
            perform(kafka, work, client_count, _REFERENCE_WARM_UP_S)
        yield kafka


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench scaling", description=__doc__)
    parser.add_argument("--cores", default="1,2,4", help="numbers of processes, separated by commas (default 1,2,4)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each work is measured (default 3)")
    parser.add_argument("--rounds", type=int, default=2, help="how often (default 2)")
    parser.add_argument("--idle", type=float, default=_IDLE_S, help=f"how long it idles first (default {_IDLE_S:g} s)")
    parser.add_argument(
        "--measured", metavar="N,N", help="which of them are measured (default: up to twice the cores of the machine)"
    )
    parser.add_argument("--reference", action="append", default=[], metavar="VERSION", help="beside Apache Kafka, too")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the capacity by cores")
    options = parser.parse_args(arguments)
    counts = sorted({int(text) for text in options.cores.split(",")})
    cores = len(os.sched_getaffinity(0))
    # more processes than twice as many as cores measure the scheduler
    measured = [count for count in counts if count <= 2 * cores] or counts[:1]
    if options.measured is not None:
        measured = sorted({int(text) for text in options.measured.split(",")})
    with contextlib.ExitStack() as stack:
        peers = {version: stack.enter_context(reference(version, max(measured))) for version in options.reference}
        report = measure(measured, options.rounds, options.seconds, options.idle, peers)
    print(", ".join(machine().values()))
    for line in report.lines(counts, cores):
        print(line)
    if options.svg is not None:
        from bench.cores_plot import draw

        options.svg.write_text(draw({work: report.capacity(work, counts, cores) for work in report.runs}, cores))
    return 0


if __name__ == "__main__":
    sys.exit(client(sys.argv[1:]))
