"""Requests of kafka-python's administrator besides those for topics: log directories, reassignments, single offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition, errors
from kafka.structs import OffsetAndMetadata


def test_log_directories_are_described(kafka_python: Any, create_topic: Callable[..., str], bootstrap: str) -> None:
    topic = create_topic(bootstrap, partitions=2)
    producer = kafka_python.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number * 100, partition=1).get(10)
    (broker,) = kafka_python.admin().describe_log_dirs({topic: [0, 1]})
    (directory,) = broker["log_dirs"]
    assert directory["error_code"] == 0
    (described,) = directory["topics"]
    sizes = {one["partition_index"]: one["partition_size"] for one in described["partitions"]}
    assert (described["name"], sizes[0]) == (topic, 0)
    assert sizes[1] > 1000
    assert directory["total_bytes"] > directory["usable_bytes"] > 0


def test_no_reassignment_is_under_way(kafka_python: Any, topic: str) -> None:
    assert kafka_python.admin().list_partition_reassignments() == {}
    assert kafka_python.admin().list_partition_reassignments([TopicPartition(topic, 0)]) == {}


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
