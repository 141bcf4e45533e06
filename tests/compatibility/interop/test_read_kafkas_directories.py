"""Data directories of a real Apache Kafka, loaded with no broker running: each row as a consumer had it of that Kafka.

3.9.1 with KRaft and with ZooKeeper, 2.7.2 with topics of formats v0 and v1 besides; stopped in order, or killed with a
transaction open. All partitions lie in two directories, the internal ones too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from bench.reference.jars import ReferenceUnavailable
from tests.compatibility.interop.kraft_kafka import kraft_kafka
from tests.compatibility.interop.swap_scene import (
    BROKER_ID,
    CODECS,
    SECONDS,
    Kafka,
    administer,
    fill,
    leave,
    partitions,
)
from tests.compatibility.interop.zookeeper_kafka import zookeeper_kafka

pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

import kafkalite
from tests.support.reader.read_case import ALL, difference, rows_of
from tests.support.reader.stock_consumer import Row, StockConsumer

ECOSYSTEM = "Apache Kafka"
OLD_FORMATS = {"v0": "0.9.0", "v1": "0.10.0"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def fill_old_formats(kafka: Kafka) -> None:
    configs = {topic: {"message.format.version": version} for topic, version in OLD_FORMATS.items()}
    administer(kafka.bootstrap, "create_topics", [NewTopic(topic, 1, 1, config=configs[topic]) for topic in configs])
    for codec in CODECS[:-1]:  # zstd needs v2
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(50):
            for topic in OLD_FORMATS:
                producer.produce(topic, b"v" * number if number % 7 else None, b"k%d" % number if number % 3 else None)
        assert producer.flush(SECONDS) == 0


def leave_open(kafka: Kafka) -> None:
    """A transaction with records that nobody ends, and records behind it."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "open"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    plain = Producer({"bootstrap.servers": kafka.bootstrap})
    for sender in (producer, plain):
        for number in range(5):
            sender.produce("paid", b"open %d" % number)
        assert sender.flush(SECONDS) == 0


def seen_by_consumer(kafka: Kafka, *, read_committed: bool) -> dict[str, list[Row]]:
    consumer = StockConsumer(kafka.bootstrap, read_committed=read_committed)
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions(kafka.bootstrap):
        topics.setdefault(topic, []).append(partition)
    rows = {
        topic: consumer.read(topic, {index: consumer.bounds(topic, index) for index in indexes})
        for topic, indexes in topics.items()
    }
    consumer.close()
    return rows


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize(("version", "mode"), [("3.9.1", "zookeeper"), ("3.9.1", "kraft"), ("2.7.2", "zookeeper")])
def test_a_directory_of_kafka_loads_completely(
    version: str, mode: str, how: str, tmp_path: Path, data_dirs: list[Path], proved: Any
) -> None:
    proved("Apache Kafka", version, f"its data directories are loaded with no broker running, {mode}, after a {how}")
    home = tmp_path / "kafka"
    try:
        with (
            kraft_kafka(home, data_dirs, node_id=BROKER_ID)
            if mode == "kraft"
            else zookeeper_kafka(home, data_dirs, broker_id=BROKER_ID, version=version)
        ) as kafka:
            kafka.start()
            fill(kafka)
            if version == "2.7.2":
                fill_old_formats(kafka)
            leave_open(kafka)
            if how == "stop":  # a killed one forgets it: its files say so once a minute
                administer(kafka.bootstrap, "delete_records", [TopicPartition("orders", 1, 33)])
            views = [seen_by_consumer(kafka, read_committed=level) for level in (False, True)]
            leave(kafka, how)
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    uncommitted, committed = views
    assert len(uncommitted["orders"]) > 200 and uncommitted["orders"][0].topic == "orders"
    assert len(committed["paid"]) == 6 and len(uncommitted["paid"]) == 19
    for level, view in zip(("read_uncommitted", "read_committed"), views, strict=True):
        for topic, rows in view.items():
            reader = kafkalite.read(data_dirs, topic, isolation_level=level, include_headers=True)
            found = [Row(*row) for row in rows_of(reader, ALL)]
            if topic.startswith("__"):  # Kafka writes there until it is stopped
                found = found[: len(rows)]
            assert found == rows, f"{topic}, {level}: {difference(found, rows)}"
