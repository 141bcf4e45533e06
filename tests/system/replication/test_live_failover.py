"""The leader of a partition goes, and comes back: nothing acknowledged is lost, and the logs are equal again."""

from __future__ import annotations

import logging

import kafka
import pytest

from kafkalite.testing import Cluster
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


@pytest.mark.parametrize("ending", ["kill", "stop", "lose_session", "pause"])
def test_the_leader_goes_while_records_come_in(ending):
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(200)])
        until(lambda: writer.client.poll(0) or len(writer.acknowledged) > 20, "the first records")
        getattr(cluster, ending)(0)
        if ending != "lose_session":  # it may be elected again
            assert cluster.wait_for_leader("t", 0, other_than=[0]) in (1, 2)
        writer.write("t", [b"%d" % i for i in range(200, 400)])
        writer.flush()
        cluster.resume(0)
        if not cluster.brokers[0].is_running:
            cluster.start(0)
        cluster.wait_for_isr("t", 0, EVERY)
        writer.write("t", [b"last"])
        writer.flush()
        assert not writer.failures
        await_equal_logs(cluster, "t", 0, EVERY)
        values = list(read_all(cluster, "t").values())
        assert values == [*(b"%d" % i for i in range(400)), b"last"]
        assert {offset: value for _, offset, value in writer.acknowledged} == dict(enumerate(values))


def test_kafka_python_goes_on_after_a_failover():
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        producer = kafka.KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers.split(","), acks="all", retry_backoff_ms=20, linger_ms=0
        )
        sent = [producer.send("t", b"%d" % i) for i in range(100)]
        sent[0].get(DEADLINE_S)
        cluster.kill(0)
        sent += [producer.send("t", b"%d" % i) for i in range(100, 200)]
        told = {future.get(2 * DEADLINE_S).offset: b"%d" % i for i, future in enumerate(sent)}
        producer.close()
        cluster.start(0)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        assert read_all(cluster, "t").items() >= told.items()


def test_an_old_leader_cuts_off_what_nobody_else_has():
    patient = {"replica_lag_time_max_ms": 60_000, "zookeeper_session_timeout_ms": 60_000}
    with Cluster(3, **{**SETTINGS, **patient}) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(50)])
        writer.flush()
        await_equal_logs(cluster, "t", 0, EVERY)
        for follower in (1, 2):
            cluster.kill(follower, session_ends=False)  # in the ISR, and gets nothing any more
        careless = Writer(cluster, enable_idempotence=False, acks=1)
        careless.write("t", [b"alone-%d" % i for i in range(30)])
        careless.flush()
        assert len(careless.acknowledged) == 30 and end_offsets(cluster, "t", 0, [0]) == {0: 80}
        cluster.kill(0)
        for follower in (1, 2):
            cluster.start(follower)
        leader = cluster.wait_for_leader("t", 0, other_than=[0])
        assert leader in (1, 2)
        writer.write("t", [b"%d" % i for i in range(50, 60)])
        writer.flush()
        cluster.start(0)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        assert list(read_all(cluster, "t").values()) == [b"%d" % i for i in range(60)]


def test_the_leader_is_killed_again_and_again_under_load():
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        with load(cluster, "t") as writer:
            for _ in range(6):
                progress(writer)
                leader = cluster.wait_for_leader("t", 0)
                cluster.kill(leader)
                cluster.wait_for_leader("t", 0, other_than=[leader])
                cluster.start(leader)
                cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        content = read_all(cluster, "t")
        assert not writer.failures and content == {offset: value for _, offset, value in writer.acknowledged}
        assert [int(value) for value in content.values()] == list(range(len(content)))


def test_all_brokers_are_killed_at_once():
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY, (1, 2, 0), (2, 0, 1)])
        writer = Writer(cluster)
        for partition in range(3):
            writer.write("t", [b"%d" % i for i in range(100)], partition)
        until(lambda: writer.client.poll(0) or len(writer.acknowledged) > 50, "some records")
        for number in EVERY:
            cluster.kill(number, session_ends=False)
        for number in EVERY:
            cluster.start(number)
        writer.flush()
        assert not writer.failures
        for partition in range(3):
            cluster.wait_for_isr("t", partition, EVERY)
            await_equal_logs(cluster, "t", partition, EVERY)
            assert list(read_all(cluster, "t", partition).values()) == [b"%d" % i for i in range(100)]
