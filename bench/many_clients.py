"""`bench scaling --stock`: eight stock producers and eight stock consumers on `serve --cores N` and on Apache Kafka.

    python -m bench scaling --stock [--cores 1,2] [--reference 3.9.1]... [--seconds 4] [--rounds 3] [--clients c,java]

One topic of 16 partitions, dealt to the processes; each client has two of them, with the default settings of librdkafka
or of Java's clients. All produce and consume at the same time, as fast as they can. A C client is a process of its own;
those in Java share two JVMs. The brokers run all the time, with their data in memory. A Kafka is stopped (SIGSTOP) when
it is not its turn; ours, which would lose their sessions, idle then. The first round warms up and is not counted, the
median of the others is taken. Clients and brokers share the machine. A record counts once when it is written and once
when it is read.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import wire
from bench.cores import Kafka, Machine, create
from bench.librdkafka import OFFSET_BEGINNING, Consumer, Library, Producer
from bench.records import payload
from bench.reference import class_path
from bench.reference.jars import compile_class, java
from bench.report import machine
from bench.startup import reference_launcher, started
from bench.usage import Cpu

CLIENTS, EACH = 8, 2
PARTITIONS = CLIENTS * EACH
SIZES = (100, 1_000)
KINDS = ("c", "java")
_NAMES = {"c": "C", "java": "Java"}
_JAVA_VERSION = "3.9.1"
_JAVA_HEAP = "1g"
_PROGRAM = Path(__file__).with_name("java") / "ManyClients.java"
_CHUNK = 500
_POLL_MS = 20
_FIRST_RECORD_S = 60.0
_WARM_UP_S = {"c": 1.5, "java": 4.0}
_COMMON = {"log.segment.delete.delay.ms": "200"}
_KAFKA_ONLY = {"broker.session.timeout.ms": "3600000"}  # a stopped broker misses its heartbeats to its own controller
_MEMORY = "/dev/shm"


class Run(NamedTuple):
    """All clients on one target: records written and read, the CPU of the brokers and of all that runs beside them, and
    their memory afterwards."""

    written: int
    read: int
    seconds: float
    cpu: Cpu
    resident_bytes: int

    @property
    def rate(self) -> float:
        return (self.written + self.read) / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu.total_s * 1e6 / max(1, self.written + self.read)


# a C client, in a process of its own


def client(arguments: Sequence[str]) -> int:
    """Answers each line with the number of records so far; ends with its input."""
    role, bootstrap, topic, first, value_bytes = arguments
    partitions = range(int(first), int(first) + EACH)
    settings = {"bootstrap.servers": bootstrap}
    library, records = Library(), 0
    if role == "produce":
        producer = Producer(library, topic, settings, payload(int(value_bytes)), _CHUNK, partitions)
    else:
        consumer = Consumer(library, topic, settings, partitions)
        consumer.start(OFFSET_BEGINNING)
    while True:
        records += producer.produce(_CHUNK) if role == "produce" else max(0, consumer.consume(_POLL_MS))
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                os._exit(0)  # what is queued is of no interest
            print(records, flush=True)


def _commands(kind: str, role: str, bootstrap: str, topic: str, value_bytes: int, classes: str) -> list[list[str]]:
    if kind == "c":
        program = [sys.executable, "-m", "bench.many_clients", role, bootstrap, topic]
        return [[*program, str(number * EACH), str(value_bytes)] for number in range(CLIENTS)]
    options = [f"-Xmx{_JAVA_HEAP}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    options += ["-cp", f"{classes}:{class_path(_JAVA_VERSION)}"]
    return [[java(), *options, "ManyClients", role, bootstrap, topic, str(CLIENTS), str(EACH), str(value_bytes)]]


class Clients:
    """Running clients of one role."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._running = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            for command in commands
        ]

    def records(self) -> int:
        """So far. The first answer of each comes when it works. Raises BrokerError when one has ended."""
        for process in self._running:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()
        total = 0
        for process in self._running:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise wire.BrokerError("a client has ended")
            total += int(line)
        return total

    def end(self) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


# the brokers


class Target:
    """A machine of ours, or a Kafka, which is stopped while it is not its turn."""

    def __init__(self, name: str, of: Machine | Kafka) -> None:
        self.name = name
        self.of = of

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        self.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.signal(signal.SIGSTOP)

    def signal(self, number: signal.Signals) -> None:
        for pid in self.of.tree.pids() if isinstance(self.of, Kafka) else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def written(self, topic: str) -> int:
        addresses, total = self.of.addresses, 0
        for number, address in enumerate(addresses):
            with wire.Connection(address) as connection:
                total += sum(connection.end_offsets(topic, range(number, PARTITIONS, len(addresses))).values())
        return total

    def await_leaders(self, topic: str) -> None:
        deadline_s = time.monotonic() + 30.0
        while True:
            try:
                self.written(topic)
                return
            except wire.BrokerError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)


def perform(target: Target, kind: str, value_bytes: int, seconds: float, classes: str) -> Run:
    topic = f"stock-{kind}-{value_bytes}-{time.time_ns()}"
    bootstrap, of = ",".join(target.of.addresses), target.of
    create(of.bootstrap, {topic: [of.first_id + number % len(of.addresses) for number in range(PARTITIONS)]})
    target.await_leaders(topic)
    commands = [_commands(kind, role, bootstrap, topic, value_bytes, classes) for role in ("produce", "consume")]
    with contextlib.ExitStack() as stack:
        running = []
        for each in commands:
            running.append(Clients(each))
            stack.callback(running[-1].end)
        _, consumers = running
        deadline_s = time.monotonic() + _FIRST_RECORD_S
        while not consumers.records():
            if time.monotonic() > deadline_s:
                raise wire.BrokerError(f"no consumer has had a record within {_FIRST_RECORD_S:g} s")
            time.sleep(0.05)
        time.sleep(_WARM_UP_S[kind])
        before = time.perf_counter(), of.tree.cpu(), target.written(topic), consumers.records()
        time.sleep(seconds)
        after = time.perf_counter(), of.tree.cpu(), target.written(topic), consumers.records()
    resident_bytes = of.tree.memory().resident_bytes
    with wire.Connection(of.bootstrap.split(",")[0]) as connection:
        connection.delete_topic(topic)
    time.sleep(1.0)  # its files are gone
    return Run(after[2] - before[2], after[3] - before[3], after[0] - before[0], after[1] - before[1], resident_bytes)


Runs = Mapping[tuple[str, int], Mapping[str, Sequence[Run]]]
"""By client and size of a value, and by target."""


def measure(
    targets: Sequence[Target], kinds: Sequence[str], seconds: float, rounds: int, classes: str
) -> dict[tuple[str, int], dict[str, list[Run]]]:
    runs: dict[tuple[str, int], dict[str, list[Run]]] = {
        (kind, size): {target.name: [] for target in targets} for kind in kinds for size in SIZES
    }
    for number in range(rounds + 1):
        for (kind, size), by_target in runs.items():
            for target in targets if number % 2 == 0 else reversed(targets):
                with target.turn():
                    run = perform(target, kind, size, seconds, classes)
                if number:
                    by_target[target.name].append(run)
    return runs


def lines(runs: Runs, counts: int) -> Iterator[str]:
    """Markdown. What stands in brackets is each of ours, the first so many, beside that one."""
    yield "| clients | brokers | written/s | read/s | both, MB/s | broker CPU a record | memory, RSS |"
    yield "|---|---|---|---|---|---|---|"
    for (kind, size), by_target in runs.items():
        ours: list[tuple[float, float, float]] = []
        for name, some in by_target.items():
            rate, cpu_us = median(run.rate for run in some), median(run.cpu_us for run in some)
            resident = median(run.resident_bytes for run in some)
            written = median(run.written / run.seconds for run in some)
            read = median(run.read / run.seconds for run in some)
            beside = ["", "", ""]
            if len(ours) < counts:
                ours.append((rate, cpu_us, resident))
            else:
                theirs = rate, cpu_us, resident
                beside = [
                    f" ({', '.join(f'{one[which] / theirs[which]:.2f}' for one in ours)})"
                    for which in range(len(theirs))
                ]
            megabytes = rate * size / 1e6, resident / 1e6
            yield (
                f"| {CLIENTS} + {CLIENTS} in {_NAMES[kind]}, {size:,} B | {name} | {written:,.0f} | {read:,.0f} | "
                f"{megabytes[0]:,.0f}{beside[0]} | {cpu_us:.2f} us{beside[1]} | {megabytes[1]:,.0f} MB{beside[2]} |"
            )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench scaling --stock", description=__doc__)
    parser.add_argument(
        "--cores", default="1,2", help="numbers of processes of ours, separated by commas (default 1,2)"
    )
    parser.add_argument("--reference", action="append", default=[], metavar="VERSION", help="an Apache Kafka beside it")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run, once warm (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="how often, besides the one that warms up (default 3)")
    parser.add_argument("--clients", default=",".join(KINDS), help="c, java or both (default)")
    options = parser.parse_args(arguments)
    kinds, counts = options.clients.split(","), [int(count) for count in options.cores.split(",")]
    if not set(kinds) <= set(KINDS):
        parser.error(f"--clients is some of {','.join(KINDS)}")
    with contextlib.ExitStack() as stack:
        where = _MEMORY if Path(_MEMORY).is_dir() else None
        home, classes = (
            stack.enter_context(tempfile.TemporaryDirectory(dir=where, ignore_cleanup_errors=True)) for _ in range(2)
        )
        if "java" in kinds:
            compile_class(_PROGRAM, _JAVA_VERSION, Path(classes))
        targets = []
        for count in counts:
            (Path(home) / str(count)).mkdir()
            ours = Machine(Path(home) / str(count), count, _COMMON)
            stack.callback(ours.end)
            targets.append(Target(f"`--cores {count}`", ours))
        tempfile.tempdir = where
        for version in options.reference:
            broker = stack.enter_context(started(reference_launcher(version, properties=_COMMON | _KAFKA_ONLY)))
            targets.append(Target(f"Apache Kafka {version}", Kafka(broker)))
            stack.callback(targets[-1].signal, signal.SIGCONT)
        for target in targets:
            target.signal(signal.SIGSTOP)
        runs = measure(targets, kinds, options.seconds, options.rounds, classes)
    print(", ".join(machine().values()))
    print("\n".join(lines(runs, len(counts))))
    return 0


if __name__ == "__main__":
    sys.exit(client(sys.argv[1:]))
