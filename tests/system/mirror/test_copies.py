"""Topics of one cluster at another: the same records, partitions, settings, and nothing that is not committed."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalite.testing import Broker
from tests.support.wait import until
from tests.system.mirror.conftest import Clusters

COMMITTED: Any = {"isolation": "read_committed"}


def content(broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    """The records that a consumer of committed ones sees, without their offsets, partition by partition."""
    return [
        (one.partition, one.timestamp, one.key, one.value, one.headers)
        for one in sorted(broker.records(topic, **COMMITTED), key=lambda each: (each.partition, each.offset))
    ]


def await_copy(clusters: Clusters, topic: str, copy: str = "") -> None:
    copy = copy or f"west.{topic}"
    wanted = content(clusters.west, topic)
    until(lambda: copy in clusters.east.topics and content(clusters.east, copy) == wanted, f"{len(wanted)} records")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_the_same(clusters: Clusters, codec: str) -> None:
    clusters.west.create_topic("orders", partitions=3)
    producer = Producer(
        {"bootstrap.servers": clusters.west.bootstrap_servers, "compression.type": codec, "linger.ms": 2}
    )
    mirror = clusters.start()
    for number in range(2000):
        producer.produce(
            "orders",
            b"value %d" % number if number % 7 else None,
            b"key %d" % (number % 50) if number % 5 else None,
            timestamp=1_700_000_000_000 + number,
            headers=[("a", b"%d" % number), ("b", None)] if number % 3 else None,
        )
        if number % 500 == 0:
            producer.flush()
    producer.flush()
    await_copy(clusters, "orders")
    assert clusters.east.topics["west.orders"] == 3
    until(lambda: sum(one.counts.records for one in mirror.statuses[0].partitions.values()) == 2000, "the counts")
    until(lambda: all(one.counts.lag == 0 for one in mirror.statuses[0].partitions.values()), "no lag")
    assert not mirror.statuses[0].errors


def test_aborted_transactions_are_left_out_and_open_ones_wait(clusters: Clusters) -> None:
    clusters.west.create_topic("orders", partitions=2)
    clusters.start()
    producers = [
        Producer({"bootstrap.servers": clusters.west.bootstrap_servers, "transactional.id": name}) for name in "abc"
    ]
    for producer in producers:
        producer.init_transactions()
    for number in range(12):
        producer = producers[number % 2]
        producer.begin_transaction()
        for each in range(5):
            producer.produce("orders", b"%d/%d" % (number, each), partition=each % 2)
        producer.flush()
        if number % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    await_copy(clusters, "orders")
    assert len(content(clusters.east, "west.orders")) == 40
    producers[2].begin_transaction()
    producers[2].produce("orders", b"open", partition=0)
    producers[2].flush()
    clusters.west.produce("orders", b"behind it", partition=0)
    clusters.west.produce("orders", b"beside it", partition=1)
    await_copy(clusters, "orders")
    assert content(clusters.east, "west.orders")[-1][3] == b"beside it"
    producers[2].commit_transaction()
    await_copy(clusters, "orders")
    assert {b"open", b"behind it"} < {one[3] for one in content(clusters.east, "west.orders")}


def test_a_compacted_topic(clusters: Clusters) -> None:
    clusters.west.create_topic("table", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    producer = Producer({"bootstrap.servers": clusters.west.bootstrap_servers, "linger.ms": 50})
    for number in range(900):
        producer.produce("table", b"%d" % number, b"k%d" % (number % 100 if number % 7 else number))
    producer.flush()
    clusters.west.roll("table")
    clusters.west.compact("table")
    assert len(content(clusters.west, "table")) < 900
    clusters.start()
    await_copy(clusters, "table")


def test_times_of_appends_are_kept(clusters: Clusters) -> None:
    clusters.west.create_topic("log", message_timestamp_type="LogAppendTime")
    for number in range(20):
        clusters.west.produce("log", b"%d" % number, timestamp=5)
    clusters.start()
    await_copy(clusters, "log")


def test_a_source_whose_first_records_are_deleted(clusters: Clusters) -> None:
    clusters.west.create_topic("orders", segment_bytes=1000, retention_bytes=2000)
    for number in range(100):
        clusters.west.produce("orders", b"%0100d" % number)
    clusters.west.expire()
    assert clusters.west.records("orders")[0].offset > 0
    clusters.start()
    await_copy(clusters, "orders")


def test_new_topics_and_partitions_and_settings_are_followed(clusters: Clusters) -> None:
    clusters.start(topics=clusters.matching("orders.*"))
    clusters.west.create_topic("orders", partitions=1, retention_ms=123_456_789, min_insync_replicas=1)
    clusters.west.create_topic("other")
    clusters.west.produce("orders", b"1")
    await_copy(clusters, "orders")
    assert clusters.settings(clusters.east, "west.orders") == {"retention.ms": "123456789"}
    clusters.alter(clusters.west, "orders", {"max.message.bytes": "2000000"}, removed=["retention.ms"])
    until(lambda: clusters.settings(clusters.east, "west.orders") == {"max.message.bytes": "2000000"}, "other settings")
    clusters.add_partitions(clusters.west, "orders", 3)
    clusters.west.produce("orders", b"2", partition=2)
    await_copy(clusters, "orders")
    assert clusters.east.topics["west.orders"] == 3
    clusters.west.create_topic("orders-2")
    clusters.west.produce("orders-2", b"1")
    await_copy(clusters, "orders-2")
    assert "west.other" not in clusters.east.topics


def test_a_mirror_goes_on_where_it_was_stopped(clusters: Clusters) -> None:
    clusters.west.create_topic("orders", partitions=2)
    for turn in range(3):
        mirror = clusters.start()
        for number in range(10):
            clusters.west.produce("orders", b"%d/%d" % (turn, number))
        await_copy(clusters, "orders")
        clusters.west.produce(f"new-{turn}", b"1")
        await_copy(clusters, f"new-{turn}")
        clusters.stop(mirror)
        clusters.west.produce("orders", b"while it is away")


def test_a_topic_with_records_of_others_is_left_alone(clusters: Clusters) -> None:
    clusters.west.produce("orders", b"1")
    clusters.east.produce("west.orders", b"of somebody else")
    clusters.west.produce("stock", b"1")
    mirror = clusters.start()
    await_copy(clusters, "stock")
    assert "has records, and no progress" in mirror.statuses[0].faults()[0]
    assert [one.value for one in clusters.east.records("west.orders")] == [b"of somebody else"]


def test_a_copy_that_is_deleted_begins_again(clusters: Clusters) -> None:
    clusters.west.produce("orders", b"1")
    clusters.east.produce("west.orders", b"of somebody else")
    mirror = clusters.start()
    until(lambda: mirror.statuses[0].faults(), "a fault")
    clusters.east.delete_topic("west.orders")
    await_copy(clusters, "orders")


@pytest.mark.parametrize("keeps_names", [False, True])
def test_two_mirrors_make_no_loop(clusters: Clusters, keeps_names: bool) -> None:
    clusters.start(keeps_names=keeps_names)
    clusters.start_back(keeps_names=keeps_names)
    clusters.west.produce("of-west", b"1")
    clusters.east.produce("of-east", b"2")
    there, back = ("of-west", "of-east") if keeps_names else ("west.of-west", "east.of-east")
    await_copy(clusters, "of-west", there)
    until(lambda: back in clusters.west.topics and len(clusters.west.records(back)) >= 1, "the copy in the west")
    for number in range(5):
        clusters.west.produce("of-west", b"more %d" % number)
        await_copy(clusters, "of-west", there)
    own = {"of-west", "of-east", there, back}
    for broker in (clusters.west, clusters.east):
        topics = {one for one in broker.topics if not one.startswith(("__", "mm2")) and "heart" not in one}
        assert {one for one in topics if not one.endswith("internal")} == own & topics
        assert len(content(broker, "of-west" if "of-west" in topics else there)) == 6


def test_several_processes_share_the_partitions(clusters: Clusters) -> None:
    clusters.west.create_topic("orders", partitions=6)
    mirrors = [clusters.start(instance=name, session_timeout_ms=6000) for name in "abc"]
    until(lambda: [len(one.statuses[0].partitions) for one in mirrors] == [2, 2, 2], "two partitions for each")
    for number in range(60):
        clusters.west.produce("orders", b"%d" % number, partition=number % 6)
    await_copy(clusters, "orders")
    clusters.stop(mirrors[0])
    until(lambda: [len(one.statuses[0].partitions) for one in mirrors[1:]] == [3, 3], "three for each that is left")
    for number in range(60):
        clusters.west.produce("orders", b"more %d" % number, partition=number % 6)
    await_copy(clusters, "orders")


def committed(broker: Broker, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], 10)
    consumer.close()
    return [one.offset for one in found]


def test_a_consumer_moves_over_and_reads_on(clusters: Clusters) -> None:
    clusters.west.create_topic("orders", partitions=2)
    clusters.start()
    producer = Producer({"bootstrap.servers": clusters.west.bootstrap_servers, "transactional.id": "p"})
    producer.init_transactions()
    for number in range(20):  # markers on both sides, at other offsets
        producer.begin_transaction()
        for each in range(5):
            producer.produce("orders", b"%d" % (number * 5 + each), partition=each % 2)
        producer.commit_transaction()
        await_copy(clusters, "orders")
    settings = {"group.id": "app", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings, "bootstrap.servers": clusters.west.bootstrap_servers})
    consumer.subscribe(["orders"])
    read = []
    until(lambda: read.extend(consumer.consume(7, 0.1)) or len(read) >= 42, "records in the west")
    consumer.commit(asynchronous=False)
    consumer.close()
    here = committed(clusters.west, "app", "orders", 2)

    def follows() -> bool:
        there = committed(clusters.east, "app", "west.orders", 2)
        return all((source >= 0) == (target >= 0) for source, target in zip(here, there, strict=True))

    until(follows, "translated offsets")
    moved = Consumer({**settings, "bootstrap.servers": clusters.east.bootstrap_servers})
    moved.subscribe(["west.orders"])
    until(lambda: read.extend(moved.consume(100, 0.1)) or len(read) >= 100, "the other records in the east")
    read.extend(moved.consume(1, 1))
    moved.close()
    assert sorted(int(one.value()) for one in read) == list(range(100))
