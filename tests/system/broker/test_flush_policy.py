"""flush.messages and flush.ms with a whole broker, its own threads, and clients as they are in the world."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka import KafkaConsumer, KafkaProducer

from kafkalite.log.storage.files import Files
from kafkalite.server.broker import Broker
from tests.support.wait import DEADLINE_S, until


class Syncs:
    """How many bytes of each log were there at its last fsync, and how many fsyncs there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: dict[str, int] = {}
        self.count: dict[str, int] = {}
        self.threads: set[str] = set()
        fsync = Files.fsync

        def noted(files: Files, fd: int) -> None:
            path, size = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_size
            fsync(files, fd)
            if path.endswith(".log"):
                name = os.path.basename(os.path.dirname(path))
                self.bytes[name] = size
                self.count[name] = self.count.get(name, 0) + 1
                self.threads.add(threading.current_thread().name)

        monkeypatch.setattr(Files, "fsync", noted)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


@pytest.fixture
def broker(request: pytest.FixtureRequest, syncs: Syncs, tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", port=0, **getattr(request, "param", {})) as broker:
        yield broker


def create(broker: Broker, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic(name, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result(DEADLINE_S)


def values(broker: Broker, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("acks", [1, -1])
def test_what_librdkafka_is_told_of_is_on_the_disk(broker: Broker, syncs: Syncs, acks: int) -> None:
    create(broker, "t", flush_messages="1")
    log: Any = broker._running.replica_manager.partition("t", 0).log  # type: ignore[union-attr]
    wrong: list[int] = []
    told: list[bytes] = []

    def run(number: int) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": acks, "linger.ms": 0})

        def delivered(error: object, message: Any) -> None:
            end = log.segments[0].find(message.offset() + 1)
            if error is not None or syncs.bytes["t-0"] < (end[0] if end is not None else log.size_bytes):
                wrong.append(message.offset())
            told.append(message.value())

        for index in range(40):
            producer.produce("t", b"%d-%d" % (number, index), on_delivery=delivered)
            producer.flush(DEADLINE_S)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(told) == len(set(told)) == 480
    assert sorted(values(broker, "t", 480)) == sorted(told)
    assert syncs.count["t-0"] < 480  # those who waited together went together
    assert all(name.startswith("kafkalite-flush") for name in syncs.threads)


def test_kafka_python_is_served_too_and_the_topics_beside_are_not_flushed(broker: Broker, syncs: Syncs) -> None:
    create(broker, "t", flush_messages="1")
    create(broker, "u")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    for index in range(30):
        for topic in ("t", "u"):
            producer.send(topic, b"%d" % index).get(DEADLINE_S)
    producer.close()
    assert syncs.count["t-0"] >= 30 and "u-0" not in syncs.count
    consumer = KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    assert [next(consumer).value for _ in range(30)] == [b"%d" % index for index in range(30)]
    consumer.close()


@pytest.mark.parametrize("broker", [{"log_flush_scheduler_interval_ms": 20}], indirect=True)
def test_flush_ms_brings_to_the_disk_what_nobody_waits_for(broker: Broker, syncs: Syncs) -> None:
    create(broker, "t", flush_ms="50")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"value")
    producer.flush(DEADLINE_S)
    log: Any = broker._running.replica_manager.partition("t", 0).log  # type: ignore[union-attr]
    until(lambda: log.flusher.recovery_point == 1, "the flush")
    assert syncs.bytes["t-0"] == log.size_bytes


def test_the_policy_changes_while_the_broker_runs(broker: Broker, syncs: Syncs) -> None:
    create(broker, "t")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("t", b"a").get(DEADLINE_S)
    assert not syncs.count
    entry = ConfigEntry("flush.messages", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    producer.send("t", b"b").get(DEADLINE_S)
    assert syncs.count["t-0"] == 1
    producer.close()
    assert values(broker, "t", 2) == [b"a", b"b"]
