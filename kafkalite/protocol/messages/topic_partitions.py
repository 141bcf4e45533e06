"""DescribeTopicPartitions (75): partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import (
    INT32,
    Message,
    array,
    boolean,
    int16,
    int32,
    nullable_struct,
    string,
    uuid,
)
from kafkalite.protocol.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED


class TopicRequest(Message):
    name: str = string("0+")


class Cursor(Message):
    """The first partition of a page, in the request and in the answer."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Message, flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest, "0+")  # none: all topics
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = nullable_struct(Cursor, "0+")


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1)
    replica_nodes: list[int] = array(INT32, "0+")
    isr_nodes: list[int] = array(INT32, "0+")
    eligible_leader_replicas: list[int] | None = array(INT32, "0+", nullable="0+", null_by_default=True)
    last_known_elr: list[int] | None = array(INT32, "0+", nullable="0+", null_by_default=True)
    offline_replicas: list[int] = array(INT32, "0+")


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+", default="")
    topic_id: UUID = uuid("0+")
    is_internal: bool = boolean("0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = int32("0+", default=AUTHORIZED_OPERATIONS_OMITTED)


class DescribeTopicPartitionsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = nullable_struct(Cursor, "0+")
