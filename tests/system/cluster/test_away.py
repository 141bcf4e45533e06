"""Changes while a broker is away reach it later: its groups wait for it, and old logs do not come back."""

from __future__ import annotations

import threading
import uuid

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.topics import DeleteTopicsRequest
from tests.support.wait import DEADLINE_S, until
from tests.system.cluster.load import LOG
from tests.system.cluster.members import NO_LEADER, Cluster, exists
from tests.system.crash.crash_line import LATEST, Line


def test_a_group_whose_coordinator_dies_goes_on_when_it_is_back(cluster: Cluster) -> None:
    ids = sorted(cluster.members)
    victim = ids[-1]
    topic = f"groups-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, [ids[0], ids[1]])  # not on the broker that dies: only the group is concerned
    until(lambda: cluster.coordinator("first") != NO_LEADER, "the topic of the offsets")
    names = (f"{topic}-{number}" for number in range(1000))
    group = next(name for name in names if cluster.coordinator(name) == victim)
    write(cluster, topic, range(10))
    consumer = a_consumer(cluster, group)
    consumer.subscribe([topic])
    assert read(consumer, 10) == list(range(10))
    consumer.commit(asynchronous=False)
    cluster.members[victim].kill()
    until(lambda: cluster.coordinator(group) == NO_LEADER, "the others to have no coordinator for the group")
    write(cluster, topic, range(10, 20))
    assert read(consumer, 10) == list(range(10, 20)), "who has its partitions goes on reading"
    cluster.start()
    until(lambda: cluster.coordinator(group) == victim, "the coordinator to be back")
    until(lambda: commits(consumer), "the same consumer to commit")
    consumer.close()
    successor = a_consumer(cluster, group)
    successor.subscribe([topic])
    write(cluster, topic, range(20, 30))
    assert read(successor, 10) == list(range(20, 30)), "nothing twice, nothing left out"
    successor.close()


@pytest.mark.long
def test_a_topic_that_is_deleted_while_a_broker_is_away_goes_when_it_is_back(cluster: Cluster) -> None:
    ids = sorted(cluster.members)
    victim = ids[0]
    topic = f"gone-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, ids)
    write(cluster, topic, range(30), partitions=3)
    cluster.members[victim].kill()
    until(lambda: victim not in cluster.said_by(ids[1]).brokers, "its end to be seen")
    answers: list[int] = []

    def ask() -> None:
        asked = cluster.running[0].ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000), 4)
        answers.append(asked.responses[0].error_code)

    asking = threading.Thread(target=ask)
    asking.start()
    with cluster.zookeeper_client() as zookeeper:
        until(lambda: exists(zookeeper, f"/admin/delete_topics/{topic}"), "the wish to be written down")
        cluster.start()
        until(lambda: not exists(zookeeper, f"/admin/delete_topics/{topic}"), "the wish to be fulfilled")
    await_gone(cluster, topic)
    asking.join(DEADLINE_S)
    assert answers in ([ErrorCode.NONE], [ErrorCode.REQUEST_TIMED_OUT])
    cluster.create(topic, [victim])
    line = Line(cluster.members[victim].port)
    assert line.offset(topic, 0, LATEST) == 0, "the new one begins empty"
    line.close()


@pytest.mark.long
def test_a_topic_that_was_made_anew_while_a_broker_was_away_is_the_new_one_there(cluster: Cluster) -> None:
    ids = sorted(cluster.members)
    victim = ids[0]
    others = [i for i in ids if i != victim]
    topic = f"anew-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, [victim, *others])
    write(cluster, topic, range(30), partitions=3)
    cluster.members[victim].kill()
    until(lambda: victim not in cluster.said_by(others[0]).brokers, "its end to be seen")
    with cluster.zookeeper_client() as zookeeper:  # an operator who does not want to wait for it
        zookeeper.delete(f"/brokers/topics/{topic}", recursive=True)
    await_gone(cluster, topic)
    cluster.create(topic, [others[0], others[1], others[0]])
    write(cluster, topic, range(3), partitions=3)
    cluster.start()
    assert {i: cluster.leaders(topic)[i] for i in range(3)} == {0: others[0], 1: others[1], 2: others[0]}
    assert not list(cluster.members[victim].data_dir.glob(f"{topic}-?")), "the old partition serves nobody there"
    delete(cluster, topic)
    cluster.create(topic, [victim])
    line = Line(cluster.members[victim].port)
    assert line.offset(topic, 0, LATEST) == 0, "the new one begins empty"
    line.close()


def delete(cluster: Cluster, topic: str) -> None:
    asked = cluster.running[0].ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 4)
    assert asked.responses[0].error_code == 0, asked
    await_gone(cluster, topic)


def await_gone(cluster: Cluster, topic: str) -> None:
    for member in cluster.running:
        until(
            lambda member=member: all(name != topic for name, _ in cluster.said_by(member.broker_id).leaders),
            f"broker {member.broker_id} to forget {topic}",
        )


def write(cluster: Cluster, topic: str, numbers: range, partitions: int = 1) -> None:
    """Numbers, one after another, on each of so many partitions in turn."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0}, logger=LOG)
    failed: list[str] = []
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
        )
    assert producer.flush(60) == 0 and failed == []


def a_consumer(cluster: Cluster, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            "reconnect.backoff.max.ms": 500,
        },
        logger=LOG,
    )


def read(consumer: confluent_kafka.Consumer, count: int) -> list[int]:
    found: list[int] = []

    def polled() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(int(message.value()))
        return len(found) >= count

    until(polled, f"{count} records, of which there are {found}")
    return found


def commits(consumer: confluent_kafka.Consumer) -> bool:
    """Whether the group's place can be written down. It is polled meanwhile, as an application does it."""
    consumer.poll(0.05)
    try:
        done: list[TopicPartition] = consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException:
        return False
    return all(one.error is None for one in done)
