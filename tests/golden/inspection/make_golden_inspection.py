"""Makes the golden directories of this folder: `python -m make_golden_inspection [3_9] [2_7] [kafkalite]`.

Two real Apache Kafkas are filled and stopped in good order: a 3.9.1 with KRaft (all codecs, transactions that commit
and abort, compaction, deleted records, groups) and a 2.7.2 with ZooKeeper (message formats v0, v1 and v2). What
kafka-dump-log 3.9.1 says of their files in each of its forms is stored beside them, so that the comparison also runs
where there is no Java.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.reference import class_path, reference_kafka
from bench.reference.jars import java
from bench.reference.kafka import LOG4J, await_ready, free_port, stop
from kafkalite import Broker
from tests.support.inspection.dump_oracle import FORMS, files_for, kafka_dump_log

GOLDEN = Path(__file__).parent
TIME_MS = 1_700_000_000_000
ALWAYS = {"segment.index.bytes": "1200", "retention.ms": "-1"}  # the records are of 2023
KEPT = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()} | ALWAYS
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def producer(bootstrap: str, **settings: object) -> Producer:
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000, **chosen})


def fill_codecs(bootstrap: str) -> None:
    create(bootstrap, "codecs")
    for at, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        sender = producer(bootstrap, compression_type=codec, enable_idempotence=bool(at % 2))
        for number in range(12):
            sender.produce(
                "codecs",
                None if number == 3 else f"value {number} \u00e9\u4e2d\U0001f600".encode() + b"\xff\xc3" * (number % 2),
                None if number % 3 == 0 else f"key {number}".encode(),
                timestamp=TIME_MS + (number * 7919) % 1000,
                headers=[("codec", codec.encode()), ("none", None)] if number % 4 == 0 else None,
            )
            if number == 6:
                sender.flush(30)
        sender.flush(30)


def fill_rolled(bootstrap: str) -> None:
    small = {"segment_bytes": "2048", "index_interval_bytes": "100"}
    create(bootstrap, "rolled", 2, **small)
    create(bootstrap, "stamped", message_timestamp_type="LogAppendTime", **small)
    sender = producer(bootstrap, enable_idempotence=True)
    for number in range(60):
        for topic, partition in (("rolled", number % 2), ("stamped", 0)):
            sender.produce(
                topic,
                b"v" * (number * 37 % 200),
                str(number).encode(),
                partition,
                timestamp=TIME_MS + (number * 7919) % 1000,
            )
        if number % 3 == 2:
            sender.flush(30)
    sender.flush(30)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cut = TopicPartition("rolled", 1, 10)
    admin.delete_records([cut])[cut].result(30)


def fill_transactions(bootstrap: str) -> None:
    create(bootstrap, "money", segment_bytes="1500", index_interval_bytes="100")
    for name in ("anna", "bert"):
        sender = producer(bootstrap, transactional_id=name)
        sender.init_transactions(60)
        for number in range(6):
            sender.begin_transaction()
            for part in range(4):
                sender.produce("money", f"{name} {number}.{part}".encode(), name.encode(), timestamp=TIME_MS + number)
            sender.flush(30)
            if number == 4 and name == "bert":
                reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bank", "client.id": "teller"})
                reader.subscribe(["money"])
                reader.poll(5)
                sender.send_offsets_to_transaction(
                    [TopicPartition("money", 0, 7)], reader.consumer_group_metadata(), 30
                )
                reader.close()
            if number % 3 == 1:
                sender.abort_transaction(30)
            else:
                sender.commit_transaction(30)
    left_open = producer(bootstrap, transactional_id="carl", transaction_timeout_ms=900_000)
    left_open.init_transactions(60)
    left_open.begin_transaction()
    left_open.produce("money", b"never decided", b"carl", timestamp=TIME_MS)
    left_open.flush(30)
    OPEN.append(left_open)  # a producer that is collected aborts its transaction


OPEN: list[Producer] = []


def fill_compacted(bootstrap: str, data_dir: Path) -> None:
    create(
        bootstrap, "profiles", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="600000", index_interval_bytes="100",
    )  # fmt: skip
    for round_number in range(4):
        sender = producer(bootstrap, enable_idempotence=True, compression_type=("none", "lz4")[round_number % 2])
        for number in range(10):
            value = None if number == 5 and round_number == 2 else f"round {round_number}".encode() * 3
            key = str(number if round_number else number % 2).encode()
            sender.produce("profiles", value, key, timestamp=int(time.time() * 1000))
        sender.flush(30)
        time.sleep(0.3)
    first = data_dir / "profiles-0" / f"{0:020d}.log"
    deadline = time.monotonic() + 60
    size = first.stat().st_size
    while first.exists() and first.stat().st_size >= size and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(2)


def fill_groups(bootstrap: str) -> None:
    for group, topics in (("readers", ["rolled", "codecs"]), ("others \u00e9", ["stamped"])):
        reader = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "client.id": f"client-{group[:3]}",
             "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )  # fmt: skip
        reader.subscribe(topics)
        assert reader.consume(20, 30)
        reader.commit(asynchronous=False)
        if group == "readers":
            reader.commit(offsets=[TopicPartition("codecs", 0, 3, 'a "note" \u4e2d')], asynchronous=False)
        reader.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_consumer_groups(["others \u00e9"]).values():
        future.result(30)


def make_3_9() -> None:
    properties = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.backoff.ms": "200",
        "log.index.size.max.bytes": "1200",
        "log.segment.delete.delay.ms": "100",
        "transaction.max.timeout.ms": "900000",
    }
    home = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        with reference_kafka("3.9.1", properties=properties, home=home) as kafka:
            fill_codecs(kafka.bootstrap)
            fill_rolled(kafka.bootstrap)
            fill_groups(kafka.bootstrap)
            fill_transactions(kafka.bootstrap)
            fill_compacted(kafka.bootstrap, kafka.data_dir)
            time.sleep(3)
        keep(home / "data", GOLDEN / "kafka-3.9.1")
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def old_kafka(home: Path) -> Iterator[str]:
    """Kafka 2.7.2 beside the ZooKeeper that its jars bring; yields its address, and is stopped in good order."""
    port, zk_port = free_port(), free_port()
    (home / "zk.properties").write_text(f"dataDir={home}/zk\nclientPort={zk_port}\nadmin.enableServer=false\n")
    (home / "log4j.properties").write_text(LOG4J)
    settings = {
        "broker.id": "3",
        "zookeeper.connect": f"127.0.0.1:{zk_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(home / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "log.index.size.max.bytes": "1200",
        "zookeeper.connection.timeout.ms": "60000",
        "group.initial.rebalance.delay.ms": "0",
    }
    (home / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    base = [java(), "-Xmx512m", f"-Dlog4j.configuration=file:{home}/log4j.properties", "-cp", class_path("2.7.2")]
    running = []
    try:
        for main_class, argument in (
            ("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zk.properties"),
            ("kafka.Kafka", "server.properties"),
        ):
            with (home / f"{main_class}.out").open("wb") as sink:
                running.append(
                    subprocess.Popen([*base, main_class, str(home / argument)], stdout=sink, stderr=subprocess.STDOUT)
                )
        await_ready(f"127.0.0.1:{port}", running[-1], home / "kafka.Kafka.out")
        yield f"127.0.0.1:{port}"
    finally:
        for process in reversed(running):
            stop(process)


def make_2_7() -> None:
    home = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        with old_kafka(home) as bootstrap:
            for topic, version in (("ancient", "0.9.0"), ("old", "0.10.2"), ("new", "2.7")):
                create(
                    bootstrap, topic, message_format_version=version, index_interval_bytes="100", segment_bytes="2048"
                )
                for codec in ("none", "gzip", "snappy", "lz4"):
                    sender = producer(bootstrap, compression_type=codec, linger_ms=500)
                    for number in range(9):
                        sender.produce(
                            topic,
                            None if number == 7 else f"{codec} {number}".encode() * (1 + number % 5),
                            None if number % 4 == 0 else b"key %d" % number,
                            timestamp=TIME_MS + (number * 7919) % 100,
                        )
                        if number % 4 == 3:
                            sender.flush(30)
                    sender.flush(30)
            create(bootstrap, "old-stamped", message_format_version="0.10.2", message_timestamp_type="LogAppendTime")
            for codec in ("none", "gzip"):
                sender = producer(bootstrap, compression_type=codec, linger_ms=500)
                for number in range(5):
                    sender.produce("old-stamped", b"value %d" % number, b"key", timestamp=TIME_MS + number)
                sender.flush(30)
            time.sleep(2)
        keep(home / "data", GOLDEN / "kafka-2.7.2")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def make_kafkalite() -> None:
    """The files that kafkalite itself leaves: the same but for transactions and compaction."""
    home = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        settings = {"offsets_topic_num_partitions": 1, "log_index_size_max_bytes": 1200}
        with Broker(data_dir=home / "data", port=0, **settings) as broker:
            fill_codecs(broker.bootstrap_servers)
            fill_rolled(broker.bootstrap_servers)
            fill_groups(broker.bootstrap_servers)
        keep(home / "data", GOLDEN / "kafkalite")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def keep(data_dir: Path, target: Path) -> None:
    """The data directory as it was left, without locks, and what kafka-dump-log says of it."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(data_dir, target, ignore=shutil.ignore_patterns(".lock", "*.deleted", "*-delete"))
    store(target)


def store(target: Path) -> None:
    """The output of kafka-dump-log for the files below `target`, in each form."""
    for form, options in FORMS.items():
        if form == "deep":  # all in it is in "data" too
            continue
        files = files_for(target, form)
        if not files:
            continue
        said = kafka_dump_log(target, options, files)
        for name, text in (("out", said.printed), ("err", said.complained)):
            target.with_name(f"{target.name}.{form}.{name}").write_text(text)


MAKERS: tuple[Callable[[], None], ...] = (make_3_9, make_2_7, make_kafkalite)

if __name__ == "__main__":
    for maker in MAKERS:
        if not sys.argv[1:] or maker.__name__.removeprefix("make_") in sys.argv[1:]:
            maker()
