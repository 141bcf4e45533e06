"""Schemas of the subscription and the assignment of classic consumers, which are bytes in JoinGroup and SyncGroup."""

from __future__ import annotations

from kafkalite.common.errors import Malformed
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.codec.primitives import INT32, STRING
from kafkalite.protocol.codec.schema import Message, array, blob, int32, string
from kafkalite.protocol.codec.versioned import known_version_of, read_versioned

CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION_MAX = (1 << 15) - 1


class TopicPartitions(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class ConsumerProtocolSubscription(Message):
    topics: list[str] = array(STRING, "0+")
    user_data: bytes | None = blob("0+", nullable="0+")
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+")


class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
    user_data: bytes | None = blob("0+", nullable="0+")


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition]:
    """The partitions in a member's assignment, whose every version begins like version 0. Empty for bytes that are
    none."""
    try:
        known_version_of(assignment, _VERSION_MAX)
        owned = read_versioned(ConsumerProtocolAssignment, 0, assignment).assigned_partitions
    except Malformed:
        return frozenset()
    return frozenset((each.topic, index) for each in owned for index in each.partitions)


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """The topics in a member's subscription, whose every version begins like version 0; None for bytes that are none.
    Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol.deserializeSubscription."""
    try:
        known_version_of(subscription, _VERSION_MAX)
        return read_versioned(ConsumerProtocolSubscription, 0, subscription).topics
    except Malformed:
        return None
