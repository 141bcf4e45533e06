"""Mirrors between kafkalite and Apache Kafka, in both directions, and their state as Kafka's own MirrorClient reads it.

pytest -m long tests/compatibility/interop/test_mirror.py
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka as kafka_python
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.reference import ReferenceUnavailable
from kafkalite.cli.main import main
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.mirror import preserved_copies
from kafkalite.client.mirror.mirror import Mirror
from kafkalite.client.mirror.naming import Naming
from kafkalite.client.mirror.settings import Endpoint, MirrorSettings
from kafkalite.client.topic_changes import create_topics
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.testing import Broker
from tests.compatibility.interop.java_tools import SOURCES, JavaTools, java_command
from tests.compatibility.interop.kraft_kafka import kraft_kafka
from tests.support.reader.stock_consumer import StockConsumer
from tests.support.wait import DEADLINE_S, until
from tests.system.mirror.audit import Audit

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
VERSIONS = ("3.9.1", "4.3.0")
CLIENT_VERSION = "3.9.1"  # of connect-mirror-client
TOPICS = {"orders": 2, "payments": 2, "table": 1}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=VERSIONS)
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an Apache Kafka."""
    try:
        with kraft_kafka(tmp_path / "kafka", [tmp_path / "kafka-data"], version=request.param) as node:
            node.settings["log.cleaner.backoff.ms"] = "200"
            node.start()
            yield node.bootstrap
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def kafkalite(tmp_path: Path) -> Iterator[str]:
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "log_cleaner_backoff_ms": 200}
    with Broker(data_dir=tmp_path / "kafkalite", **settings) as broker:
        yield broker.bootstrap_servers


@contextlib.contextmanager
def mirrored(west: str, east: str, **more: Any) -> Iterator[Mirror]:
    quick = {"refresh_interval_ms": 300, "groups_interval_ms": 300, "retry_ms": 300, **more}
    settings = MirrorSettings(Endpoint(east), "east", **quick)
    mirror = Mirror({"west": Endpoint(west)}, settings)
    mirror.start()
    try:
        yield mirror
    finally:
        mirror.stop()


def fill(bootstrap: str) -> None:
    """Records of every codec; transactions, committed and aborted; a table to be compacted."""
    with ClusterClient(bootstrap, 20) as cluster:
        for topic, partitions in TOPICS.items():
            settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
            configs = settings if topic == "table" else {"retention.ms": "987654321"}
            assert not create_topics(cluster, [topic], 20, partitions=partitions, replicas=1, configs=configs)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(400):
            key = b"k%d" % (number % 90) if number % 5 else None
            producer.produce("orders", b"%s %d" % (codec.encode(), number), key, headers=[("n", b"%d" % number)])
            row = b"k%d" % (number % 50 if number % 3 else number)
            producer.produce("table", b"%s %d" % (codec.encode(), number), row)
        assert producer.flush(DEADLINE_S) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    producer.init_transactions(DEADLINE_S)
    for number in range(30):
        producer.begin_transaction()
        for each in range(7):
            producer.produce("payments", b"%d/%d" % (number, each), partition=each % 2)
        producer.flush(DEADLINE_S)
        if number % 4:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)


def read_some(bootstrap: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "app",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders", "payments"])
    read: list[Any] = []
    until(lambda: read.extend(consumer.consume(50, 0.2)) or len(read) >= count, "records")
    consumer.commit(asynchronous=False)
    consumer.close()


def await_mirrored(west: str, east: str) -> Audit:
    """The audit of a copy that is whole and whose groups follow."""
    last = ""

    def is_whole() -> Audit | None:
        nonlocal last
        try:
            audit = Audit(west, east, TOPICS, tables=("table",))
            audit.check()
            audit.check_groups()
            return audit
        except (AssertionError, Unanswered, ConfigError, KeyError) as fault:
            last = str(fault)[:500]
            return None

    return until(is_whole, lambda: f"a whole copy: {last}", 2 * DEADLINE_S)  # type: ignore[return-value]


def java_state(east: str, run: Callable[..., str]) -> dict[str, str]:
    """The findings of Kafka's MirrorClient at the target."""
    output = run([*java_command(CLIENT_VERSION), str(SOURCES / "MirrorState.java"), east, "west", "app"], 240)
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


@pytest.mark.parametrize("direction", ["from Kafka", "to Kafka"])
def test_a_mirror(kafka: str, kafkalite: str, direction: str, run: Callable[..., str]) -> None:
    west, east = (kafka, kafkalite) if direction == "from Kafka" else (kafkalite, kafka)
    fill(west)
    with mirrored(west, east) as mirror:
        read_some(west, 700)
        await_mirrored(west, east)
        fill_more(west)
        audit = await_mirrored(west, east)
        naming = Naming("west", "east")
        with ClusterClient(east, 20) as cluster:
            cluster.refresh()
            assert {naming.offset_syncs, naming.checkpoints, "heartbeats", "west.heartbeats"} < cluster.topics
            assert cluster.partition_count("west.orders") == 2
        copies = [TopicPartition(f"west.{name}", index) for name in ("orders", "payments") for index in (0, 1)]
        offsets = {f"{one.topic}-{one.partition}": one.offset for one in committed(east, copies) if one.offset >= 0}
        state = java_state(east, run)
        assert state["upstream"] == "[west]" and state["hops"] == "1"
        assert state["heartbeats"] == "[heartbeats, west.heartbeats]"
        assert state["checkpoints"] == "[west.checkpoints.internal]"
        assert state["translated"] == "{" + ", ".join(f"{name}={offsets[name]}" for name in sorted(offsets)) + "}"
        assert {"west.orders", "west.payments", "west.table"} <= set(state["remote"].strip("[]").split(", "))
        assert not mirror.statuses[0].faults()
    print(f"at most {audit.behind_max} records would be read again")


def test_a_target_that_is_not_kafkalite_cannot_keep_offsets(
    kafka: str, kafkalite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    why = f"the target {kafka} is not kafkalite: --preserve-offsets needs its brokers"
    assert main(["mirror", "--from", f"west={kafkalite}", "--to", kafka, "--preserve-offsets"]) == 1
    assert why in capsys.readouterr().err
    with mirrored(kafkalite, kafka, preserves_offsets=True) as mirror:
        until(lambda: why in mirror.statuses[0].last_error, "a refusal")
        with ClusterClient(kafka, 20) as cluster:
            assert not cluster.topics, "nothing is created there"
    for answer in (None, False):  # also if the mirror may not describe the cluster
        with ClusterClient(kafka, 20) as cluster, pytest.MonkeyPatch.context() as patch:
            patch.setattr(preserved_copies, "is_kafkalite", lambda _, answer=answer: answer)
            with pytest.raises(ConfigError, match="is not kafkalite"):
                preserved_copies.require_kafkalite(cluster)


def test_a_copy_of_kafkas_has_its_offsets(kafka: str, kafkalite: str, run: Callable[..., str]) -> None:
    """As a stock consumer sees both; the state is read by Kafka's own MirrorClient."""
    fill(kafka)
    here, there = (StockConsumer(address, read_committed=True) for address in (kafka, kafkalite))
    try:
        with mirrored(kafka, kafkalite, preserves_offsets=True) as mirror:
            read_some(kafka, 700)
            fill_more(kafka)
            until(lambda: has_topics(kafkalite, "west.orders", "west.payments"), "the copies")
            for topic in ("orders", "payments"):  # Kafka compacts the table meanwhile
                for index in range(TOPICS[topic]):
                    await_same_offsets(here, there, topic, index)
            copies = [TopicPartition(f"west.{name}", index) for name in ("orders", "payments") for index in (0, 1)]
            originals = [TopicPartition(one.topic.removeprefix("west."), one.partition) for one in copies]

            def offsets(bootstrap: str, partitions: list[TopicPartition]) -> list[int]:
                return [one.offset for one in committed(bootstrap, partitions)]

            until(lambda: offsets(kafkalite, copies) == offsets(kafka, originals), "the offsets of the group")
            state = java_state(kafkalite, run)
            assert state["upstream"] == "[west]" and state["hops"] == "1"
            named = sorted((f"{one.topic}-{one.partition}", one.offset) for one in committed(kafkalite, copies))
            translated = ", ".join(f"{name}={offset}" for name, offset in named if offset >= 0)
            assert state["translated"] == "{" + translated + "}"
            assert not mirror.statuses[0].faults()
    finally:
        here.close()
        there.close()


def test_clients_pass_over_the_batches_without_records(tmp_path: Path, run: Callable[..., str]) -> None:
    """A copy that was at its source's end again and again, behind a marker each time, has one there."""
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
    with Broker(data_dir=tmp_path / "west", **settings) as west, Broker(data_dir=tmp_path / "east", **settings) as east:
        west.create_topic("orders")
        bootstrap = east.bootstrap_servers
        producer = Producer({"bootstrap.servers": west.bootstrap_servers, "transactional.id": "p"})
        producer.init_transactions(DEADLINE_S)
        with mirrored(west.bootstrap_servers, bootstrap, preserves_offsets=True):
            for number in range(8):
                producer.begin_transaction()
                producer.produce("orders", b"%d" % number)
                producer.flush(DEADLINE_S)
                (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(DEADLINE_S)
                until(lambda: has_topics(bootstrap, "west.orders"), "the copy")
                until(lambda end=2 * number + 2: end_of(bootstrap, "west.orders") == end, "its end")  # type: ignore[misc]
        wanted = [(2 * number, b"%d" % number) for number in range(8) if number % 3 != 1]
        assert [(one.offset, one.value) for one in east.records("west.orders")] == wanted
        assert read_by_kafka_python(bootstrap, len(wanted)) == wanted
        assert asyncio.run(read_by_aiokafka(bootstrap, len(wanted))) == wanted
        for version in VERSIONS:
            shown = ["--from-beginning", "--property", "print.offset=true", "--property", "print.value=true"]
            tools = JavaTools(version, bootstrap, run)
            lines = tools.consume("west.orders", len(wanted), *shown, isolation_level="read_committed")
            assert lines == [f"Offset:{offset}\t{value.decode()}" for offset, value in wanted], version


def end_of(bootstrap: str, topic: str) -> int:
    with ClusterClient(bootstrap, 20) as cluster:
        return LogOffsets(cluster, 20).ends([(topic, 0)])[topic, 0]


def read_by_kafka_python(bootstrap: str, count: int) -> list[tuple[int, bytes]]:
    consumer = kafka_python.KafkaConsumer(
        "west.orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    try:
        return [(one.offset, one.value) for one in itertools.islice(consumer, count)]
    finally:
        consumer.close()


async def read_by_aiokafka(bootstrap: str, count: int) -> list[tuple[int, bytes]]:
    consumer = aiokafka.AIOKafkaConsumer(
        "west.orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        found = [await asyncio.wait_for(consumer.getone(), DEADLINE_S) for _ in range(count)]
        return [(one.offset, one.value) for one in found]
    finally:
        await consumer.stop()


def has_topics(bootstrap: str, *names: str) -> bool:
    with ClusterClient(bootstrap, 20) as cluster:
        return cluster.topics.issuperset(names)


def await_same_offsets(here: StockConsumer, there: StockConsumer, topic: str, index: int) -> None:
    bounds = here.bounds(topic, index)
    until(lambda: there.bounds(f"west.{topic}", index) == bounds, lambda: f"{topic}-{index} within {bounds}")
    wanted = here.read(topic, {index: bounds})
    found = there.read(f"west.{topic}", {index: bounds})
    assert wanted and [one._replace(topic=topic) for one in found] == wanted


def fill_more(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    for number in range(100):
        producer.produce("orders", b"more %d" % number)
    assert producer.flush(DEADLINE_S) == 0
    read_some(bootstrap, 300)


def committed(bootstrap: str, partitions: list[TopicPartition]) -> list[TopicPartition]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "app"})
    try:
        return consumer.committed(partitions, 20)
    finally:
        consumer.close()
