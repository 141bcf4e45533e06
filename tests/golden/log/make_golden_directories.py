"""Makes tests/golden/log/kafka-3.9-zookeeper: what an Apache Kafka 3.9.1 with ZooKeeper leaves behind when it stops.

    python -m make_golden_directories

Two data directories of broker 3: topics with settings of their own, every codec, a transaction that was committed and
one that was not, commits of a group, a topic that was cut at its beginning, and one without a record. The files are
small, for an orderly stop trims the indexes; what only locks is left out.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.interop.zookeeper_kafka import zookeeper_kafka

GOLDEN = Path(__file__).parent / "kafka-3.9-zookeeper"
BROKER_ID = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="golden-"))
    directories = [home / "one", home / "two"]
    try:
        with zookeeper_kafka(home / "kafka", directories, broker_id=BROKER_ID) as kafka:
            kafka.settings |= {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
            kafka.start()
            told = fill(kafka.bootstrap)
            kafka.stop()
        shutil.rmtree(GOLDEN, ignore_errors=True)
        for directory in directories:
            shutil.copytree(directory, GOLDEN / directory.name, ignore=shutil.ignore_patterns(".lock"))
        (GOLDEN / "contents.json").write_text(json.dumps(told, indent=1) + "\n")
    finally:
        shutil.rmtree(home)


def fill(bootstrap: str) -> dict[str, Any]:
    """Returns what a reader must find."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("orders", 3, 1, config={"segment.bytes": "512", "retention.ms": "-1"}),
        NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic("paid", 1, 1),
        NewTopic("empty", 1, 1),
    ]
    for done in admin.create_topics(topics).values():
        done.result(30)
    for number, codec in enumerate(CODECS * 2):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for partition in range(3):
            for each in range(4):
                value = f"{codec} {number} {each} " * 5
                producer.produce("orders", value, f"key-{each}", partition, headers=[("codec", codec.encode())])
        producer.produce("compacted", f"value {number}", f"key-{number % 3}")
        producer.flush()
    payer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    payer.init_transactions()
    for text, end in (("paid", payer.commit_transaction), ("not paid", payer.abort_transaction)):
        payer.begin_transaction()
        payer.produce("paid", text)
        end()
    for done in admin.delete_records([TopicPartition("orders", 2, 13)]).values():
        done.result(30)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    while not _committed(reader):
        time.sleep(0.1)
    reader.close()
    return {"orders": read(bootstrap, "orders", 3), "compacted": read(bootstrap, "compacted", 1)}


def _committed(reader: Consumer) -> bool:
    places = [TopicPartition("orders", 0, 11, metadata="eleven"), TopicPartition("orders", 1, 22)]
    try:
        return all(one.error is None for one in reader.commit(offsets=places, asynchronous=False) or ())
    except Exception:  # the coordinator is still loading
        return False


def read(bootstrap: str, topic: str, partitions: int) -> list[list[list[Any]]]:
    """Offset, timestamp, key, value of each record of each partition, as a stock client sees them."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    found: list[list[list[Any]]] = []
    for partition in range(partitions):
        first, behind = reader.get_watermark_offsets(TopicPartition(topic, partition))
        reader.assign([TopicPartition(topic, partition, first)])
        records: list[list[Any]] = []
        while first + len(records) < behind:
            one = reader.poll(30)
            assert one is not None and one.error() is None
            records.append([one.offset(), one.timestamp()[1], one.key().decode(), one.value().decode()])
        found.append(records)
    reader.close()
    return found


if __name__ == "__main__":
    main()
