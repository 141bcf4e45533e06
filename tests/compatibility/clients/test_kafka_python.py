"""kafka-python 3 in, out and as an admin."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka import IsolationLevel, OffsetAndMetadata, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

from tests.support.wait import DEADLINE_S

START_MS = int(time.time() * 1000) - 86_400_000  # yesterday: known to differ from now, kept by retention


def write(kafka_python: Any, topic: str, count: int, first: int = 0, **settings: Any) -> list[Any]:
    """Sends numbered records to partition 0 and returns what the broker answered for each."""
    producer = kafka_python.producer(**settings)
    sent = [
        producer.send(topic, b"%d" % n, partition=0, timestamp_ms=START_MS + 1000 * n)
        for n in range(first, first + count)
    ]
    return [future.get(timeout=DEADLINE_S) for future in sent]


def values(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records_come_back_in_order(topic: str, kafka_python: Any, idempotent: bool) -> None:
    answers = write(kafka_python, topic, 500, enable_idempotence=idempotent, acks="all")
    assert [a.offset for a in answers] == list(range(500))
    assert values(kafka_python.take(kafka_python.consumer(topic), 500)) == list(range(500))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(topic: str, kafka_python: Any, acks: int | str) -> None:
    answers = write(kafka_python, topic, 20, acks=acks, enable_idempotence=False)
    if acks != 0:  # nobody answers: the library counts for itself
        assert [a.offset for a in answers] == list(range(20))
    assert values(kafka_python.take(kafka_python.consumer(topic), 20)) == list(range(20))


def test_a_large_value_goes_through(topic: str, kafka_python: Any) -> None:
    large = bytes(900 * 1024)
    kafka_python.producer().send(topic, large, key=b"").get(timeout=DEADLINE_S)
    (record,) = kafka_python.take(kafka_python.consumer(topic), 1)
    assert (record.key, record.value) == (b"", large)


def test_seek_position_and_the_ends(topic: str, kafka_python: Any) -> None:
    write(kafka_python, topic, 100)
    partition = TopicPartition(topic, 0)
    consumer = kafka_python.consumer(group_id=None)
    consumer.assign([partition])
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.seek(partition, 95)
    assert values(kafka_python.take(consumer, 5)) == [95, 96, 97, 98, 99]
    assert consumer.position(partition) == 100
    consumer.seek_to_beginning(partition)
    assert values(kafka_python.take(consumer, 1))[0] == 0
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 100
    write(kafka_python, topic, 1, first=100)
    assert values(kafka_python.take(consumer, 1)) == [100]


def test_offsets_for_times(topic: str, kafka_python: Any) -> None:
    write(kafka_python, topic, 100, linger_ms=50)
    partition = TopicPartition(topic, 0)
    consumer = kafka_python.consumer()
    found = consumer.offsets_for_times({partition: START_MS + 41_500})[partition]
    assert (found.offset, found.timestamp) == (42, START_MS + 42_000)
    assert consumer.offsets_for_times({partition: START_MS + 100_000})[partition] is None


def test_a_group_commits_and_goes_on(topic: str, kafka_python: Any, unique: Callable[[str], str]) -> None:
    write(kafka_python, topic, 50)
    group, partition = unique("group"), TopicPartition(topic, 0)
    first = kafka_python.consumer(topic, group_id=group, max_poll_records=20)
    assert values(kafka_python.take(first, 20)) == list(range(20))
    first.commit({partition: OffsetAndMetadata(20, "a note", -1)})
    assert first.committed(partition) == 20
    kafka_python.open.remove(first)
    first.close(autocommit=False)

    second = kafka_python.consumer(topic, group_id=group)

    assert values(kafka_python.take(second, 30)) == list(range(20, 50))
    assert second.committed(partition, metadata=True).metadata == "a note"


def test_reading_committed_equals_reading_all_when_nothing_is_transactional(topic: str, kafka_python: Any) -> None:
    write(kafka_python, topic, 10)
    consumer = kafka_python.consumer(topic, isolation_level="read_committed")
    assert values(kafka_python.take(consumer, 10)) == list(range(10))


def test_topics_are_subscribed_by_pattern(
    bootstrap: str, create_topic: Callable[..., str], kafka_python: Any, unique: Callable[[str], str]
) -> None:
    stem = unique("pattern")
    topics = [create_topic(bootstrap, f"{stem}-{letter}") for letter in "ab"]
    for topic in topics:
        write(kafka_python, topic, 3)
    consumer = kafka_python.consumer(group_id=unique("group"))
    consumer.subscribe(pattern=f"^{re.escape(stem)}-.*")
    assert {r.topic for r in kafka_python.take(consumer, 6)} == set(topics)
    assert consumer.partitions_for_topic(topics[0]) == {0}
    assert set(topics) <= consumer.topics()


def test_topics_are_administered(kafka_python: Any, unique: Callable[[str], str], until: Callable[..., Any]) -> None:
    admin = kafka_python.admin()
    name = unique("life")
    admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})])
    until(lambda: name in admin.list_topics(), "the topic in the list")
    (told,) = admin.describe_topics([name])
    assert len(told["partitions"]) == 2
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 2, 1)])
    with pytest.raises(kafka.errors.InvalidTopicError):
        admin.create_topics([NewTopic("no spaces", 1, 1)])

    admin.create_partitions({name: NewPartitions(5)})
    until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 5, "five partitions")

    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics(), "the topic to be gone")
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_configs_are_altered_and_reset(topic: str, kafka_python: Any, until: Callable[..., Any]) -> None:
    admin = kafka_python.admin()
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    def changed() -> dict[str, str]:
        told = admin.describe_configs([resource])["topic"][topic]
        return {name: entry["value"] for name, entry in told.items()}

    settings = {"retention.ms": "90000", "cleanup.policy": "compact"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
    until(lambda: changed() == settings, "both configs")
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    until(lambda: changed() == {"cleanup.policy": "compact"}, "one config")


def test_the_cluster_is_described(bootstrap: str, kafka_python: Any) -> None:
    told = kafka_python.admin().describe_cluster()
    assert len(told["cluster_id"]) == 22
    assert int(bootstrap.rsplit(":", 1)[1]) in [broker["port"] for broker in told["brokers"]]


def test_groups_and_their_offsets_are_administered(
    topic: str, kafka_python: Any, unique: Callable[[str], str], until: Callable[..., Any]
) -> None:
    write(kafka_python, topic, 10)
    admin, group, partition = kafka_python.admin(), unique("group"), TopicPartition(topic, 0)
    member = kafka_python.consumer(topic, group_id=group, client_id="only-one")
    kafka_python.take(member, 10)
    member.commit()
    described = admin.describe_groups([group])[group]
    assert described["group_state"] == "Stable"
    assert [m["client_id"] for m in described["members"]] == ["only-one"]
    assert group in {listed["group_id"] for listed in admin.list_groups()}
    assert admin.list_group_offsets([group])[group][partition].offset == 10
    kafka_python.open.remove(member)
    member.close(autocommit=False)
    until(lambda: admin.describe_groups([group])[group]["group_state"] == "Empty", "an empty group")

    admin.alter_group_offsets(group, {partition: OffsetAndMetadata(4, "", -1)})
    assert admin.list_group_offsets([group])[group][partition].offset == 4
    admin.reset_group_offsets(group, {partition: OffsetSpec.LATEST})
    assert admin.list_group_offsets([group])[group][partition].offset == 10
    admin.delete_groups([group])
    assert group not in {listed["group_id"] for listed in admin.list_groups()}


def test_records_are_deleted_and_offsets_listed(topic: str, kafka_python: Any) -> None:
    write(kafka_python, topic, 10)
    admin, partition = kafka_python.admin(), TopicPartition(topic, 0)
    assert admin.delete_records({partition: 6})[partition]["low_watermark"] == 6

    def listed(spec: Any) -> int:
        return admin.list_partition_offsets({partition: spec})[partition].offset

    assert (listed(OffsetSpec.EARLIEST), listed(OffsetSpec.LATEST)) == (6, 10)
    assert listed(OffsetSpec.MAX_TIMESTAMP) == 9
    assert values(kafka_python.take(kafka_python.consumer(topic), 4)) == [6, 7, 8, 9]
    told = admin.list_partition_offsets({partition: OffsetSpec.EARLIEST}, IsolationLevel.READ_COMMITTED)
    assert told[partition].offset == 6
