"""Share groups (KIP-932): ShareGroupHeartbeat (76), ShareGroupDescribe (77) and the offsets of a group (90 to 92).

The fields have the meanings of ConsumerGroupHeartbeat's: null is "as before". A member has no instance id, no regular
expression, and owns nothing: two members may hold one partition. A share group's offset is where a partition starts
for it: everything before is done.
"""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import (
    INT32,
    STRING,
    Message,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_struct,
    string,
    struct,
    uuid,
)
from kafkalite.protocol.messages.consumer_groups import DescribedAssignment, HeartbeatAssignment
from kafkalite.protocol.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED


class ShareGroupHeartbeatRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")  # 0: joins; -1: leaves
    rack_id: str | None = string("0+", nullable="0+")
    subscribed_topic_names: list[str] | None = array(STRING, "0+", nullable="0+", null_by_default=True)


class ShareGroupHeartbeatResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: HeartbeatAssignment | None = nullable_struct(HeartbeatAssignment, "0+")


class ShareGroupDescribeRequest(Message, flexible="0+"):
    group_ids: list[str] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("0+")


class DescribedShareGroupMember(Message):
    """Kafka's Member."""

    member_id: str = string("0+")
    rack_id: str | None = string("0+", nullable="0+")
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(STRING, "0+")
    assignment: DescribedAssignment = struct(DescribedAssignment, "0+")


class DescribedShareGroup(Message):
    """Kafka's DescribedGroup of this API."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[DescribedShareGroupMember] = array(DescribedShareGroupMember, "0+")
    authorized_operations: int = int32("0+", default=AUTHORIZED_OPERATIONS_OMITTED)


class ShareGroupDescribeResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedShareGroup] = array(DescribedShareGroup, "0+")


class DescribeShareGroupOffsetsTopic(Message):
    """Kafka's DescribeShareGroupOffsetsRequestTopic."""

    topic_name: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class DescribeShareGroupOffsetsGroup(Message):
    """Kafka's DescribeShareGroupOffsetsRequestGroup."""

    group_id: str = string("0+")
    # Null: all partitions that the group has offsets of.
    topics: list[DescribeShareGroupOffsetsTopic] | None = array(DescribeShareGroupOffsetsTopic, "0+", nullable="0+")


class DescribeShareGroupOffsetsRequest(Message, flexible="0+"):
    groups: list[DescribeShareGroupOffsetsGroup] = array(DescribeShareGroupOffsetsGroup, "0+")


class DescribedShareGroupPartition(Message):
    """Kafka's DescribeShareGroupOffsetsResponsePartition."""

    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class DescribedShareGroupTopic(Message):
    """Kafka's DescribeShareGroupOffsetsResponseTopic."""

    topic_name: str = string("0+")
    topic_id: UUID = uuid("0+")
    partitions: list[DescribedShareGroupPartition] = array(DescribedShareGroupPartition, "0+")


class DescribedShareGroupOffsets(Message):
    """Kafka's DescribeShareGroupOffsetsResponseGroup."""

    group_id: str = string("0+")
    topics: list[DescribedShareGroupTopic] = array(DescribedShareGroupTopic, "0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class DescribeShareGroupOffsetsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedShareGroupOffsets] = array(DescribedShareGroupOffsets, "0+")


class AlterShareGroupOffsetsPartition(Message):
    """Kafka's AlterShareGroupOffsetsRequestPartition."""

    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


class AlterShareGroupOffsetsTopic(Message):
    """Kafka's AlterShareGroupOffsetsRequestTopic."""

    topic_name: str = string("0+")
    partitions: list[AlterShareGroupOffsetsPartition] = array(AlterShareGroupOffsetsPartition, "0+")


class AlterShareGroupOffsetsRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    topics: list[AlterShareGroupOffsetsTopic] = array(AlterShareGroupOffsetsTopic, "0+")


class AlteredShareGroupPartition(Message):
    """Kafka's AlterShareGroupOffsetsResponsePartition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AlteredShareGroupTopic(Message):
    """Kafka's AlterShareGroupOffsetsResponseTopic."""

    topic_name: str = string("0+")
    topic_id: UUID = uuid("0+")
    partitions: list[AlteredShareGroupPartition] = array(AlteredShareGroupPartition, "0+")


class AlterShareGroupOffsetsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[AlteredShareGroupTopic] = array(AlteredShareGroupTopic, "0+")


class DeleteShareGroupOffsetsTopic(Message):
    """Kafka's DeleteShareGroupOffsetsRequestTopic."""

    topic_name: str = string("0+")


class DeleteShareGroupOffsetsRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    topics: list[DeleteShareGroupOffsetsTopic] = array(DeleteShareGroupOffsetsTopic, "0+")


class DeletedShareGroupTopic(Message):
    """Kafka's DeleteShareGroupOffsetsResponseTopic."""

    topic_name: str = string("0+")
    topic_id: UUID = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class DeleteShareGroupOffsetsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[DeletedShareGroupTopic] = array(DeletedShareGroupTopic, "0+")
