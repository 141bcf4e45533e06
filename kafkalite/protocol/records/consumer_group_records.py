"""Schemas of the records in __consumer_offsets of groups with the consumer protocol (KIP-848)."""

from __future__ import annotations

import uuid

from kafkalite.protocol.codec.primitives import INT32, STRING
from kafkalite.protocol.codec.schema import Message, array, blob, int8, int32, string
from kafkalite.protocol.codec.schema import struct as tagged
from kafkalite.protocol.codec.schema import uuid as id16


class GroupIdKey(Message):
    """The keys ConsumerGroupMetadata, ConsumerGroupPartitionMetadata and ConsumerGroupTargetAssignmentMetadata."""

    group_id: str = string("0+")


class MemberKey(Message):
    """The keys ConsumerGroupMemberMetadata, ...TargetAssignmentMember and ...CurrentMemberAssignment."""

    group_id: str = string("0+")
    member_id: str = string("0+")


class GroupEpochValue(Message, flexible="0+"):
    epoch: int = int32("0+")


class PartitionRacks(Message):
    partition: int = int32("0+")
    racks: list[str] = array(STRING, "0+")


class TopicRacks(Message):
    topic_id: uuid.UUID = id16("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionRacks] = array(PartitionRacks, "0+")


class PartitionMetadataValue(Message, flexible="0+"):
    topics: list[TopicRacks] = array(TopicRacks, "0+")


class ClassicProtocol(Message):
    name: str = string("0+")
    metadata: bytes = blob("0+")


class ClassicMemberMetadata(Message):
    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class MemberMetadataValue(Message, flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(STRING, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = tagged(ClassicMemberMetadata, "0+", tag=0)


class AssignmentEpochValue(Message, flexible="0+"):
    assignment_epoch: int = int32("0+")


class TopicIdPartitions(Message):
    topic_id: uuid.UUID = id16("0+")
    partitions: list[int] = array(INT32, "0+")


class TargetAssignmentValue(Message, flexible="0+"):
    topic_partitions: list[TopicIdPartitions] = array(TopicIdPartitions, "0+")


class CurrentAssignmentValue(Message, flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicIdPartitions] = array(TopicIdPartitions, "0+")
    partitions_pending_revocation: list[TopicIdPartitions] = array(TopicIdPartitions, "0+")
