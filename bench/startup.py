"""A broker of our own for the bench: started, timed to its first acknowledged record, stopped.

The time runs from just before the process is made until a Produce request to a topic that was created for it is
acknowledged, as a client would see it that tries all the time. Idle memory is taken a moment later.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import wire
from bench.records import record_batch
from bench.reference.kafka import command_line, free_port, prepare, server_properties, stop
from bench.report import Result
from bench.usage import Memory, ProcessTree
from bench.wire import BrokerError, Connection

START_LIMIT_S = 120.0
_RETRY_S = 0.001
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a broker: what to run, and where it will listen."""

    command: list[str]
    bootstrap: str


# Given a fresh directory; everything that is not the broker's own start (formatting, say) happens in here.
Launcher = Callable[[Path], Launch]


@dataclass(frozen=True, slots=True)
class Started:
    """A broker that has acknowledged its first record."""

    bootstrap: str
    process: ProcessTree
    first_ack_s: float
    idle: Memory
    home: Path
    """Where everything is that it writes."""


def kafkalite_launcher(arguments: str = "") -> Launcher:
    """`kafkalite serve` of the Python that runs the bench."""

    def launch(directory: Path) -> Launch:
        port = free_port()
        command = [sys.executable, "-m", "kafkalite", "serve", "--port", str(port), "--data-dir", str(directory)]
        return Launch(command + shlex.split(arguments), f"127.0.0.1:{port}")

    return launch


def overrides(properties: Mapping[str, str]) -> str:
    """Broker settings as arguments for `kafkalite_launcher`."""
    return " ".join(f"--override {name}={value}" for name, value in properties.items())


def command_launcher(command: str, bootstrap: str | None) -> Launcher:
    """Any command; `{port}` and `{dir}` in it stand for a free port and an empty directory."""

    def launch(directory: Path) -> Launch:
        port = free_port()
        words = [word.replace("{port}", str(port)).replace("{dir}", str(directory)) for word in shlex.split(command)]
        return Launch(words, bootstrap or f"127.0.0.1:{port}")

    return launch


def reference_launcher(version: str, heap: str = "1g", properties: Mapping[str, str] | None = None) -> Launcher:
    """Apache Kafka in KRaft mode, formatted beforehand; `properties` win over the single-node settings."""

    def launch(directory: Path) -> Launch:
        port = free_port()
        path = prepare(directory, version, server_properties(directory, port, free_port(), 0, properties or {}))
        return Launch(command_line(version, directory, heap, "kafka.Kafka", str(path)), f"127.0.0.1:{port}")

    return launch


@contextlib.contextmanager
def started(launcher: Launcher, settle_s: float = _SETTLE_S) -> Iterator[Started]:
    """A fresh broker in a temporary directory, idle for `settle_s`, stopped and removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="bench-broker-", ignore_cleanup_errors=True) as directory:
        launch = launcher(Path(directory))
        wire.split_host(launch.bootstrap)
        log = Path(directory).with_suffix(".out")
        # an installed package has its bytecode; some shells forbid Python to write it
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with log.open("wb") as sink:
            before = time.perf_counter()
            process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        try:
            _first_ack(launch.bootstrap, process, log)
            first_ack_s = time.perf_counter() - before
            tree = ProcessTree(process.pid)
            time.sleep(settle_s)
            yield Started(launch.bootstrap, tree, first_ack_s, tree.memory(), Path(directory))
        finally:
            stop(process)
            log.unlink(missing_ok=True)


def _first_ack(bootstrap: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Try until a record is acknowledged."""
    topic, deadline = "bench-start", time.monotonic() + START_LIMIT_S
    frame = wire.produce_frame(topic, 0, record_batch(1, 100))
    last: Exception | None = None
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BrokerError(f"the broker ended with code {process.returncode}: {log.read_text()[-500:]}")
        try:
            with Connection(bootstrap, timeout_s=10.0) as connection:
                with contextlib.suppress(wire.TopicExists):
                    connection.create_topic(topic)
                connection.produce(frame)
                return
        except (OSError, BrokerError) as error:
            last = error
        time.sleep(_RETRY_S)
    raise BrokerError(f"no record was acknowledged in {START_LIMIT_S:.0f} s: {last}")


def start_result(launcher: Launcher, times: int) -> Result:
    """Start and stop a fresh broker `times` times; the median to the first acknowledged record."""
    seconds, idle = [], []
    for _ in range(times):
        with started(launcher) as broker:
            seconds.append(broker.first_ack_s)
            idle.append(broker.idle.resident_bytes)
    note = (
        f"first ack after {statistics.median(seconds) * 1000:,.0f} ms "
        f"({min(seconds) * 1000:,.0f}-{max(seconds) * 1000:,.0f}), idle RSS {statistics.median(idle) / 1e6:,.0f} MB"
    )
    return Result("start", statistics.median(seconds), resident_bytes=round(statistics.median(idle)), note=note)
