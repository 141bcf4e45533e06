"""Schemas of the subscription and the assignment of classic consumers, which are bytes in JoinGroup and SyncGroup."""

from __future__ import annotations

import struct

from kafkalite.common.names import TopicPartition
from kafkalite.protocol.codec.primitives import INT32, STRING
from kafkalite.protocol.codec.schema import Message, array, blob, int32, string

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_INT = struct.Struct(">i")


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
    """The partitions in a member's assignment, whose every version begins like version 0: version i16, then an array of
    topic and array of partitions. Empty for bytes that are none. Source: ConsumerProtocolAssignment.json."""
    found: set[TopicPartition] = set()
    try:
        _, topic_count = _VERSION_AND_COUNT.unpack_from(assignment)
        at = _VERSION_AND_COUNT.size
        for _ in range(min(topic_count, len(assignment))):
            (length,) = _LENGTH.unpack_from(assignment, at)
            at += _LENGTH.size
            topic = assignment[at : at + length].decode()
            (count,) = _INT.unpack_from(assignment, at + length)
            at += length + _INT.size
            found.update((topic, index) for index in struct.unpack_from(f">{count}i", assignment, at))
            at += count * _INT.size
    except (struct.error, UnicodeDecodeError):
        return frozenset()
    return frozenset(found)
