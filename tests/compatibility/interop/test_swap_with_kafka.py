"""One set of data directories, two brokers in turn: Apache Kafka (with ZooKeeper or KRaft), kafkalite, and Kafka again.

What one wrote the other serves, record for record, to a stock client; commits, transactions and topic ids go through
unharmed; and each goes on writing where the other stopped, or was killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from bench.reference.jars import ReferenceUnavailable
from tests.compatibility.interop.conftest import READY, ROOT, until
from tests.compatibility.interop.kraft_kafka import KRaftKafka, kraft_kafka
from tests.compatibility.interop.zookeeper_kafka import VERSION, ZooKeeperKafka, zookeeper_kafka

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
BROKER_ID = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 30.0


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


@pytest.fixture
def data_dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture(params=["zookeeper", "kraft"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path, data_dirs: list[Path]) -> Iterator[Kafka]:
    home = tmp_path / "kafka"
    try:
        with (
            kraft_kafka(home, data_dirs, node_id=BROKER_ID)
            if request.param == "kraft"
            else zookeeper_kafka(home, data_dirs, broker_id=BROKER_ID)
        ) as kafka:
            yield kafka
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def kafkalite(tmp_path: Path, data_dirs: list[Path]) -> Iterator[Kafkalite]:
    kafkalite = Kafkalite(tmp_path, data_dirs)
    yield kafkalite
    kafkalite.kill()


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
    """What a reader of committed records sees of the transactions."""
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
    """Those there are, as soon as all have their leader: a Kafka that has just started finds them one by one."""
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
    """Of all partitions that there are; Kafka lists a topic for a moment after it was deleted."""

    def seen() -> World | None:
        try:
            return read(bootstrap, partitions(bootstrap))
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
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


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_each_goes_on_where_the_other_ended(
    kafka: Kafka, kafkalite: Kafkalite, data_dirs: list[Path], how: str, proved: Any
) -> None:
    mode = "KRaft" if isinstance(kafka, KRaftKafka) else "ZooKeeper"
    proved("Apache Kafka", VERSION, f"data directories there and back with kafkalite, {mode}, after a {how} of either")
    kafka.start()
    fill(kafka)
    kafkas = everything(kafka.bootstrap)
    paid = committed_paid(kafka.bootstrap)
    leave(kafka, how)
    identities = [(path / "meta.properties").read_text() for path in data_dirs]

    kafkalite.start()
    assert re.search(r"taken over: 6 topics with 15 partitions", kafkalite.said)
    assert "the defaults of this broker hold" in kafkalite.said and "stay compacted" in kafkalite.said
    seen = everything(kafkalite.bootstrap)
    assert seen == kafkas
    assert commits(kafkalite.bootstrap, "readers") == {("orders", p): (11 * (p + 1), "m") for p in range(3)}
    produce(kafkalite.bootstrap, "kafkalite")
    commit(kafkalite.bootstrap, "readers", {0: 44})
    commit(kafkalite.bootstrap, "others", {2: 5})
    ours = everything(kafkalite.bootstrap)
    assert_continues(kafkas, ours)
    assert sum(map(len, without_internals(ours).values())) == sum(map(len, without_internals(kafkas).values())) + 600
    leave(kafkalite, how)
    assert [(path / "meta.properties").read_text() for path in data_dirs] == identities

    kafka.start()
    theirs = without_internals(everything(kafka.bootstrap))
    assert theirs == without_internals(ours)
    assert commits(kafka.bootstrap, "readers") == {
        ("orders", 0): (44, "m"), ("orders", 1): (22, "m"), ("orders", 2): (33, "m"),
    }  # fmt: skip
    assert commits(kafka.bootstrap, "others") == {("orders", 2): (5, "m")}
    assert committed_paid(kafka.bootstrap) == paid
    transact(kafka.bootstrap, "kafka again")  # the same transactional id: its state went through
    produce(kafka.bootstrap, "kafka again")
    administer(kafka.bootstrap, "create_topics", [NewTopic("meanwhile", 2, 1)])
    administer(kafka.bootstrap, "create_partitions", [NewPartitions("empty", 4)])
    administer(kafka.bootstrap, "delete_topics", ["compacted"])
    last = everything(kafka.bootstrap)
    leave(kafka, how)

    # who stopped in order here last is seen without being told
    if how == "stop":
        kafkalite.start("--port", "0", "--data-dir", kafkalite.data_dirs, "--override", f"broker.id={BROKER_ID}")
    else:
        kafkalite.start()
    assert "forgotten, for they are not there any more: compacted" in kafkalite.said
    assert without_internals(everything(kafkalite.bootstrap)) == without_internals(last)
    assert [p for p in partitions(kafkalite.bootstrap) if p[0] == "empty"] == [("empty", p) for p in range(4)]
    kafkalite.stop()
    assert not [name for path in data_dirs for name in os.listdir(path) if name.endswith("-stray")]


def test_a_kafka_on_what_kafkalite_began(kafka: Kafka, kafkalite: Kafkalite, data_dirs: list[Path]) -> None:
    """Kafka must know of the topics in its ZooKeeper; the directories may have been rolled, cut and cleaned by us."""
    kafka.start()
    fill(kafka)
    kafka.stop()
    kafkalite.start("--port", "0", "--adopt", kafkalite.data_dirs, "--override", "log.segment.bytes=4096")
    produce(kafkalite.bootstrap, "kafkalite", 200)
    administer(kafkalite.bootstrap, "delete_records", [TopicPartition("orders", 1, 150)])
    ours = without_internals(everything(kafkalite.bootstrap))
    assert ours["orders", 1][0].offset == 150
    kafkalite.stop()
    assert len(list(data_dirs[0].parent.glob("*/orders-*/*.log"))) > 6
    kafka.start()
    assert without_internals(everything(kafka.bootstrap)) == ours
    kafka.kill()
    kafka.start()
    assert without_internals(everything(kafka.bootstrap)) == ours


def test_topics_that_were_made_here_come_to_no_harm_with_kafka(kafka: Kafka, kafkalite: Kafkalite) -> None:
    """It does not know them, and does not serve them; with KRaft it even sets them aside. What they hold is there when
    kafkalite is back."""
    kafka.start()
    administer(kafka.bootstrap, "create_topics", [NewTopic("orders", 3, 1)])
    kafka.stop()
    kafkalite.start()
    administer(kafkalite.bootstrap, "create_topics", [NewTopic("ours", 2, 1), NewTopic("compacted", 1, 1)])
    produce(kafkalite.bootstrap, "kafkalite")
    ours = without_internals(everything(kafkalite.bootstrap))
    kafkalite.stop()
    kafka.start()
    assert without_internals(everything(kafka.bootstrap)).keys() == {("orders", 0), ("orders", 1), ("orders", 2)}
    kafka.stop()
    kafkalite.start("--port", "0", "--data-dir", kafkalite.data_dirs, "--override", f"broker.id={BROKER_ID}")
    assert without_internals(everything(kafkalite.bootstrap)) == ours
    kafkalite.stop()
