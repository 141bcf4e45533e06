"""Requests of kafka-python's administrator besides those for topics: log directories, reassignments, single offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition, errors
from kafka.structs import OffsetAndMetadata

UNKNOWN_BROKER = 77


def test_log_directories_are_described(kafka_python: Any, create_topic: Callable[..., str], bootstrap: str) -> None:
    topic = create_topic(bootstrap, partitions=2)
    producer = kafka_python.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number * 100, partition=1).get(10)
    sizes = {}
    for broker in kafka_python.admin().describe_log_dirs({topic: [0, 1]}):
        (directory,) = broker["log_dirs"]
        assert directory["error_code"] == 0
        assert directory["total_bytes"] > directory["usable_bytes"] > 0
        for described in directory["topics"]:
            sizes |= {
                (described["name"], one["partition_index"]): one["partition_size"] for one in described["partitions"]
            }
    assert sizes.keys() == {(topic, 0), (topic, 1)}
    assert sizes[topic, 0] == 0 and sizes[topic, 1] > 1000


def leader_of(kafka_python: Any, topic: str) -> int:
    (described,) = kafka_python.admin().describe_topics([topic])
    return int(described["partitions"][0]["leader_id"])


def test_no_reassignment_is_under_way(kafka_python: Any, topic: str) -> None:
    assert kafka_python.admin().list_partition_reassignments() == {}
    assert kafka_python.admin().list_partition_reassignments([TopicPartition(topic, 0)]) == {}


def test_a_replica_is_reassigned_to_where_it_is(kafka_python: Any, topic: str) -> None:
    admin, partition = kafka_python.admin(), TopicPartition(topic, 0)
    here = [leader_of(kafka_python, topic)]
    assert admin.alter_partition_reassignments({partition: here}) == {partition: None}
    for target, refusal in (
        ([UNKNOWN_BROKER], errors.for_code(39)),
        (None, errors.for_code(85)),
    ):
        assert admin.alter_partition_reassignments({partition: target}) == {partition: refusal}
    nowhere = TopicPartition(topic, 9)
    assert admin.alter_partition_reassignments({nowhere: here}) == {nowhere: errors.UnknownTopicOrPartitionError}


@pytest.mark.parametrize("kind", [0, 1])
def test_an_election_is_not_needed(kafka_python: Any, topic: str, kind: int) -> None:
    admin = kafka_python.admin()
    answer = admin.elect_leaders(kind, {topic: [0, 9]}, raise_errors=False)
    ((name, codes),) = [
        (result.topic, [one.error_code for one in result.partition_result])
        for result in answer.replica_election_results
    ]
    assert (name, codes) == (topic, [84, 3])
    everything = admin.elect_leaders(kind).replica_election_results  # the client names each partition
    assert {one.error_code for result in everything for one in result.partition_result} == {84}


def test_a_log_is_moved_to_where_it_is(kafka_python: Any, topic: str) -> None:
    admin = kafka_python.admin()
    broker = leader_of(kafka_python, topic)
    (directory,) = [
        one["log_dir"] for each in admin.describe_log_dirs() for one in each["log_dirs"] if each["broker"] == broker
    ]
    replica, nowhere = (topic, 0, broker), (topic, 9, broker)
    assert set(admin.alter_replica_log_dirs({replica: directory}).values()) == {errors.NoError}
    assert set(admin.alter_replica_log_dirs({replica: "/nowhere"}).values()) == {errors.LogDirNotFoundError}
    assert set(admin.alter_replica_log_dirs({nowhere: directory}).values()) == {errors.UnknownTopicOrPartitionError}


def test_single_offsets_of_a_group_are_deleted(
    kafka_python: Any, create_topic: Callable[..., str], unique: Callable[[str], str], bootstrap: str
) -> None:
    read, other, group = create_topic(bootstrap), create_topic(bootstrap), unique("group")
    admin = kafka_python.admin()
    consumer = kafka_python.consumer(read, group_id=group)
    kafka_python.producer().send(read, b"x", partition=0).get(10)
    kafka_python.take(consumer, 1)
    mine = {
        TopicPartition(read, 0): OffsetAndMetadata(1, "", -1),
        TopicPartition(other, 0): OffsetAndMetadata(7, "", -1),
    }
    consumer.commit(mine)
    codes = admin.delete_group_offsets(group, list(mine))
    assert codes == {
        TopicPartition(read, 0): errors.GroupSubscribedToTopicError,
        TopicPartition(other, 0): errors.NoError,
    }
    consumer.close()
    kafka_python.open.remove(consumer)
    assert admin.delete_group_offsets(group, [TopicPartition(read, 0)]) == {TopicPartition(read, 0): errors.NoError}
    with pytest.raises(errors.GroupIdNotFoundError):
        admin.delete_group_offsets(group, [TopicPartition(read, 0)])
