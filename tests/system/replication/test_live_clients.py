"""Transactions, groups and consumers of a rack on a cluster whose brokers come and go."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.testing import Cluster
from tests.support.replication.live_cluster import (
    EVERY,
    QUICK,
    SETTINGS,
    Writer,
    await_equal_logs,
    create_topic,
    new_consumer,
    read_all,
)
from tests.support.wait import DEADLINE_S, until

GROUP = "g"
TRANSACTION = {"transactional_id": "tx", "transaction_timeout_ms": int(DEADLINE_S * 1000)}


def coordinator(cluster: Cluster, topic: str) -> int:
    """The leader of the only partition of an internal topic."""
    return cluster.wait_for_leader(topic, 0)


def one_partition_each() -> dict[str, Any]:
    return {**SETTINGS, "offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}


def transactional(cluster: Cluster) -> confluent_kafka.Producer:
    named = {key.replace("_", "."): value for key, value in TRANSACTION.items()}
    client = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **QUICK, **named}
    )
    client.init_transactions(DEADLINE_S)
    return client


@pytest.mark.parametrize("killed", ["the leader", "the coordinator"])
@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_transaction_outlives_a_broker(killed, ending):
    with Cluster(3, **one_partition_each()) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        client = transactional(cluster)
        client.begin_transaction()
        client.produce("t", b"first")
        client.commit_transaction(DEADLINE_S)
        client.begin_transaction()
        for i in range(20):
            client.produce("t", b"%d" % i)
        client.flush(DEADLINE_S)
        topic = "t" if killed == "the leader" else "__transaction_state"
        victim = coordinator(cluster, topic)
        cluster.kill(victim)
        cluster.wait_for_leader(topic, 0, other_than=[victim])
        for i in range(20, 40):
            client.produce("t", b"%d" % i)
        (client.commit_transaction if ending == "commit" else client.abort_transaction)(2 * DEADLINE_S)
        client.begin_transaction()
        client.produce("t", b"last")
        client.commit_transaction(2 * DEADLINE_S)
        cluster.start(victim)
        for name in ("t", "__transaction_state"):
            cluster.wait_for_isr(name, 0, EVERY)
            await_equal_logs(cluster, name, 0, EVERY)
        between = [b"%d" % i for i in range(40)] if ending == "commit" else []
        assert list(read_all(cluster, "t").values()) == [b"first", *between, b"last"]


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_group_goes_on_from_its_offsets_with_another_coordinator(ending):
    with Cluster(3, **one_partition_each(), group_min_session_timeout_ms=500) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"%d" % i for i in range(100)])
        writer.flush()
        consumer = new_consumer(cluster, group_id=GROUP, auto_offset_reset="earliest", session_timeout_ms=10_000)
        consumer.subscribe(["t"])
        seen = _take(consumer, 40)
        consumer.commit(asynchronous=False)
        victim = coordinator(cluster, "__consumer_offsets")
        getattr(cluster, ending)(victim)
        cluster.wait_for_leader("__consumer_offsets", 0, other_than=[victim])
        cluster.wait_for_leader("t", 0)
        seen += _take(consumer, 30)
        until(lambda: _commits(consumer), "a commit at the new coordinator")
        consumer.close()
        cluster.start(victim)
        cluster.wait_for_isr("__consumer_offsets", 0, EVERY)
        await_equal_logs(cluster, "__consumer_offsets", 0, EVERY)
        heir = new_consumer(cluster, group_id=GROUP, auto_offset_reset="earliest")
        heir.subscribe(["t"])
        seen += _take(heir, 30)
        heir.close()
        assert seen == [b"%d" % i for i in range(100)]


def _take(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{len(values)} of {count}"
        error, value = message.error(), message.value()
        assert error is None or error.retriable(), error
        if error is None:
            assert isinstance(value, bytes)
            values.append(value)
    return values


def _commits(consumer: confluent_kafka.Consumer) -> bool:
    try:
        consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException:
        return False
    return True


def test_a_consumer_reads_from_the_replica_of_its_rack():
    own = {number: {"broker_rack": f"rack-{number}"} for number in EVERY}
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with Cluster(3, own=own, replica_selector_class=selector, **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        payload = bytes(10_000)
        writer.write("t", [b"%d-" % i + payload for i in range(100)])
        writer.flush()
        await_equal_logs(cluster, "t", 0, EVERY)
        before = _sent(cluster)
        values = list(read_all(cluster, "t", client_rack="rack-2").values())
        assert [value.partition(b"-")[0] for value in values] == [b"%d" % i for i in range(100)]
        sent = {number: _sent(cluster)[number] - before[number] for number in EVERY}
        assert sent[2] >= 100 * len(payload) > sent[0] + sent[1], sent

        consumer = new_consumer(cluster, client_rack="rack-2")
        consumer.assign([TopicPartition("t", 0, 0)])
        assert len(_take(consumer, 50)) == 50
        cluster.kill(2)
        writer.write("t", [b"%d-" % i + payload for i in range(100, 120)])
        rest = _take(consumer, 70)
        assert [value.partition(b"-")[0] for value in rest] == [b"%d" % i for i in range(50, 120)]
        consumer.close()
        writer.flush()


def _sent(cluster: Cluster) -> dict[int, int]:
    return {
        broker.broker_id: sum(each.bytes_out for each in broker.server.server.processors) for broker in cluster.brokers
    }


def test_what_is_not_committed_is_seen_at_no_replica():
    own = {number: {"broker_rack": f"rack-{number}"} for number in EVERY}
    with Cluster(3, own=own, replica_selector_class="RackAwareReplicaSelector", **SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"before"])
        writer.flush()
        cluster.pause(2)
        careless = Writer(cluster, enable_idempotence=False, acks=1)
        careless.write("t", [b"not yet"])
        careless.flush()
        if cluster.isr("t", 0) == set(EVERY):  # else the machine was slow
            assert list(read_all(cluster, "t", client_rack="rack-1").values())[:1] == [b"before"]
        cluster.resume(2)
        cluster.wait_for_isr("t", 0, EVERY)
        await_equal_logs(cluster, "t", 0, EVERY)
        until(lambda: len(read_all(cluster, "t", client_rack="rack-1")) == 2, "the other record")


def test_a_broker_that_knows_no_other_names_itself():
    """It serves before it is registered, and the others are away. A client that is told of no broker may have nobody
    left to ask."""
    with Cluster(3, zookeeper_connection_timeout_ms=int(DEADLINE_S * 1000)) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        for number in EVERY:
            cluster.kill(number)
        first, told, is_done = cluster.brokers[0], [], threading.Event()

        def ask() -> None:
            while not is_done.wait(0.01):
                with suppress(Unanswered), BlockingClient(first.bootstrap_servers, DEADLINE_S) as client:
                    told.append([(one.node_id, one.port) for one in client.ask(MetadataRequest(topics=[]), 9).brokers])

        thread = threading.Thread(target=ask)
        thread.start()
        first.line.delay_ms = (40, 40)  # so that it is asked before it is registered
        try:
            cluster.start(0)
        finally:
            is_done.set()
            thread.join()
        first.line.delay_ms = (0, 0)
        assert told
        assert all(each == [(0, first.port)] for each in told)


def test_a_leader_that_was_replaced_without_its_knowledge_sends_no_consumer_back():
    """It is cut off from ZooKeeper, and reached by a client that knows no epochs any more."""
    with Cluster(3, **SETTINGS | {"zookeeper_session_timeout_ms": int(10 * DEADLINE_S * 1000)}) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY])
        writer = Writer(cluster)
        writer.write("t", [b"1"])
        writer.flush()
        former = cluster.wait_for_leader("t", 0)
        cluster.cut_off(former)
        cluster.lose_session(former)
        cluster.wait_for_leader("t", 0, other_than=[former])
        state = cluster.state("t", 0)
        assert state is not None
        writer.write("t", [b"2"])
        writer.flush()
        with BlockingClient(cluster.brokers[former].bootstrap_servers, DEADLINE_S) as client:
            wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=state.leader_epoch)
            topics = [OffsetForLeaderTopic(topic="t", partitions=[wanted])]
            told = client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4).topics[0].partitions[0]
            assert (told.error_code, told.end_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            partition = FetchPartition(partition=0, fetch_offset=100, partition_max_bytes=1 << 20)
            fetch = FetchRequest(min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])])
            told = client.ask(fetch, 11).responses[0].partitions[0]
            assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert cluster.brokers[former].server.replica_manager.partition("t", 0) is not None, "it led meanwhile"
