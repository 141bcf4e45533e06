"""Apache Kafka's kafka-dump-log over everything that kafkalite writes, and proof that the judge is awake."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.interop.java_dump_log import VERSION, Verdict, files_of, judge, weigh
from tests.support.wait import DEADLINE_S

ECOSYSTEM = "Apache Kafka"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 400  # of each codec
BROKER_SETTINGS = {"log.retention.ms": "-1"}  # the records are from 2023


def test_what_the_tool_prints_is_understood() -> None:
    verdict = Verdict()
    weigh(
        [
            "Dumping /data/a-0/00000000000000000000.log\n",
            "Log starting offset: 0\n",
            "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 crc: 7 isvalid: true\n",
            "| offset: 0 CreateTime: 1 keySize: -1 valueSize: 9 headerKeys: [] payload: exception\n",
            "| offset: 1 CreateTime: 1 keySize: -1 valueSize: 8 headerKeys: [] payload: mismatch\n",
            "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: -1 crc: 7 isvalid: false\n",
            "/data/a-0/00000000000000000000.index passed sanity check.\n",
            "Found timestamp mismatch in :/data/a-0/00000000000000000000.timeindex\n",
        ],
        ["Mismatches in :/data/a-0/00000000000000000000.index\n", "\n"],
        verdict,
    )
    assert (verdict.batch_count, verdict.record_count) == (2, 2), "what a record says is not what the tool says"
    assert [fault.split()[0] for fault in verdict.faults] == ["baseOffset:", "Found", "Mismatches"]


def fill(bootstrap: str) -> dict[str, int]:
    """Topics of many kinds; the records of each."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    small = {"segment.bytes": "16384", "index.interval.bytes": "512"}
    kinds: dict[str, dict[str, str]] = {
        "rolled": small,
        "dense": {"index.interval.bytes": "0"},
        "stamped": {"message.timestamp.type": "LogAppendTime", **small},
        "recompressed": {"compression.type": "zstd"},
        "cut-short": small,
    }
    for future in admin.create_topics(
        [NewTopic(topic, 2, 1, config=config) for topic, config in kinds.items()]
    ).values():
        future.result(DEADLINE_S)
    for codec in CODECS:
        # few records in a batch: many entries in the indexes
        settings = {"compression.type": codec, "enable.idempotence": codec != "gzip", "batch.num.messages": 7}
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **settings})
        for number in range(RECORDS):
            # times go up and down: a time index has only the new highest
            time_ms = 1_700_000_000_000 + (number * 7919) % 1000 * 1000
            for topic in kinds:
                key = None if number % 3 else str(number).encode()
                value = None if number % 11 == 0 else b"v" * (number % 300)
                headers = [("codec", codec.encode()), ("none", None)]
                producer.produce(topic, value, key, partition=number % 2, timestamp=time_ms, headers=headers)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
    admin.delete_records([TopicPartition("cut-short", 0, 700)])[TopicPartition("cut-short", 0)].result(DEADLINE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(list(kinds))
    seen = 0
    while seen < 100:
        seen += len(consumer.consume(100, 30))
    consumer.commit(asynchronous=False)
    consumer.close()
    return dict.fromkeys(kinds, RECORDS * len(CODECS)) | {"ledger": transact(bootstrap)}


def transact(bootstrap: str) -> int:
    """Transactions that end either way, and one that is left open; the number of records, with the markers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("ledger", 1, 1, config={"segment.bytes": "2000"})])["ledger"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments", "compression.type": "lz4"})
    producer.init_transactions(DEADLINE_S)
    for number in range(31):
        producer.begin_transaction()
        for each in range(5):
            producer.produce("ledger", f"{number} {each}" * 9)
        assert producer.flush(DEADLINE_S) == 0
        if number < 30:
            end = producer.abort_transaction if number % 3 == 0 else producer.commit_transaction
            end(DEADLINE_S)
    return 31 * 5 + 30


@pytest.mark.long
@pytest.mark.timeout(600)
def test_everything_that_is_written_is_accepted_and_damage_is_not(
    broker: Any, proved: Callable[..., None], tmp_path: Path
) -> None:
    proved(
        "kafka-dump-log",
        VERSION,
        "rolled segments, dense indexes, all codecs, idempotence, LogAppendTime, recompression, deleted records, "
        "groups, transactions, kill -9: all accepted; damage done on purpose: found",
    )
    told = fill(broker.bootstrap)
    broker.kill()
    broker.start()  # recovery rebuilds what was not flushed
    broker.stop()
    verdict = judge(broker.data_dir)
    assert not verdict.faults, "\n".join(verdict.faults[:30])
    suffixes = {path.suffix for path in files_of(broker.data_dir)}
    assert {".log", ".index", ".timeindex", ".snapshot", ".txnindex"} <= suffixes
    deleted = told["cut-short"] // 2 - records_left(broker.data_dir / "cut-short-0")
    of_coordinators = verdict.group_record_count + verdict.transaction_record_count
    assert verdict.record_count == sum(told.values()) - deleted + of_coordinators
    assert 0 < deleted <= 700
    assert verdict.group_record_count > 0 and verdict.transaction_record_count > 60

    for name, damage in (("log", flip_last_byte), ("index", bend_first_entry), ("timeindex", bend_first_entry)):
        copy = tmp_path / f"damaged-{name}"
        shutil.copytree(broker.data_dir / "rolled-0", copy / "rolled-0")
        damage(min((copy / "rolled-0").glob(f"*.{name}")))
        assert judge(copy).faults, f"a damaged {name} went unnoticed"


def records_left(directory: Path) -> int:
    """The content of a partition's files, by their names: from the first segment's base to the end."""
    from kafkalite.record.batch import iter_batches

    count = 0
    for segment in directory.glob("*.log"):
        count += sum(header.record_count for header, _ in iter_batches(memoryview(bytearray(segment.read_bytes()))))
    return count


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def bend_first_entry(path: Path) -> None:
    """The position of an index entry, the offset of a time index entry: one byte more than is true."""
    data = bytearray(path.read_bytes())
    entry_bytes = 8 if path.suffix == ".index" else 12
    data[entry_bytes - 1] ^= 1
    path.write_bytes(data)
