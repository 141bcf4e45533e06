"""ListPartitionReassignments (46): partitions that are being moved to other brokers."""

from __future__ import annotations

from kafkalite.protocol.codec.primitives import INT32
from kafkalite.protocol.codec.schema import Message, array, int16, int32, string


class ListPartitionReassignmentsTopics(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(INT32, "0+")


class ListPartitionReassignmentsRequest(Message, flexible="0+"):
    timeout_ms: int = int32("0+", default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(ListPartitionReassignmentsTopics, "0+", nullable="0+")


class OngoingPartitionReassignment(Message):
    partition_index: int = int32("0+")
    replicas: list[int] = array(INT32, "0+")
    adding_replicas: list[int] = array(INT32, "0+")
    removing_replicas: list[int] = array(INT32, "0+")


class OngoingTopicReassignment(Message):
    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


class ListPartitionReassignmentsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
