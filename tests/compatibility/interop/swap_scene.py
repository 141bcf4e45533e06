"""Data directories that Apache Kafka and kafkalite serve in turn: the brokers, and the deeds of their clients.

`fill` gives Kafka a life with records of every kind; `everything` reads all partitions from first to last record.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.interop.kraft_kafka import KRaftKafka
from tests.compatibility.interop.zookeeper_kafka import ZooKeeperKafka
from tests.support.broker_process import READY
from tests.support.places import ROOT
from tests.support.wait import until

BROKER_ID = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 30.0
_NOT_YET = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.NOT_LEADER_FOR_PARTITION)


class Kept(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


Kafka = ZooKeeperKafka | KRaftKafka
World = dict[tuple[str, int], list[Kept]]


class Kafkalite:
    """`kafkalite serve` on the directories, in a process of its own."""

    def __init__(self, home: Path, data_dirs: list[Path]) -> None:
        self.log_path = home / "kafkalite.out"
        self.data_dirs = ",".join(map(str, data_dirs))
        self.bootstrap = ""
        self.said = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """With `options`: those of `kafkalite serve`. Without: it takes the directories over, on any free port."""
        options = options or ("--port", "0", "--adopt", self.data_dirs)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", "serve", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        process = self._process

        def ready() -> re.Match[str] | None:
            self.said = self.log_path.read_text(errors="replace")
            assert process.poll() is None, f"kafkalite ended with code {process.returncode}: {self.said}"
            return READY.search(self.said)

        self.bootstrap = f"127.0.0.1:{until(ready, 'kafkalite to be ready')[1]}"

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            assert process.wait(SECONDS) == 0, self.log_path.read_text()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()


# what clients do


def administer(bootstrap: str, deed: str, *arguments: Any) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in getattr(admin, deed)(*arguments).values():
        done.result(SECONDS)


def produce(bootstrap: str, author: str, count: int = 60) -> None:
    """Records with keys, headers and empty values, in every codec, and some for the compacted topic."""
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(count):
            value = None if number % 20 == 19 else f"{author} {codec} {number} ".encode() * (number % 7)
            producer.produce("orders", value, f"{author}-{number}", headers=[("by", author.encode()), ("n", b"")])
            producer.produce("compacted", value, f"key-{number % 5}")
        assert producer.flush(SECONDS) == 0


def transact(bootstrap: str, author: str) -> None:
    """Two transactions that are committed and one that is not."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    producer.init_transactions(SECONDS)
    for number, end in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
    ):
        producer.begin_transaction()
        for each in range(3):
            producer.produce("paid", f"{author} {number} {each}")
        producer.flush(SECONDS)  # an abort before the first record has left finds no transaction
        end(SECONDS)


def committed_paid(bootstrap: str) -> list[str]:
    """The records of the transactions, read with read_committed."""
    found = read(bootstrap, [("paid", 0)], isolation="read_committed")
    return [(one.value or b"").decode() for one in found["paid", 0]]


def commit(bootstrap: str, group: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition("orders", partition, offset, metadata="m") for partition, offset in offsets.items()]

    def committed() -> bool:
        try:
            return all(not one.error for one in consumer.commit(offsets=places, asynchronous=False) or ())
        except KafkaException:  # the coordinator is still loading
            return False

    until(committed, "a commit")
    consumer.close()


def commits(bootstrap: str, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(SECONDS).topic_partitions
    return {(one.topic, one.partition): (one.offset, one.metadata) for one in found}


def partitions(bootstrap: str) -> list[tuple[str, int]]:
    """All partitions, as soon as each has a leader: a Kafka that has just started finds them one by one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def led() -> list[tuple[str, int]]:
        topics = admin.list_topics(timeout=SECONDS).topics
        found = [(name, index, one.leader) for name, topic in topics.items() for index, one in topic.partitions.items()]
        return sorted((name, index) for name, index, _ in found) if all(leader >= 0 for _, _, leader in found) else []

    return until(led, "every partition to have a leader")


def read(bootstrap: str, where: list[tuple[str, int]], isolation: str = "read_uncommitted") -> World:
    """Everything, from the first record to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    world: World = {place: [] for place in where}
    starts = {place: consumer.get_watermark_offsets(TopicPartition(*place), SECONDS)[0] for place in where}
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    open_places = set(where)
    while open_places:
        message = consumer.poll(SECONDS)
        assert message is not None, f"nothing more comes of {open_places}"
        place = message.topic(), message.partition()
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            open_places.discard(place)
            continue
        world[place].append(
            Kept(message.offset(), message.timestamp(), message.key(), message.value(), message.headers() or [])
        )
    consumer.close()
    return world


def everything(bootstrap: str) -> World:
    """Of all partitions that there are. Kafka lists a topic for a moment after it was deleted, and a leader for a
    moment before it leads."""

    def seen() -> World | None:
        try:
            return read(bootstrap, partitions(bootstrap))
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return None

    return until(seen, "every partition that is listed to be there")


def fill(kafka: Kafka) -> None:
    """A Kafka's life: topics with settings of their own, records of every kind, transactions, groups."""
    topics = [
        NewTopic("orders", 3, 1, config={"segment.bytes": "16384", "retention.ms": "-1"}),
        NewTopic("compacted", 2, 1, config={"cleanup.policy": "compact"}),
        NewTopic("paid", 1, 1),
        NewTopic("empty", 2, 1),
    ]
    administer(kafka.bootstrap, "create_topics", topics)
    produce(kafka.bootstrap, "kafka")
    transact(kafka.bootstrap, "kafka")
    commit(kafka.bootstrap, "readers", {0: 11, 1: 22, 2: 33})


def ends(world: World) -> dict[tuple[str, int], int]:
    return {place: kept[-1].offset + 1 if kept else 0 for place, kept in world.items()}


def assert_continues(before: World, after: World) -> None:
    """Nothing is missing, changed or moved, and what is new stands behind it."""
    for place, kept in before.items():
        assert after[place][: len(kept)] == kept, place


def without_internals(world: World) -> World:
    return {place: kept for place, kept in world.items() if not place[0].startswith("__")}


def leave(broker: Kafka | Kafkalite, how: str) -> None:
    broker.kill() if how == "kill" else broker.stop()
