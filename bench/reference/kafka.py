"""One Apache Kafka node (KRaft, broker and controller in one process) in a directory of its own.

Ready means: Metadata names a broker, so a client's first request finds a leader. The process is stopped as an operator
would (SIGTERM), and killed when it does not go. Its output is in `kafka.out` beside the data.
Source: config/kraft/server.properties and bin/kafka-run-class.sh of Kafka 3.9.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.reference.jars import ReferenceUnavailable, class_path, java
from bench.wire import BrokerError, Connection

START_LIMIT_S = 90.0
STOP_LIMIT_S = 30.0

LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
# The collector that Kafka's own start script asks for.
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A running Kafka: `data_dir` is its log directory, `home` the folder of its properties and its output."""

    bootstrap: str
    pid: int
    data_dir: Path
    home: Path
    version: str


def free_port() -> int:
    """A port on loopback that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_properties(
    home: Path, port: int, controller_port: int, rebalance_delay_ms: int, properties: Mapping[str, str]
) -> dict[str, str]:
    """A single node's settings; `properties` win."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": str(rebalance_delay_ms),
        **properties,
    }


def cluster_id() -> str:
    """22 characters, as Kafka's own random-uuid tool prints them: never with a dash in front, which ends a command."""
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


def command_line(
    version: str, home: Path, heap: str, main_class: str, *arguments: str, classes: Path | None = None
) -> list[str]:
    """How to run a class of this Kafka version in `home`; `classes` is a directory of more of them."""
    logging = f"-Dlog4j.configuration=file:{home / 'log4j.properties'}"
    options = [f"-Xms{heap}", f"-Xmx{heap}", *JVM_OPTIONS, logging]
    path = class_path(version) if classes is None else f"{class_path(version)}:{classes}"
    return [java(), *options, "-cp", path, main_class, *arguments]


def prepare(home: Path, version: str, settings: Mapping[str, str]) -> Path:
    """Write the properties and format the data directory; returns the properties file."""
    path = home / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (home / "log4j.properties").write_text(LOG4J)
    format_command = command_line(version, home, "256m", "kafka.tools.StorageTool")
    done = subprocess.run(
        [*format_command, "format", "-t", cluster_id(), "-c", str(path), "--ignore-formatted"],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ReferenceUnavailable(f"Kafka {version} could not format {home}: {(done.stdout + done.stderr)[-400:]}")
    return path


def await_ready(bootstrap: str, process: subprocess.Popen[bytes], output: Path, limit_s: float = START_LIMIT_S) -> None:
    """Return when Metadata names a broker; raise when the process ends or the time is up."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ReferenceUnavailable(f"Kafka ended with code {process.returncode}: {output.read_text()[-800:]}")
        with contextlib.suppress(OSError, BrokerError), Connection(bootstrap, timeout_s=5.0) as connection:
            if connection.brokers():
                return
        time.sleep(0.02)
    raise ReferenceUnavailable(f"Kafka was not ready after {limit_s:.0f} s: {output.read_text()[-800:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the process as an operator would; kill it when it does not go."""
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def reference_kafka(
    version: str = "3.9.1",
    *,
    properties: Mapping[str, str] | None = None,
    heap: str = "1g",
    rebalance_delay_ms: int = 0,
    home: Path | None = None,
    classes: Path | None = None,
) -> Iterator[Reference]:
    """A ready Apache Kafka on free loopback ports, stopped at the end of the block.

    `properties` are added to (and win over) the single-node settings. With `home` the directory is the caller's and
    stays, so that a second block continues with the same data; without it, it is temporary. `classes` is a directory of
    plug-ins that the properties name.
    Raises `ReferenceUnavailable` where there is no Java, no Maven or no Maven Central: skip with its text.
    """
    place = home or Path(tempfile.mkdtemp(prefix="reference-kafka-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        port, controller_port = free_port(), free_port()
        settings = server_properties(place, port, controller_port, rebalance_delay_ms, properties or {})
        path = prepare(place, version, settings)
        output = place / "kafka.out"
        with output.open("ab") as sink:
            process = subprocess.Popen(
                command_line(version, place, heap, "kafka.Kafka", str(path), classes=classes),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=place,
                start_new_session=True,
            )
        try:
            await_ready(f"127.0.0.1:{port}", process, output)
            yield Reference(f"127.0.0.1:{port}", process.pid, Path(settings["log.dirs"]), place, version)
        finally:
            stop(process)
    finally:
        if home is None:
            shutil.rmtree(place, ignore_errors=True)
