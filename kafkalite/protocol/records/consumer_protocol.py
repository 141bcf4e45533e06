"""Schemas of the subscription and the assignment of classic consumers, which are bytes in JoinGroup and SyncGroup."""

from __future__ import annotations

from kafkalite.protocol.codec.primitives import INT32, STRING
from kafkalite.protocol.codec.schema import Message, array, blob, int32, string


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
