"""Work of administrators on a cluster under load: records and segments deleted, replicas moved, brokers restarted."""

from __future__ import annotations

import logging
from urllib.request import urlopen

import kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite.common.errors import StorageError
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.testing import Cluster
from tests.support.prometheus import parse, value
from tests.support.replication.live_cluster import (
    EVERY,
    SETTINGS,
    Writer,
    await_equal_logs,
    create_topic,
    end_offsets,
    load,
    progress,
    read_all,
)
from tests.support.wait import DEADLINE_S, until


def start_offsets(cluster: Cluster, topic: str, partition: int = 0) -> set[int]:
    logs = [broker.server.logs.get(topic, partition) for broker in cluster.brokers if broker.is_running]
    return {log.start_offset for log in logs if log is not None}


def check(cluster: Cluster, topic: str, partition: int, writer: Writer) -> None:
    content = read_all(cluster, topic, partition)
    assert not writer.failures
    assert content == {offset: value for where, offset, value in writer.acknowledged if where == partition}
    numbers = [int(value) for value in content.values()]
    assert numbers == sorted(set(numbers))


def test_a_rolling_restart_fails_no_produce():
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[(0, 1, 2), (1, 2, 0), (2, 0, 1)])
        with load(cluster, "t", 3) as writer:
            for number in EVERY:
                progress(writer)
                cluster.stop(number)
                progress(writer)
                cluster.start(number)
                for partition in range(3):
                    cluster.wait_for_isr("t", partition, EVERY)
            progress(writer)
        for partition in range(3):
            await_equal_logs(cluster, "t", partition, EVERY)
            check(cluster, "t", partition, writer)


def test_replicas_move_while_records_come_in():
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with Cluster(4, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[(0, 1)])
        admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
        with load(cluster, "t") as writer:
            for replicas in ([2, 3], [3, 2, 0], [1], [0, 1, 2, 3], [1, 0]):
                progress(writer)
                told = admin.alter_partition_reassignments({kafka.TopicPartition("t", 0): replicas})
                assert list(told.values()) == [None]
                cluster.wait_for_isr("t", 0, replicas)
                until(lambda: not admin.list_partition_reassignments(), "the end of the reassignment")
                assert cluster.wait_for_leader("t", 0) in replicas
                cluster.wait_until(
                    lambda replicas=replicas: _hosts(cluster, "t") == set(replicas),
                    lambda replicas=replicas: f"logs at {replicas} only: {_hosts(cluster, 't')}",
                )
            progress(writer)
        admin.close()
        await_equal_logs(cluster, "t", 0, [0, 1])
        check(cluster, "t", 0, writer)


def test_the_bytes_of_a_reassignment_are_counted_at_both_ends():
    with Cluster(3, **SETTINGS, metrics_listener="127.0.0.1:0") as cluster:
        create_topic(cluster, "t", placed_on=[(0, 1)])
        writer = Writer(cluster)
        writer.write("t", [bytes(10_000)] * 50)
        writer.flush()
        assert _reassignment_bytes(cluster) == {"in": [0, 0, 0], "out": [0, 0, 0]}
        admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
        admin.alter_partition_reassignments({kafka.TopicPartition("t", 0): [0, 2]})
        cluster.wait_until(lambda: _hosts(cluster, "t") == {0, 2}, lambda: f"logs at {_hosts(cluster, 't')}")
        admin.close()
        log = cluster.brokers[0].server.logs.get("t", 0)
        assert log is not None
        moved = log.size_bytes
        assert _reassignment_bytes(cluster) == {"in": [0, 0, moved], "out": [moved, 0, 0]}
        writer.write("t", [b"as a replica like others"])
        writer.flush()
        await_equal_logs(cluster, "t", 0, (0, 2))
        assert log.size_bytes > moved
        assert _reassignment_bytes(cluster) == {"in": [0, 0, moved], "out": [moved, 0, 0]}


def _reassignment_bytes(cluster: Cluster) -> dict[str, list[float]]:
    """The values of each broker's metrics, in both directions."""
    pages = []
    for broker in cluster.brokers:
        endpoint = broker.server.metrics
        assert endpoint is not None
        with urlopen(f"http://{endpoint.address}/metrics", timeout=DEADLINE_S) as answer:
            pages.append(parse(answer.read().decode()))
    name = "kafka_server_brokertopicmetrics_reassignmentbytes"
    return {way: [value(page, f"{name}{way}_total") for page in pages] for way in ("in", "out")}


def test_a_partition_whose_leader_has_no_room_for_its_epoch_gets_its_replicas_later(monkeypatch):
    begin, refused = LeaderPartition.begin, []

    def without_room(partition: LeaderPartition) -> None:
        if partition.topic == "t" and not refused:
            refused.append(partition)
            raise StorageError("no room")
        begin(partition)

    with Cluster(2, **{**SETTINGS, "min_insync_replicas": 1}) as cluster:
        create_topic(cluster, "t", placed_on=[(0,)])
        writer = Writer(cluster)
        writer.write("t", [b"1"])
        writer.flush()
        monkeypatch.setattr(LeaderPartition, "begin", without_room)
        admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
        admin.alter_partition_reassignments({kafka.TopicPartition("t", 0): [0, 1]})
        cluster.wait_for_isr("t", 0, (0, 1))
        admin.close()
        assert refused
        writer.write("t", [b"2"])
        writer.flush()
        await_equal_logs(cluster, "t", 0, (0, 1))
        check(cluster, "t", 0, writer)


def delete_old_segments(cluster: Cluster, number: int) -> None:
    """A check of retention of one broker, now."""
    broker = cluster.brokers[number]
    log = broker.server.logs.get("t", 0)
    assert log is not None
    broker.call(lambda: log.delete_old_segments(broker.server.clock.wall_ms(), 100))


def _hosts(cluster: Cluster, topic: str) -> set[int]:
    return {broker.broker_id for broker in cluster.brokers if broker.server.logs.get(topic, 0) is not None}


def test_deleted_records_are_gone_at_every_replica():
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(100)])
        writer.flush()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for before in (30, 31, 77):
            (told,) = admin.delete_records([TopicPartition("t", 0, before)]).values()
            assert told.result(DEADLINE_S).low_watermark == before
            assert start_offsets(cluster, "t") == {before}, "the answer waits for all of them"
        cluster.kill(2)
        cluster.wait_for_isr("t", 0, {0, 1})
        (told,) = admin.delete_records([TopicPartition("t", 0, 90)]).values()
        assert told.result(DEADLINE_S).low_watermark == 90, "a broker that is away is not waited for"
        cluster.start(2)
        cluster.wait_for_isr("t", 0, EVERY)
        cluster.wait_until(lambda: start_offsets(cluster, "t") == {90}, lambda: f"{start_offsets(cluster, 't')}")
        cluster.kill(0)
        cluster.wait_for_leader("t", 0, other_than=[0])
        assert list(read_all(cluster, "t").values()) == [b"%d" % i for i in range(90, 100)]


@pytest.mark.parametrize("way", ["a replica that was away", "a new replica"])
def test_a_replica_begins_where_the_leader_begins(way):
    with Cluster(3, **SETTINGS) as cluster:
        placed = EVERY if way == "a replica that was away" else (0, 1)
        create_topic(cluster, "t", placed_on=[placed], segment_bytes=20_000, retention_bytes=40_000)
        writer = Writer(cluster, batch_size=5_000)
        writer.write("t", [bytes(1_000) + b"%d" % i for i in range(30)])
        writer.flush()
        if way == "a replica that was away":
            cluster.stop(2)
        writer.write("t", [bytes(1_000) + b"%d" % i for i in range(30, 300)])
        writer.flush()
        assert not writer.failures
        for number in (0, 1):
            delete_old_segments(cluster, number)
        assert min(start_offsets(cluster, "t")) > 30
        if way == "a replica that was away":
            cluster.start(2)
        else:
            admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
            admin.alter_partition_reassignments({kafka.TopicPartition("t", 0): [0, 1, 2]})
            admin.close()
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        cluster.kill(0)
        cluster.kill(1)
        cluster.start(0)
        content = read_all(cluster, "t")
        assert list(content) == list(range(min(content), 300)) and min(content) > 30
        assert end_offsets(cluster, "t", 0, [0, 2]) == {0: 300, 2: 300}
