"""Exact numbers on the files of a real Apache Kafka, counted by its own tools, and a Kafka that meets our notes.

A Kafka with ZooKeeper writes: transactions that commit and abort, a topic that its cleaner compacts (compressed and
not), records deleted up to the middle of a batch, segments that went by retention. kafkalite counts what it left;
kafka-dump-log shows every record, and a consumer reads them. Then Kafka goes on where kafkalite has left its notes, and
writes, rolls, cleans, deletes: it does not mind them, and what they say of files that were replaced is not believed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.reference.jars import ReferenceUnavailable
from kafkalite.cli.topic_description import from_broker
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import Unanswered
from kafkalite.config.topic_config import TopicConfig
from kafkalite.inspection.count_records import count as count_files
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.record_counts import LogCounts
from kafkalite.log.storage.checkpoint_file import read_offsets
from kafkalite.log.storage.file_names import CLEANER_OFFSETS, LOG_STARTS, RECORD_COUNTS
from kafkalite.log.storage.files import Files
from tests.compatibility.interop.java_tools import java_command, tool_class
from tests.compatibility.interop.zookeeper_kafka import ZooKeeperKafka, zookeeper_kafka
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SMALL = {"segment.bytes": "16384", "file.delete.delay.ms": "100"}
COMPACTED = SMALL | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "0",
    "segment.ms": "1000",
}
TOPICS = {
    "plain": SMALL,
    "transactions": SMALL,
    "compacted": COMPACTED,
    "compacted-zstd": COMPACTED | {"compression.type": "zstd"},
    "compacted-transactions": COMPACTED,
    "old": SMALL | {"retention.ms": "1000", "segment.ms": "1000"},
}
VERSION = "3.9.1"
FILES_MAX = 400  # of one call: the list is one argument
SHOWN = re.compile(r"\| offset: (\d+) ")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ZooKeeperKafka]:
    try:
        with zookeeper_kafka(tmp_path / "home", [tmp_path / "data"]) as kafka:
            kafka.settings |= {
                "log.cleaner.backoff.ms": "200",
                "log.retention.check.interval.ms": "500",
                "log.cleaner.min.compaction.lag.ms": "0",
                "log.initial.task.delay.ms": "500",
            }
            kafka.start()
            yield kafka
    except ReferenceUnavailable as fault:
        pytest.skip(str(fault))


def create_topics(kafka: ZooKeeperKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = admin.create_topics([NewTopic(name, 2, 1, config=config) for name, config in TOPICS.items()])
    for future in made.values():
        future.result(DEADLINE_S)


def produce(kafka: ZooKeeperKafka, topic: str, count: int, *, keys: int, codec: str = "none", first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "compression.type": codec})
    for i in range(count):
        producer.produce(topic, b"%d" % (first + i) * 8, b"k%d" % (i % keys), partition=i % 2)
        if i % 50 == 49:
            producer.flush()
    assert producer.flush(30) == 0


def transact(kafka: ZooKeeperKafka, topic: str, name: str, count: int) -> None:
    """Every third one aborts."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for i in range(1 + number % 7):
            producer.produce(topic, b"%d-%d" % (number, i) * 10, b"k%d" % (i % 5), partition=i % 2)
        producer.flush(30)
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def delete_before(kafka: ZooKeeperKafka, topic: str, offsets: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for future in admin.delete_records(asked).values():
        future.result(DEADLINE_S)


def await_cleaning(kafka: ZooKeeperKafka, topic: str, upto: int) -> None:
    """Until the cleaner has come that far. A record now and then makes the last segment roll, so that it may."""

    def is_clean() -> bool:
        cleaned = read_offsets(Files(), f"{kafka.data_dirs[0]}/{CLEANER_OFFSETS}")
        if all(cleaned.get((topic, partition), 0) >= upto for partition in (0, 1)):
            return True
        produce(kafka, topic, 2, keys=2)
        return False

    until(is_clean, f"{topic} to be cleaned up to {upto}", 120)


def await_retention(kafka: ZooKeeperKafka, topic: str) -> None:
    """Until the first segments are gone."""

    def is_gone() -> bool:
        firsts = [min(kafka.data_dirs[0].glob(f"{topic}-{partition}/*.log")) for partition in (0, 1)]
        return all(int(path.stem) > 0 for path in firsts)

    until(is_gone, f"the first records of {topic} to be gone", 120)


def consumed(kafka: ZooKeeperKafka, topic: str, partition: int) -> int:
    """How many records a consumer finds who reads all, those of aborted transactions too."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "counting",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    count = 0
    while True:
        message = consumer.poll(30)
        assert message is not None, "neither a record nor the end"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return count
        count += 1


def dumped(paths: list[Path]) -> dict[Path, list[tuple[int, bool]]]:
    """(offset, whether it is a marker) of each record in these .log files: kafka-dump-log shows each in a line."""
    tool = [*java_command(VERSION), tool_class(VERSION, "DumpLogSegments")]
    found: dict[Path, list[tuple[int, bool]]] = {path: [] for path in paths}
    for at in range(0, len(paths), FILES_MAX):
        some = ",".join(map(str, paths[at : at + FILES_MAX]))
        done = subprocess.run(
            [*tool, "--print-data-log", "--files", some], capture_output=True, text=True, timeout=300, check=True
        )
        records: list[tuple[int, bool]] = []
        for line in done.stdout.splitlines():
            if line.startswith("Dumping "):
                records = found[Path(line.removeprefix("Dumping "))]
            elif (shown := SHOWN.match(line)) is not None:
                records.append((int(shown[1]), "endTxnMarker" in line))
    return found


def partitions() -> list[tuple[str, int]]:
    return [(topic, partition) for topic in TOPICS for partition in (0, 1)]


def adopted_log(data_dir: Path, topic: str, partition: int) -> PartitionLog:
    """As a kafkalite that takes the directory over."""
    starts = read_offsets(Files(), f"{data_dir}/{LOG_STARTS}")
    options = LoadOptions(clean=True, start_offset=starts.get((topic, partition), 0))
    config = TopicConfig(cleanup_policy=("compact", "delete"))
    services = LogContext(ManualClock(1_700_000_000_000))
    return open_log(topic, partition, f"{data_dir}/{topic}-{partition}", config, options, services)


def check(data_dir: Path) -> dict[tuple[str, int], LogCounts]:
    """Count everything and hold it against kafka-dump-log; leave notes."""
    found = {}
    told = {
        (one.partition.topic, one.partition.partition): one for one in count_files(str(data_dir), TOPICS).partitions
    }
    keys = partitions()
    shown = dumped([path for topic, index in keys for path in sorted((data_dir / f"{topic}-{index}").glob("*.log"))])
    for topic, partition in keys:
        directory = data_dir / f"{topic}-{partition}"
        log = adopted_log(data_dir, topic, partition)
        counts = found[topic, partition] = log.record_counts.current()
        dump = {}
        for path in sorted(directory.glob("*.log")):
            live = [is_marker for offset, is_marker in shown[path] if offset >= log.start_offset]
            dump[int(path.stem)] = (path.stat().st_size, live.count(False), live.count(True))
        assert {one.base_offset: tuple(one[1:]) for one in counts.segments} == dump, (topic, partition)
        ours = told[topic, partition]
        assert {base: (one.bytes, one.live_records, one.control_records) for base, one in ours.segments.items()} == dump
        log.close()
        again = adopted_log(data_dir, topic, partition)
        assert again.record_counts.current() == counts
        again.close()
    return found


def test_kafkas_files_are_counted_to_the_record_and_kafka_does_not_mind_our_notes(kafka: ZooKeeperKafka) -> None:
    data_dir = kafka.data_dirs[0]
    create_topics(kafka)
    with pytest.raises(Unanswered, match="no kafkalite"), BlockingClient(kafka.bootstrap, 30) as client:
        from_broker(client, ["plain"], 30, segments=True)
    produce(kafka, "plain", 3000, keys=3000)
    transact(kafka, "transactions", "t", 120)
    transact(kafka, "compacted-transactions", "u", 120)
    for round_ in range(3):
        produce(kafka, "compacted", 1500, keys=100, first=round_)
        produce(kafka, "compacted-zstd", 1500, keys=70, first=round_, codec="zstd")
        produce(kafka, "old", 500, keys=10, first=round_)
    delete_before(kafka, "plain", {0: 777, 1: 13})
    delete_before(kafka, "transactions", {0: 101})
    await_cleaning(kafka, "compacted", 2000)
    await_cleaning(kafka, "compacted-zstd", 2000)
    await_cleaning(kafka, "compacted-transactions", 200)
    await_retention(kafka, "old")
    kafka.stop()

    first = check(data_dir)
    assert first["plain", 0].live_records == 1500 - 777 and first["plain", 1].live_records == 1500 - 13
    assert first["transactions", 0].control_records and first["compacted-transactions", 1].control_records
    notes = list(data_dir.glob(f"*/{RECORD_COUNTS}"))
    assert len(notes) == sum(counts.size_bytes > 0 for counts in first.values()) >= 10
    kept = {path: path.read_bytes() for path in notes}

    quiet = len(kafka.output.read_text())
    kafka.start()
    for (topic, partition), counts in first.items():
        if topic in ("plain", "transactions"):  # the others may be cleaned on
            assert consumed(kafka, topic, partition) == counts.live_records, (topic, partition)
    produce(kafka, "plain", 1000, keys=10)
    transact(kafka, "transactions", "t", 60)
    for round_ in range(2):
        produce(kafka, "compacted", 1500, keys=120, first=10 + round_)
        produce(kafka, "compacted-zstd", 1500, keys=120, first=10 + round_, codec="zstd")
    delete_before(kafka, "plain", {0: 1234})
    await_cleaning(kafka, "compacted", 3500)
    await_cleaning(kafka, "compacted-zstd", 3500)
    kafka.stop()
    said = kafka.output.read_text()[quiet:]
    assert RECORD_COUNTS not in said
    assert not [line for line in said.splitlines() if " ERROR " in line], said
    for path, data in kept.items():
        assert path.read_bytes() == data, "Kafka changed our notes"

    second = check(data_dir)
    assert second["plain", 0].live_records == 2000 - 1234 and second["plain", 1].live_records == 2000 - 13

    kafka.start()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    until(lambda: set(TOPICS) <= set(admin.list_topics(timeout=DEADLINE_S).topics), "the topics to be known again")
    for future in admin.delete_topics(list(TOPICS)).values():
        future.result(DEADLINE_S)
    until(lambda: not list(data_dir.glob(f"*/{RECORD_COUNTS}")), "the directories to be gone", 90)
    kafka.stop()
