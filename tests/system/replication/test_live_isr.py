"""Replicas leave the ISR and come back, and what producers with acks=all are told meanwhile."""

from __future__ import annotations

import errno

import pytest
from confluent_kafka import KafkaError

from kafkalite.common.errors import StorageError
from kafkalite.testing import Cluster
from tests.support.replication.live_cluster import (
    EVERY,
    SETTINGS,
    Writer,
    await_equal_logs,
    create_topic,
    end_offsets,
    read_all,
)
from tests.support.wait import until

ONCE = {"enable_idempotence": False, "message_send_max_retries": 0}


@pytest.mark.parametrize("ending", ["stop", "kill", "pause"])
def test_a_follower_that_goes_leaves_and_joins_when_it_has_caught_up(ending):
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(20)])
        writer.flush()
        getattr(cluster, ending)(2)
        writer.write("t", [b"%d" % i for i in range(20, 40)])
        cluster.wait_for_isr("t", 0, {0, 1})
        writer.flush()
        assert cluster.leader_of("t", 0) == 0 and not writer.failures
        cluster.resume(2)
        if not cluster.brokers[2].is_running:
            cluster.start(2)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        assert list(read_all(cluster, "t").values()) == [b"%d" % i for i in range(40)]


def fail_fsync(cluster: Cluster, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of t-0 there."""
    broker = cluster.brokers[number]
    log = broker.server.logs.logs["t", 0]

    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log.files, "fsync", fail)
    with pytest.raises(StorageError, match="no space left"):
        broker.call(log.flusher.flush)


@pytest.mark.parametrize("number", [0, 2], ids=["leader", "follower"])
def test_a_log_that_fails_is_in_no_isr_and_another_replica_leads(monkeypatch, number):
    with Cluster(3, **{**SETTINGS, "replica_lag_time_max_ms": 60_000}) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"before"])
        writer.flush()
        fail_fsync(cluster, number, monkeypatch)
        others = set(EVERY) - {number}
        cluster.wait_for_isr("t", 0, others)
        until(lambda: cluster.leader_of("t", 0) in others, "another leader")
        writer.write("t", [b"after"])
        writer.flush()
        assert not writer.failures
        cluster.stop(number)
        cluster.start(number)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        assert list(read_all(cluster, "t").values()) == [b"before", b"after"]


def test_a_broker_whose_fsync_has_failed_vouches_for_nothing_when_it_comes_back(monkeypatch):
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        known = cluster.brokers[0].server.metadata.brokers
        cluster.kill(2)
        cluster.start(2)
        until(lambda: 2 in known and known[2].intact, "a broker that was merely killed")
        cluster.wait_for_isr("t", 0, EVERY)
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(20)])
        writer.flush()
        fail_fsync(cluster, 2, monkeypatch)
        cluster.kill(2)
        cluster.start(2)
        until(lambda: 2 in known and not known[2].intact, "its doubt")
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)


def test_with_too_few_replicas_nothing_is_written_and_reads_go_on():
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"before"])
        writer.flush()
        cluster.stop(1)
        cluster.stop(2)
        cluster.wait_for_isr("t", 0, {0})
        once = Writer(cluster, **ONCE)
        once.write("t", [b"refused"])
        once.flush()
        assert [each.code() for each in once.failures] == [KafkaError.NOT_ENOUGH_REPLICAS]
        assert end_offsets(cluster, "t", 0, [0]) == {0: 1}
        assert list(read_all(cluster, "t").values()) == [b"before"]
        writer.write("t", [b"waits for another replica"])
        cluster.start(1)
        cluster.wait_for_isr("t", 0, {0, 1})
        writer.flush()
        assert list(read_all(cluster, "t").values()) == [b"before", b"waits for another replica"]


def test_what_was_written_and_cannot_be_committed_has_no_acknowledgement_but_stays():
    # sessions that outlast the test: a busy machine takes longer than a short one from the pause to the record
    with Cluster(3, **{**SETTINGS, "zookeeper_session_timeout_ms": 60_000}) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer, once = Writer(cluster), Writer(cluster, **ONCE, request_timeout_ms=1_500)
        for each in (writer, once):
            each.write("t", [b"before"])
            each.flush()
        for follower in (1, 2):
            cluster.pause(follower)
        once.write("t", [b"alone"])
        once.flush()
        assert once.failures and end_offsets(cluster, "t", 0, [0]) == {0: 3}, once.failures
        assert list(read_all(cluster, "t").values()) == [b"before", b"before"], "it is not committed"
        for follower in (1, 2):
            cluster.resume(follower)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        assert list(read_all(cluster, "t").values()) == [b"before", b"before", b"alone"]


def test_a_leader_without_zookeeper_goes_on_with_the_replicas_that_it_has():
    with Cluster(3, **{**SETTINGS, "zookeeper_session_timeout_ms": 60_000}) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"before"])
        writer.flush()
        cluster.cut_off(0)
        writer.write("t", [b"meanwhile"])
        writer.flush()
        cluster.pause(2)
        once = Writer(cluster, **ONCE, request_timeout_ms=1_500)
        once.write("t", [b"nobody can take the third replica out of the ISR"])
        once.flush()
        assert len(once.failures) == 1 and cluster.isr("t", 0) == {0, 1, 2}
        cluster.mend(0)
        cluster.wait_for_isr("t", 0, {0, 1})
        writer.write("t", [b"after"])
        writer.flush()
        cluster.resume(2)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        values = list(read_all(cluster, "t").values())
        assert values[:2] == [b"before", b"meanwhile"] and values[-1] == b"after" and len(values) == 4


def test_a_replica_that_lost_its_directory_comes_back_with_everything():
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(100)])
        writer.flush()
        cluster.kill(2)
        directory = cluster.brokers[2].data_dir
        directory.rename(directory.with_name("lost"))
        cluster.start(2)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        cluster.stop(0)
        cluster.stop(1)
        cluster.wait_for_leader("t", 0)
        assert list(read_all(cluster, "t").values()) == [b"%d" % i for i in range(100)]


def test_the_last_in_sync_replica_loses_its_directory_and_an_eligible_one_leads():
    with Cluster(3, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(100)])
        writer.flush()
        cluster.kill(1)
        cluster.kill(2)
        cluster.wait_for_isr("t", 0, {0})
        cluster.kill(0)
        directory = cluster.brokers[0].data_dir
        directory.rename(directory.with_name("lost"))
        for number in EVERY:
            cluster.start(number)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        assert list(read_all(cluster, "t").values()) == [b"%d" % i for i in range(100)]
