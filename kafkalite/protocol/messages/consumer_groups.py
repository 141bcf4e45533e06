"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69): groups in which the coordinator assigns (KIP-848).

A null field of a heartbeat means "as before", an empty one is a value: no topics, no partitions. The assignment of an
answer is null while it is as before. Topics travel as ids.
"""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import (
    INT32,
    STRING,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_struct,
    string,
    struct,
    uuid,
)
from kafkalite.protocol.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED


class HeartbeatTopicPartitions(Message):
    """Kafka's TopicPartitions, in the request and in the answer."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(INT32, "0+")


class ConsumerGroupHeartbeatRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")  # 0: joins; -1: leaves; -2: a static member that will return
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array(STRING, "0+", nullable="0+", null_by_default=True)
    subscribed_topic_regex: str | None = string("1+", nullable="1+")
    server_assignor: str | None = string("0+", nullable="0+")
    # The partitions that the member owns.
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(
        HeartbeatTopicPartitions, "0+", nullable="0+", null_by_default=True
    )


class HeartbeatAssignment(Message):
    """Kafka's Assignment of the heartbeat."""

    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions, "0+")


class ConsumerGroupHeartbeatResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: HeartbeatAssignment | None = nullable_struct(HeartbeatAssignment, "0+")


class ConsumerGroupDescribeRequest(Message, flexible="0+"):
    group_ids: list[str] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("0+")


class DescribedTopicPartitions(Message):
    """Kafka's TopicPartitions of the description."""

    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class DescribedAssignment(Message):
    """Kafka's Assignment of the description."""

    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions, "0+")


class DescribedConsumerGroupMember(Message):
    """Kafka's Member."""

    member_id: str = string("0+")
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(STRING, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    target_assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    member_type: int = int8("1+", default=-1)  # 0: of the classic protocol, 1: of the consumer protocol


class DescribedConsumerGroup(Message):
    """Kafka's DescribedGroup of this API."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[DescribedConsumerGroupMember] = array(DescribedConsumerGroupMember, "0+")
    authorized_operations: int = int32("0+", default=AUTHORIZED_OPERATIONS_OMITTED)


class ConsumerGroupDescribeResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup, "0+")
