"""A broker stops and starts again on its directory and port, under clients that go on, and for clients that come
later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.support.wait import DEADLINE_S

QUICK = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 200}


@pytest.fixture
def broker(own_broker: Callable[..., Any]) -> Any:
    return own_broker()


@pytest.fixture
def clients(broker: Any, confluent_at: Callable[[str], Any]) -> Any:
    return confluent_at(broker.bootstrap)


def test_a_group_goes_on_where_it_committed(
    broker: Any, clients: Any, create_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(broker.bootstrap, retention_ms=123_456_789), unique("group")
    clients.send(topic, [{"value": b"%d" % n, "key": b"k", "headers": [("h", b"1")]} for n in range(100)])
    first = clients.consumer(group_id=group)
    first.subscribe([topic])
    clients.take(first, 60)
    first.commit(offsets=[TopicPartition(topic, 0, 60)], asynchronous=False)
    before = [(m.offset(), m.key(), m.value(), m.headers(), m.timestamp()) for m in clients.read(topic, 100)]
    cluster_id = clients.admin().list_topics(timeout=DEADLINE_S).cluster_id
    clients.close()

    broker.restart()

    second = clients.consumer(group_id=group)
    second.subscribe([topic])
    assert [int(m.value()) for m in clients.take(second, 40)] == list(range(60, 100))
    after = [(m.offset(), m.key(), m.value(), m.headers(), m.timestamp()) for m in clients.read(topic, 100)]
    assert after == before
    assert clients.send(topic, [{"value": b"next"}])[0].offset() == 100
    admin = clients.admin()
    assert admin.list_topics(timeout=DEADLINE_S).cluster_id == cluster_id
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(DEADLINE_S)["retention.ms"].value == "123456789"


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_clients_that_were_connected_go_on(
    broker: Any,
    clients: Any,
    create_topic: Callable[..., str],
    unique: Callable[[str], str],
    until: Callable[..., Any],
    idempotent: bool,
) -> None:
    topic = create_topic(broker.bootstrap)
    producer = clients.producer(enable_idempotence=idempotent, max_in_flight=1, retry_backoff_ms=50, **QUICK)
    consumer = clients.consumer(group_id=unique("live"), **QUICK)
    consumer.subscribe([topic])
    answers: list[tuple[Any, Any]] = []

    def produce(numbers: range) -> None:
        for n in numbers:
            producer.produce(topic, b"%d" % n, on_delivery=lambda error, message: answers.append((error, message)))

    produce(range(100))
    assert producer.flush(10) == 0
    assert [int(m.value()) for m in clients.take(consumer, 100)] == list(range(100))
    consumer.commit(asynchronous=False)

    broker.stop()
    produce(range(100, 200))  # while nobody listens
    producer.poll(0)
    broker.start()

    assert producer.flush(15) == 0, "the producer did not find its broker again"
    assert [message.offset() for error, message in answers if error is None] == list(range(200))
    seen: list[int] = []

    def all_seen() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.append(int(message.value()))
        return len(seen) >= 100

    until(all_seen, "the records after the restart")
    assert seen == list(range(100, 200))
    assert consumer.commit(asynchronous=False)[0].offset == 200


def test_a_static_member_keeps_its_partitions_over_a_restart(
    broker: Any,
    clients: Any,
    create_topic: Callable[..., str],
    unique: Callable[[str], str],
    until: Callable[..., Any],
) -> None:
    topic, group = create_topic(broker.bootstrap, partitions=4), unique("static")
    patient = {"session_timeout_ms": 30_000, **QUICK}
    members = [clients.consumer(group_id=group, group_instance_id=f"m{n}", **patient) for n in (1, 2)]
    rebalances: list[int] = []
    for member in members:
        member.subscribe([topic], on_assign=lambda consumer, partitions: rebalances.append(len(partitions)))

    def owned() -> list[set[int]]:
        for member in members:
            member.poll(0.02)
        return [{p.partition for p in member.assignment()} for member in members]

    until(lambda: [len(o) for o in owned()] == [2, 2], "two partitions for each")
    before, count = owned(), len(rebalances)

    broker.restart()
    clients.send(topic, [{"value": b"x", "partition": p} for p in range(4)])

    seen: set[int] = set()

    def all_seen() -> bool:
        for member in members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                seen.add(message.partition())
        return seen == {0, 1, 2, 3}

    until(all_seen, "a record of each partition after the restart")
    assert owned() == before
    assert len(rebalances) == count, "members that are known by name are not rebalanced"


def test_topics_created_deleted_and_grown_stay_so(
    broker: Any, clients: Any, create_topic: Callable[..., str], until: Callable[..., Any]
) -> None:
    kept, gone = create_topic(broker.bootstrap, partitions=2), create_topic(broker.bootstrap)
    clients.send(kept, [{"value": b"%d" % n, "partition": n % 2} for n in range(20)])
    clients.send(gone, [{"value": b"x"}])
    admin = clients.admin()
    admin.delete_topics([gone])[gone].result(DEADLINE_S)
    partition = TopicPartition(kept, 1, 4)
    admin.delete_records([partition])[partition].result(DEADLINE_S)
    until(lambda: gone not in admin.list_topics(timeout=DEADLINE_S).topics, "the topic to be gone")

    broker.restart()
    broker.restart()  # a start that only loads must leave everything as it was

    topics = clients.admin().list_topics(timeout=DEADLINE_S).topics
    assert gone not in topics
    assert len(topics[kept].partitions) == 2
    consumer = clients.consumer()
    assert consumer.get_watermark_offsets(TopicPartition(kept, 0), timeout=DEADLINE_S) == (0, 10)
    assert consumer.get_watermark_offsets(TopicPartition(kept, 1), timeout=DEADLINE_S) == (4, 10)


def test_many_small_segments_read_as_one_log(broker: Any, clients: Any, create_topic: Callable[..., str]) -> None:
    topic = create_topic(broker.bootstrap, segment_bytes=10_000, index_interval_bytes=100)
    for first in range(0, 1000, 100):
        records = [{"value": b"%d" % n + bytes(100)} for n in range(first, first + 100)]
        clients.send(topic, records, batch_num_messages=10)

    broker.restart()

    numbers = [int(m.value().rstrip(b"\0")) for m in clients.read(topic, 1000)]
    assert numbers == list(range(1000))
    assert len(list((broker.data_dir).rglob(f"{topic}-0/*.log"))) >= 10
    for offset in (0, 1, 99, 100, 555, 999):
        assert int(clients.read(topic, 1, offset=offset)[0].value().rstrip(b"\0")) == offset
