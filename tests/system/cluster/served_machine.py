"""`kafkalite serve -n` or `--cores` as an operator starts it, and clients of all its brokers."""

from __future__ import annotations

import fcntl
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import environment
from tests.support.wait import DEADLINE_S, until
from tests.system.cluster.load import LOG

READY = re.compile(
    r"kafkalite is ready on (?P<bootstrap>[\d.:,]+), data in (?P<place>\S+), cluster (?P<cluster>[\w-]{22}), "
    r"ZooKeeper (?P<zookeeper>127\.0\.0\.1:\d+)(?:, metrics on (?P<metrics>\S+))?\n"
)


class Served:
    """The command while it runs."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self.errors = errors
        assert process.stdout is not None
        line = process.stdout.readline()
        found = READY.fullmatch(line)
        assert found is not None, f"{line!r}; {self.said()}"
        self.bootstrap = found["bootstrap"]
        self.cluster = found["cluster"]
        self.zookeeper = found["zookeeper"]
        self.metrics: str | None = found["metrics"]

    def said(self) -> str:
        return self.errors.read_text()

    def pids(self, name: str) -> list[int]:
        """Of the processes that were such a broker, the last one last."""
        return [int(pid) for pid in re.findall(rf"{name} \(process (\d+)\) serves", self.said())]


def start(home: Path, *arguments: str, brokers: int | None = 3, cores: str = "") -> Served:
    """Begin the command; returns when it is ready."""
    place = [] if "--adopt" in arguments else ["--data-dir", str(home / "data")]
    count = ["--cores", cores] if cores else [] if brokers is None else ["-n", str(brokers)]
    command = [sys.executable, "-m", "kafkalite", "serve", *count, "--port", "0", *place]
    errors = home / "stderr.txt"
    with errors.open("w") as sink:
        process = subprocess.Popen(
            [*command, "--override", "group.initial.rebalance.delay.ms=0", *arguments],
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env=environment(),
        )
    try:
        return Served(process, errors)
    except BaseException:
        end(process)
        raise


def end(process: subprocess.Popen[str]) -> None:
    """Stop it in order, unless it has ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


@contextmanager
def serving(home: Path, *arguments: str, brokers: int | None = 3, cores: str = "") -> Iterator[Served]:
    served = start(home, *arguments, brokers=brokers, cores=cores)
    try:
        yield served
    finally:
        end(served.process)


def all_gone(directory: Path) -> bool:
    """Whether nobody holds the lock that every process of the cluster holds."""
    with (directory / ".lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG)  # let go, it cancels what it was asked
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)


def creates(bootstrap: str, topic: str) -> bool:
    try:
        create(bootstrap, topic, 1)
    except confluent_kafka.KafkaException:
        return False
    return True


def write(bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
    """Its number into each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}, logger=LOG)
    failed: list[str] = []
    for index in partitions:
        producer.produce(
            topic,
            b"%d" % index,
            partition=index,
            on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
        )
    assert producer.flush(60) == 0 and failed == []


def read(bootstrap: str, topic: str, partitions: int) -> set[bytes]:
    """One record of each partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"}, logger=LOG)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: set[bytes] = set()

    def polled() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.add(message.value())
        return len(found) == partitions

    until(polled, f"a record of each of {partitions} partitions")
    consumer.close()
    return found
