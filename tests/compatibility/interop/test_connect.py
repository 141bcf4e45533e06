"""Kafka Connect with its file connectors: a file into a topic, the topic into a file, and on after a restart.

Standalone keeps the source's position in a file of its own. Distributed keeps connectors, positions and states in three
compacted topics of the broker, and its workers are a group with a protocol of their own.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.reference.kafka import free_port
from tests.compatibility.interop.java_tools import JavaTools, Running, java_command
from tests.compatibility.interop.transaction_stories import SETTINGS
from tests.support.wait import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
BROKER_SETTINGS = SETTINGS
VERSIONS = ("3.9.1", "4.1.0")
START_SECONDS = 240.0


class Connect:
    """One worker at a time, the two connectors, and the files between which they carry lines."""

    def __init__(self, version: str, java: JavaTools, home: Path, topic: str) -> None:
        self.version = version
        self.java = java
        self.home = home
        self.topic = topic
        self.source, self.sink = home / "source.txt", home / "sink.txt"
        self.rest_port = free_port()
        self.lines: list[str] = []
        self.running: Running | None = None
        self.starts = 0

    def connectors(self) -> list[dict[str, str]]:
        package = "org.apache.kafka.connect.file.FileStream"
        source = {"connector.class": f"{package}SourceConnector", "file": str(self.source), "topic": self.topic}
        sink = {"connector.class": f"{package}SinkConnector", "file": str(self.sink), "topics": self.topic}
        return [
            {"name": f"{self.topic}-{kind}", "tasks.max": "1", **of} for kind, of in (("in", source), ("out", sink))
        ]

    def worker(self, **more: str) -> Path:
        string = "org.apache.kafka.connect.storage.StringConverter"
        settings = {
            "bootstrap.servers": self.java.bootstrap,
            "key.converter": string,
            "value.converter": string,
            "listeners": f"http://127.0.0.1:{self.rest_port}",
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return self.write("worker", settings)

    def write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.home / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def start(self, tool: str, *files: Path) -> None:
        self.starts += 1
        output = self.home / f"connect-{self.starts}.txt"
        self.running = self.java.start(tool, *files, output=output, at=None)

    def stop(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.stop()

    def crash(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.kill()

    def type(self, count: int) -> None:
        more = [f"line {len(self.lines) + number} of the file" for number in range(count)]
        with self.source.open("a") as file:
            file.writelines(f"{line}\n" for line in more)
        self.lines += more

    def arrived(self) -> bool:
        return self.sink.exists() and len(self.sink.read_text().splitlines()) >= len(self.lines)

    def came_through(self, until: Callable[..., Any]) -> None:
        assert self.running is not None
        until(lambda: self.arrived() or self.ended(), "every line to arrive", START_SECONDS)
        assert self.sink.read_text().splitlines() == self.lines

    def ended(self) -> bool:
        assert self.running is not None
        code = self.running.process.poll()
        if code is not None:
            pytest.fail(f"Connect ended with code {code}: {self.running.said()[-4000:]}")
        return False

    def runs(self, connector: str) -> bool:
        status = self.rest(f"/connectors/{connector}/status")
        return bool(status and status["tasks"]) and all(task["state"] == "RUNNING" for task in status["tasks"])

    def rest(self, path: str, body: Any = None) -> Any:
        """The worker's answer, or None while it has none."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.rest_port}{path}", data, kind)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None

    def topic_end(self) -> int:
        """The end of the topic's only partition, open transactions included; 0 while there is none."""
        reads = {"group.id": "nobody", "isolation.level": "read_uncommitted"}
        consumer = Consumer({"bootstrap.servers": self.java.bootstrap, **reads})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(self.topic, 0), 5)[1])
        except KafkaException:
            return 0
        finally:
            consumer.close()

    def distributed(self, group: str, **more: str) -> Path:
        """A worker whose connectors, positions and states are in topics of the group."""
        kinds = ("config", "offset", "status")
        topics = {f"{kind}_storage_topic": f"{group}-{kind}" for kind in kinds}
        alone = {f"{kind}_storage_replication_factor": "1" for kind in kinds}
        return self.worker(group_id=group, offset_storage_partitions="5", **topics, **alone, **more)


@pytest.fixture(params=VERSIONS)
def connect(
    request: pytest.FixtureRequest,
    broker: Any,
    run: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[Connect]:
    connect = Connect(request.param, JavaTools(request.param, broker.bootstrap, run), tmp_path, unique("connect"))
    yield connect
    if connect.running is not None:
        connect.running.kill()


def test_standalone(connect: Connect, proved: Callable[..., None], until: Callable[..., Any]) -> None:
    proved(
        "Kafka Connect",
        connect.version,
        "standalone, file source to topic to file sink, on after a restart of the worker",
    )
    java_command(connect.version)
    worker = connect.worker(offset_storage_file_filename=str(connect.home / "offsets"))
    files = [connect.write(of["name"], of) for of in connect.connectors()]
    connect.type(500)
    connect.start("ConnectStandalone", worker, *files)
    connect.came_through(until)
    connect.type(200)
    connect.came_through(until)
    connect.stop()
    connect.type(300)
    connect.start("ConnectStandalone", worker, *files)
    connect.came_through(until)
    connect.stop()
    assert connect.java.consume(connect.topic, 1000, "--from-beginning") == connect.lines


def test_distributed(
    connect: Connect, proved: Callable[..., None], until: Callable[..., Any], unique: Callable[[str], str]
) -> None:
    proved(
        "Kafka Connect",
        connect.version,
        "distributed, connectors made over REST, positions and states in compacted topics, on after a restart",
    )
    java_command(connect.version)
    group = unique("workers")
    worker = connect.distributed(group)
    connect.type(500)
    connect.start("ConnectDistributed", worker)
    until(lambda: connect.rest("/connectors") == [] or connect.ended(), "the worker to answer", START_SECONDS)
    for of in connect.connectors():
        until(lambda of=of: connect.rest("/connectors", {"name": of["name"], "config": of}), f"{of['name']} to be made")
    connect.came_through(until)
    connect.stop()

    described = connect.java("TopicCommand", "--describe").splitlines()
    for topic in (f"{group}-config", f"{group}-offset", f"{group}-status"):
        assert any(f"Topic: {topic}\t" in line and "cleanup.policy=compact" in line for line in described), topic
    connect.type(300)
    connect.start("ConnectDistributed", worker)
    connect.came_through(until)
    names = sorted(of["name"] for of in connect.connectors())
    for name in names:
        until(lambda name=name: connect.runs(name), f"{name} to be told of as running")
    assert sorted(connect.rest("/connectors")) == names
    connect.stop()


def test_an_exactly_once_source(
    connect: Connect, proved: Callable[..., None], until: Callable[..., Any], unique: Callable[[str], str]
) -> None:
    proved(
        "Kafka Connect",
        connect.version,
        "distributed, exactly.once.source.support=enabled, the worker killed and started again twice: each line once",
    )
    java_command(connect.version)
    quick = {"scheduled_rebalance_max_delay_ms": "0", "session_timeout_ms": "6000", "heartbeat_interval_ms": "500"}
    worker = connect.distributed(unique("workers"), exactly_once_source_support="enabled", **quick)
    source = connect.connectors()[0]
    required = {name: of for name, of in source.items() if name != "name"} | {
        "exactly.once.support": "required",
        "batch.size": "100000",  # a full batch leaves lines in the connector's buffer until the file grows
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
    }

    def arrived() -> list[str]:
        """The lines that are committed by now."""
        told = ["--from-beginning", "--timeout-ms", 3000, "--consumer-property=isolation.level=read_committed"]
        shown = connect.java("ConsoleConsumer", "--topic", connect.topic, *told, check=False)
        return [line for line in shown.splitlines() if line.startswith("line ")]

    for number in range(3):
        connect.type(5000)
        connect.start("ConnectDistributed", worker)
        until(lambda: connect.rest("/connectors") is not None or connect.ended(), "the worker", START_SECONDS)
        if number == 0:
            body = {"name": source["name"], "config": required}
            until(lambda body=body: connect.rest("/connectors", body), "the connector to be made", START_SECONDS)
        if number < 2:
            before = connect.topic_end()
            until(
                lambda before=before: connect.topic_end() > before or connect.ended(),
                "the first new lines",
                START_SECONDS,
            )
            connect.crash()
    running = connect.running
    assert running is not None
    until(lambda: arrived()[-1:] == connect.lines[-1:], lambda: f"the last line: {running.said()}", START_SECONDS)
    assert arrived() == connect.lines
    connect.stop()
