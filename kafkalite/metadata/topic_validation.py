"""Checks of a new topic, and of a topic that is to grow, with Kafka's codes and words.

Source: kafka.zk.AdminZkClient.validateTopicCreate, kafka.server.ZkAdminManager, kafka.admin.AdminUtils.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import collides, topic_name_fault

PARTITION_COUNT_MAX = 100_000  # of one topic: each is a directory with open files


def check_new_topic(name: str, partition_count: int, others: Iterable[str]) -> None:
    """Raises the KafkaError for which this topic cannot be created beside `others`: 17, 36, 37."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name in others:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if partition_count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    _check_not_too_many(partition_count)
    if "." in name or "_" in name:
        for other in others:
            if collides(name, other):
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )


def check_more_partitions(name: str, current: int, total_count: int) -> None:
    """Raises KafkaError(INVALID_PARTITIONS) unless a topic can grow from `current` to `total_count` partitions."""
    if total_count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partitions.")
    if total_count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {current} partition(s); {total_count} would not be an increase.",
        )
    _check_not_too_many(total_count)


def _check_not_too_many(partition_count: int) -> None:
    if partition_count > PARTITION_COUNT_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must not be larger than {PARTITION_COUNT_MAX}."
        )
