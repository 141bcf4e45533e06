"""Bulk loads of `kafkalite.client.producer` into Apache Kafka, read by librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.reference.jars import ReferenceUnavailable
from bench.reference.kafka import reference_kafka
from kafkalite.client.cluster_client import ClusterClient, Retries
from kafkalite.client.producer.bulk_load import BulkLoad
from kafkalite.client.producer.options import parse_write_options
from kafkalite.client.producer.producer import Producer as BulkProducer
from kafkalite.client.producer.transactions import Identity, Transactions
from tests.support.wait import DEADLINE_S

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

PARTITIONS = 3
ROWS = 9000
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    try:
        with reference_kafka(properties={"num.partitions": str(PARTITIONS)}) as kafka:
            yield kafka.bootstrap
    except ReferenceUnavailable as why:
        pytest.skip(str(why))


def rows() -> Any:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "h", "value": b"%d" % row}] if row % 2 else None for row in range(ROWS)]
    keys = [b"k%d" % row if row % 3 else None for row in range(ROWS)]
    values = pa.array([b"v%d" % row for row in range(ROWS)])
    return pa.record_batch({"key": pa.array(keys), "value": values, "headers": pa.array(headers, header)})


def load(bootstrap: str, identity: Identity | None = None, **options: str) -> None:
    parsed = parse_write_options({"bootstrap.servers": bootstrap, **options})
    cluster = ClusterClient(bootstrap, DEADLINE_S)
    bulk_load = BulkLoad(
        parsed, BulkProducer(parsed.producer, cluster, Retries(DEADLINE_S), identity), chunk_bytes=100_000
    )
    batch = rows()
    for start in range(0, ROWS, 700):
        bulk_load.write(batch.slice(start, 700))
    bulk_load.finish()
    cluster.close()


def read(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> list[Any]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "check.crcs": True}
    consumer = Consumer({**settings, "isolation.level": isolation_level, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[Any] = []
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "the topic ends"
        if message.error():
            ends += 1
        else:
            found.append(message)
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_row_is_there_once(bootstrap: str, codec: str) -> None:
    load(bootstrap, topic=codec, **{"kafka.compression.type": codec})
    found = read(bootstrap, codec)
    assert len(found) == ROWS
    assert {(each.key(), each.value(), tuple(each.headers() or ())) for each in found} == {
        (row["key"], row["value"], tuple((each["key"], each["value"]) for each in row["headers"] or ()))
        for row in rows().to_pylist()
    }


def test_keys_are_in_the_partitions_that_a_producer_of_kafka_chooses(bootstrap: str) -> None:
    load(bootstrap, topic="keys")
    chosen: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for row in range(1, 3000, 3):
        producer.produce(
            "others", b"", b"k%d" % row, on_delivery=lambda _, sent: chosen.update({sent.key(): sent.partition()})
        )
    assert producer.flush(DEADLINE_S) == 0
    found = {each.key(): each.partition() for each in read(bootstrap, "keys")}
    assert len(chosen) == 1000 and {key: found[key] for key in chosen} == chosen


def test_a_transaction_is_ended_by_somebody_else(bootstrap: str) -> None:
    cluster = ClusterClient(bootstrap, DEADLINE_S)
    transactions = Transactions(cluster, Retries(DEADLINE_S))
    for name, commit in (("job-a", True), ("job-b", False)):
        identity = transactions.begin(name, 60_000)
        load(bootstrap, identity, topic="ledger")
        assert transactions.is_ongoing(identity)
        assert transactions.ongoing_with_prefix("job-") == [name]
        transactions.end(identity, commit=commit)
        transactions.end(identity, commit=commit)
    transactions.begin("job-b", 60_000)  # waits until the markers are written
    cluster.close()
    assert len(read(bootstrap, "ledger")) == ROWS
    assert len(read(bootstrap, "ledger", "read_uncommitted")) == 2 * ROWS
