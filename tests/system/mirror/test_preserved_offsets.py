"""Copies with the offsets of their source: a stock consumer reads the same of both, and producers write on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.mirror.mirror import Mirror
from kafkalite.client.mirror.naming import Naming
from kafkalite.client.mirror.settings import Endpoint, MirrorSettings
from kafkalite.client.mirror.state_topics import read_offset_syncs
from kafkalite.testing import Broker, Cluster
from tests.support.reader.stock_consumer import Row, StockConsumer
from tests.support.reader.topic_history import TopicHistory, Writers
from tests.support.wait import DEADLINE_S, until
from tests.system.cluster.served_machine import serving
from tests.system.mirror.audit import checkpoints
from tests.system.mirror.conftest import QUICK, Clusters

_ANSWER_S = 5.0  # librdkafka waits so long for a broker that has come back at another port, and a new consumer does not
COMMITTED: Any = {"isolation": "read_committed"}
WEST, EAST = "orders", "west.orders"


def rows(broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    return [
        (one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
        for one in sorted(broker.records(topic, **COMMITTED), key=lambda each: (each.partition, each.offset))
    ]


def bounds(address: str, topic: str, partitions: int = 1) -> list[tuple[int, int]]:
    consumer = StockConsumer(address, read_committed=True)
    try:
        return [consumer.bounds(topic, index) for index in range(partitions)]
    finally:
        consumer.close()


def await_same(clusters: Clusters, topic: str = WEST, partitions: int = 1) -> None:
    """Until the copy has the same records at the same offsets, and the same end."""
    west, east = clusters.west, clusters.east
    copy = f"west.{topic}"

    def is_same() -> bool:
        if copy not in east.topics or rows(east, copy) != rows(west, topic):
            return False
        here, there = (
            bounds(*one, partitions) for one in ((west.bootstrap_servers, topic), (east.bootstrap_servers, copy))
        )
        return [end for _, end in here] == [end for _, end in there]

    until(is_same, lambda: f"{rows(west, topic)[-3:]} and not {rows(east, copy)[-3:]}")


def transactional(broker: Broker, name: str = "p") -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)
    return producer


def transact(producer: Producer, count: int, *, commits: bool = True, topic: str = WEST) -> None:
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"v%d" % number, b"k%d" % number)
    producer.flush(DEADLINE_S)
    (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(100, 140), marks=pytest.mark.long)])
def test_random_histories_are_the_same_for_a_stock_consumer(tmp_path: Path, seeds: range) -> None:
    """Compaction, transactions, deleted prefixes, every codec, formats v0 to v2, headers, nulls; and more of it while
    the mirror is there."""
    histories = [TopicHistory(seed) for seed in seeds]
    for history in histories:
        history.write_before(tmp_path / "west")
    compared = 0
    with (
        Writers(tmp_path / "west", adopt=True) as writers,
        Broker(data_dir=tmp_path / "east", group_initial_rebalance_delay_ms=0) as east,
    ):
        for history in histories:
            history.create(writers)
            history.live(writers, 40)
            history.leave(writers)
        settings = MirrorSettings(
            Endpoint(east.bootstrap_servers),
            "east",
            preserves_offsets=True,
            **QUICK,  # type: ignore[arg-type]
        )
        begun = {
            (history.topic, index): begin
            for history in histories
            for index, (begin, _) in enumerate(bounds(writers.bootstrap, history.topic, history.partitions))
        }
        mirror = Mirror({"west": Endpoint(writers.bootstrap)}, settings)
        mirror.start()
        until(lambda: {f"west.{history.topic}" for history in histories} <= east.topics.keys(), "the copies")
        here = StockConsumer(writers.bootstrap, read_committed=True)
        there = StockConsumer(east.bootstrap_servers, read_committed=True)
        try:
            for deeds in (0, 15):  # what compaction and deletion do to the source later, they do not do to the copy
                for history in histories:
                    history.live(writers, deeds, ["produce", "raw", "old", "transact", "end", "roll"])
                    history.leave(writers)
                for history in histories:
                    compared += same(here, there, history, begun)
            assert not mirror.statuses[0].faults()
        finally:
            here.close()
            there.close()
            mirror.stop()
    assert compared > 50 * len(seeds)
    print(f"{compared} records of {len(seeds)} topics")


def same(here: StockConsumer, there: StockConsumer, history: TopicHistory, begun: dict[tuple[str, int], int]) -> int:
    """Compares all partitions of a topic when the copy is as long as its source; the number of records."""
    count = 0
    for index in range(history.partitions):
        start, end = here.bounds(history.topic, index)
        copy = f"west.{history.topic}"
        until(lambda: there.bounds(copy, index)[1] == end, lambda: f"{there.bounds(copy, index)} and not {end}")  # noqa: B023
        assert there.bounds(copy, index)[0] == begun[history.topic, index]
        wanted = here.read(history.topic, {index: (start, end)})
        found = there.read(copy, {index: (start, end)})
        assert list(map(_plain, found)) == list(map(_plain, wanted)), f"{history.topic}-{index}"
        count += len(found)
        for row in wanted[:: max(1, len(wanted) // 5)]:
            if row.timestamp >= 0:  # at the source it may be the offset of an aborted record
                first = next(each.offset for each in wanted if each.timestamp >= row.timestamp)
                assert there.first_at(copy, index, row.timestamp) == first
    return count


def _plain(row: Row) -> Row:
    """Without the topic's name. A message of format v0 has no time, and no type of it."""
    return row._replace(topic="", timestampType=row.timestampType if row.timestamp >= 0 else -1)


def test_aborted_transactions_are_gaps_and_the_ends_are_the_same(clusters: Clusters) -> None:
    clusters.west.create_topic(WEST)
    mirror = clusters.start(preserves_offsets=True)
    producer = transactional(clusters.west)
    for number in range(12):
        transact(producer, 3, commits=bool(number % 3))
        if number % 4 == 1:
            await_same(clusters)
    await_same(clusters)
    assert bounds(clusters.east.bootstrap_servers, EAST) == [(0, 48)]
    producer.begin_transaction()
    producer.produce(WEST, b"open")
    producer.flush(DEADLINE_S)
    clusters.west.produce(WEST, b"behind it")
    assert not mirror.statuses[0].faults()
    producer.commit_transaction(DEADLINE_S)
    await_same(clusters)


def test_a_log_without_records_begins_where_its_source_does(clusters: Clusters) -> None:
    clusters.west.create_topic(WEST, segment_bytes=1000, retention_bytes=1500)
    for number in range(60):
        clusters.west.produce(WEST, b"%0100d" % number)
    clusters.west.expire()
    clusters.west.create_topic("gone", segment_bytes=1000, retention_bytes=0)
    for number in range(30):
        clusters.west.produce("gone", b"%0100d" % number)
    clusters.west.roll("gone")
    clusters.west.expire()
    assert bounds(clusters.west.bootstrap_servers, "gone") == [(30, 30)]
    begun = bounds(clusters.west.bootstrap_servers, WEST)
    assert begun[0][0] > 0
    clusters.start(preserves_offsets=True)
    await_same(clusters)
    await_same(clusters, "gone")
    assert bounds(clusters.east.bootstrap_servers, EAST) == begun
    assert bounds(clusters.east.bootstrap_servers, "west.gone") == [(30, 30)]
    clusters.west.produce("gone", b"x")
    await_same(clusters, "gone")


def test_a_mirror_goes_on_where_it_was_and_two_do_no_harm(clusters: Clusters) -> None:
    clusters.west.create_topic(WEST, partitions=2)
    producer = transactional(clusters.west)
    for turn in range(3):
        mirror = clusters.start(preserves_offsets=True)
        other = clusters.start(preserves_offsets=True, name="other")  # another group: both have all partitions
        for number in range(20):
            clusters.west.produce(WEST, b"%d/%d" % (turn, number))
            transact(producer, 2, commits=number % 2 == 0)
        await_same(clusters, partitions=2)
        clusters.stop(mirror)
        clusters.stop(other)
        clusters.west.produce(WEST, b"while it is away")


def test_the_offsets_of_groups_are_the_same_and_never_ahead(clusters: Clusters) -> None:
    clusters.west.create_topic(WEST, partitions=2)
    producer = transactional(clusters.west)
    clusters.start(preserves_offsets=True)
    for number in range(10):
        transact(producer, 5, commits=number % 3 > 0)
    consumer = Consumer(
        {
            "bootstrap.servers": clusters.west.bootstrap_servers,
            "group.id": "app",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([WEST])
    read: list[Any] = []
    until(lambda: read.extend(consumer.consume(7, 0.1)) or len(read) >= 30, "records in the west")
    consumer.commit(asynchronous=False)
    consumer.close()
    here = committed(clusters.west, WEST)
    assert any(here)
    until(lambda: committed(clusters.east, EAST) == here, lambda: f"{committed(clusters.east, EAST)}, {here}")
    naming = Naming("west", "east")
    with ClusterClient(clusters.east.bootstrap_servers, DEADLINE_S) as east:
        pairs = list(read_offset_syncs(east, naming.offset_syncs, DEADLINE_S))
        assert pairs and all(one.run.source == one.run.target for one in pairs)
        assert all(pair.source == pair.target for pair in checkpoints(east)[-2:])


def committed(broker: Broker, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "app"})
    found = consumer.committed([TopicPartition(topic, index) for index in range(2)], 10)
    consumer.close()
    return [one.offset for one in found]


def test_after_a_fail_over_producers_write_on_and_the_mirror_leaves_it_alone(clusters: Clusters) -> None:
    clusters.west.create_topic(WEST)
    producer = transactional(clusters.west)
    transact(producer, 5)
    mirror = clusters.start(preserves_offsets=True)
    await_same(clusters)
    clusters.stop(mirror)
    there = transactional(clusters.east, "q")
    transact(there, 2, topic=EAST)
    idempotent = Producer({"bootstrap.servers": clusters.east.bootstrap_servers, "enable.idempotence": True})
    idempotent.produce(EAST, b"on")
    assert idempotent.flush(DEADLINE_S) == 0
    after = rows(clusters.east, EAST)
    assert [one[1] for one in after] == [0, 1, 2, 3, 4, 6, 7, 9], "behind the end of the source, with its marker"
    for number in range(20):
        clusters.west.produce(WEST, b"late %d" % number)
    clusters.west.produce("stock", b"1")
    mirror = clusters.start(preserves_offsets=True)
    await_same(clusters, "stock")
    assert "has got records of others" in mirror.statuses[0].faults()[0]
    assert rows(clusters.east, EAST) == after


def test_a_topic_of_others_is_left_alone(clusters: Clusters) -> None:
    clusters.west.produce(WEST, b"1")
    clusters.east.produce(EAST, b"of somebody else")
    clusters.west.produce("stock", b"1")
    mirror = clusters.start(preserves_offsets=True)
    await_same(clusters, "stock")
    assert mirror.statuses[0].faults()
    assert [one.value for one in clusters.east.records(EAST)] == [b"of somebody else"]
    clusters.east.delete_topic(EAST)
    await_same(clusters)


def test_a_copy_is_compacted_and_goes_on(clusters: Clusters) -> None:
    clusters.west.create_topic(WEST, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    producer = transactional(clusters.west)
    for turn in range(2):
        mirror = clusters.start(preserves_offsets=True)
        for number in range(9):
            transact(producer, 3 + number % 4, commits=number % 3 > 0)
        transact(producer, 2, commits=False)  # ends in a batch without records

        def newest(broker: Broker, topic: str) -> dict[Any, tuple[Any, ...]]:
            return {row[3]: row for row in rows(broker, topic)}

        def ends() -> list[int]:
            return [
                bounds(clusters.west.bootstrap_servers, WEST)[0][1],
                bounds(clusters.east.bootstrap_servers, EAST)[0][1],
            ]

        until(lambda: EAST in clusters.east.topics and len(set(ends())) == 1, "the end")
        assert newest(clusters.east, EAST) == newest(clusters.west, WEST)
        clusters.stop(mirror)
        before = len(rows(clusters.east, EAST))
        clusters.east.roll(EAST)
        clusters.east.compact(EAST)
        assert len(rows(clusters.east, EAST)) < before and len(set(ends())) == 1, turn
        assert newest(clusters.east, EAST) == newest(clusters.west, WEST)


def test_a_refused_batch_stops_its_partition_alone(clusters: Clusters) -> None:
    clusters.west.create_topic(WEST)
    clusters.east.create_topic(EAST, max_message_bytes=1000)
    for size in (100, 2000, 100):
        clusters.west.produce(WEST, bytes(size))
    mirror = clusters.start(preserves_offsets=True, with_settings=False)
    until(lambda: mirror.statuses[0].faults(), "a fault")
    [fault] = mirror.statuses[0].faults()
    assert "west.orders-0 is refused: The record batch has" in fault
    clusters.west.produce("stock", b"1")
    await_same(clusters, "stock")
    clusters.alter(clusters.east, EAST, {"max.message.bytes": "5000"}, [])
    await_same(clusters)
    assert [one[1] for one in rows(clusters.east, EAST)] == [0, 1, 2] and not mirror.statuses[0].faults()


def test_a_copy_without_its_last_records_goes_on(clusters: Clusters) -> None:
    """Nothing is left to compare: the pair of offsets says that it is a copy."""
    clusters.west.create_topic(WEST, segment_bytes=1000)
    for number in range(30):
        clusters.west.produce(WEST, b"%0100d" % number)
    mirror = clusters.start(preserves_offsets=True)
    await_same(clusters)
    clusters.stop(mirror)
    clusters.alter(clusters.east, EAST, {"retention.bytes": "0"}, [])
    clusters.east.roll(EAST)
    clusters.east.expire()
    assert bounds(clusters.east.bootstrap_servers, EAST) == [(30, 30)]
    clusters.west.produce(WEST, b"next")
    mirror = clusters.start(preserves_offsets=True)
    until(lambda: [one.offset for one in clusters.east.records(EAST)] == [30], "the next record")
    assert not mirror.statuses[0].faults()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


def filled(west: Broker) -> list[int]:
    """A topic of two partitions without its first records; the starts of these. They stay: retention would move those
    of the copy as well, half a minute after the start of its brokers."""
    west.create_topic(WEST, partitions=2)
    for number in range(60):
        west.produce(WEST, b"%0100d" % number)
    begun = [11, 17]
    cut = [TopicPartition(WEST, index, start) for index, start in enumerate(begun)]
    admin = AdminClient({"bootstrap.servers": west.bootstrap_servers})  # one that nobody holds cancels it
    for result in admin.delete_records(cut).values():
        result.result(DEADLINE_S)
    return begun


def copy_through(west: Broker, east: str, begun: list[int], disturb: Callable[[], object], **more: Any) -> None:
    """Copies transactions in three turns; the target is disturbed before the last one."""
    settings = MirrorSettings(Endpoint(east), "east", preserves_offsets=True, **{**QUICK, **more})  # type: ignore[arg-type]
    mirror = Mirror({"west": Endpoint(west.bootstrap_servers)}, settings)
    mirror.start()
    producer = transactional(west)
    try:
        for turn in range(3):
            for number in range(8):
                transact(producer, 2, commits=number % 3 > 0)
                if turn == 2 and number == 4:
                    disturb()
            await_copy_of(west, east, begun)
    finally:
        mirror.stop()


@pytest.mark.timeout(240)
def test_a_target_with_replicas_and_a_leader_that_dies(cluster: Cluster, tmp_path: Path) -> None:
    def disturb() -> None:
        leader = cluster.leader_of(EAST, 0)
        assert leader is not None
        cluster.kill(leader)

    with Broker(data_dir=tmp_path / "west", group_initial_rebalance_delay_ms=0) as west:
        copy_through(west, cluster.bootstrap_servers, filled(west), disturb, replication_factor=3)


@pytest.mark.timeout(240)
def test_a_target_on_several_cores_and_a_broker_that_dies(tmp_path: Path) -> None:
    (tmp_path / "east").mkdir()
    with (
        Broker(data_dir=tmp_path / "west", group_initial_rebalance_delay_ms=0) as west,
        serving(tmp_path / "east", cores="2") as served,
    ):
        copy_through(west, served.bootstrap, filled(west), lambda: os.kill(served.pids("broker 1")[-1], SIGKILL))


def await_copy_of(west: Broker, east: str, begun: list[int]) -> None:
    wanted = [row[:5] for row in rows(west, WEST)]
    found: list[Any] = []

    def is_same() -> bool:
        consumer = StockConsumer(east, read_committed=True)
        try:
            ends = [consumer.bounds(EAST, index, _ANSWER_S) for index in range(2)]
            if ends != list(zip(begun, (end for _, end in bounds(west.bootstrap_servers, WEST, 2)), strict=True)):
                found[:] = ends
                return False
            read = consumer.read(EAST, dict(enumerate(ends)))
            return [(one.partition, one.offset, one.timestamp, one.key, one.value) for one in read] == wanted
        except KafkaException as fault:  # no topic, no leader yet, or its former address
            found[:] = [fault]
            return False
        finally:
            consumer.close()

    until(is_same, lambda: f"the same in the east, where it is {found}", 2 * DEADLINE_S)
