"""Schemas of the records in __consumer_offsets, __transaction_state and __share_group_state, and of the bytes in them.

Of groups: committed offsets, classic groups with the subscriptions and assignments of their consumers, consumer groups
(KIP-848) and share groups (KIP-932). Those of groups of Kafka Streams are in `streams_records.py`.
Source: the *Key.json and *Value.json of Apache Kafka's group-coordinator; TransactionLogKey.json and
TransactionLogValue.json (4.0).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol import streams_records as streams
from kafkalite.protocol.codec.codec import known_version_of, read_versioned, versioned
from kafkalite.protocol.codec.schema import (
    INT32,
    STRING,
    Message,
    array,
    blob,
    int8,
    int16,
    int32,
    int64,
    nullable_struct,
    string,
)
from kafkalite.protocol.codec.schema import uuid as id16

NO_TIMESTAMP = -1


class OffsetCommitKey(Message):
    group: str = string("0-1")
    topic: str = string("0-1")
    partition: int = int32("0-1")


class OffsetCommitValue(Message, flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=NO_TIMESTAMP)
    topic_id: uuid.UUID = id16("4+", tag=0)  # where it was committed by id


class GroupMetadataKey(Message):
    group: str = string("2")


class MemberMetadata(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32("0+")
    subscription: bytes = blob("0+")
    assignment: bytes = blob("0+")


class GroupMetadataValue(Message, flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=NO_TIMESTAMP)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


class GroupIdKey(Message):
    """The keys ConsumerGroupMetadata, ConsumerGroupPartitionMetadata and ConsumerGroupTargetAssignmentMetadata."""

    group_id: str = string("0+")


class MemberKey(Message):
    """The keys ConsumerGroupMemberMetadata, ...TargetAssignmentMember and ...CurrentMemberAssignment."""

    group_id: str = string("0+")
    member_id: str = string("0+")


class GroupEpochValue(Message, flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", default=0, tag=0)


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
    classic_member_metadata: ClassicMemberMetadata | None = nullable_struct(ClassicMemberMetadata, "0+", tag=0)


class AssignmentEpochValue(Message, flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", default=0, tag=0)


class TopicIdPartitions(Message):
    topic_id: uuid.UUID = id16("0+")
    partitions: list[int] = array(INT32, "0+")


class TargetAssignmentValue(Message, flexible="0+"):
    topic_partitions: list[TopicIdPartitions] = array(TopicIdPartitions, "0+")


class AssignedTopicPartitions(Message):
    """Kafka's TopicPartitions. `assignment_epochs` are as many as `partitions`, or none in a record from before 4.3."""

    topic_id: uuid.UUID = id16("0+")
    partitions: list[int] = array(INT32, "0+")
    assignment_epochs: list[int] = array(INT32, "0+", tag=0)


class CurrentAssignmentValue(Message, flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[AssignedTopicPartitions] = array(AssignedTopicPartitions, "0+")
    partitions_pending_revocation: list[AssignedTopicPartitions] = array(AssignedTopicPartitions, "0+")


class RegularExpressionKey(Message):
    group_id: str = string("0+")
    regular_expression: str = string("0+")


class RegularExpressionValue(Message, flexible="0+"):
    topics: list[str] = array(STRING, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


class ShareMemberMetadataValue(Message, flexible="0+"):
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(STRING, "0+")


class ShareCurrentAssignmentValue(Message, flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicIdPartitions] = array(TopicIdPartitions, "0+")


class SharedTopicPartitions(Message):
    """Kafka's TopicPartitionsInfo."""

    topic_id: uuid.UUID = id16("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class SharedTopic(Message):
    """Kafka's TopicInfo."""

    topic_id: uuid.UUID = id16("0+")
    topic_name: str = string("0+")


class StatePartitionMetadataValue(Message, flexible="0+"):
    """The partitions whose state the share coordinator has, will have, and is to delete."""

    initializing_topics: list[SharedTopicPartitions] = array(SharedTopicPartitions, "0+")
    initialized_topics: list[SharedTopicPartitions] = array(SharedTopicPartitions, "0+")
    deleting_topics: list[SharedTopic] = array(SharedTopic, "0+")


class RecordKind(NamedTuple):
    """The key and the value of a kind of record, and the last known version of the value."""

    key: type[Message]
    value: type[Message]
    value_version_max: int


GROUP_RECORDS = {
    0: RecordKind(OffsetCommitKey, OffsetCommitValue, 4),
    1: RecordKind(OffsetCommitKey, OffsetCommitValue, 4),
    2: RecordKind(GroupMetadataKey, GroupMetadataValue, 4),
    3: RecordKind(GroupIdKey, GroupEpochValue, 0),
    4: RecordKind(GroupIdKey, PartitionMetadataValue, 0),
    5: RecordKind(MemberKey, MemberMetadataValue, 0),
    6: RecordKind(GroupIdKey, AssignmentEpochValue, 0),
    7: RecordKind(MemberKey, TargetAssignmentValue, 0),
    8: RecordKind(MemberKey, CurrentAssignmentValue, 0),
    10: RecordKind(MemberKey, ShareMemberMetadataValue, 0),
    11: RecordKind(GroupIdKey, GroupEpochValue, 0),
    12: RecordKind(GroupIdKey, AssignmentEpochValue, 0),
    13: RecordKind(MemberKey, TargetAssignmentValue, 0),
    14: RecordKind(MemberKey, ShareCurrentAssignmentValue, 0),
    15: RecordKind(GroupIdKey, StatePartitionMetadataValue, 0),
    16: RecordKind(RegularExpressionKey, RegularExpressionValue, 0),
    17: RecordKind(GroupIdKey, streams.StreamsGroupMetadataValue, 0),
    19: RecordKind(MemberKey, streams.StreamsMemberMetadataValue, 0),
    20: RecordKind(GroupIdKey, AssignmentEpochValue, 0),
    21: RecordKind(MemberKey, streams.StreamsTargetAssignmentValue, 0),
    22: RecordKind(MemberKey, streams.StreamsCurrentAssignmentValue, 0),
    23: RecordKind(GroupIdKey, streams.StreamsTopologyValue, 0),
}
"""By the version of the key."""


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


_SUBSCRIPTION_VERSION_MAX = 3


def read_subscription(subscription: bytes) -> ConsumerProtocolSubscription:
    """All of a member's subscription; newer versions begin like the last known one. Raises Malformed."""
    version = min(known_version_of(subscription, _VERSION_MAX), _SUBSCRIPTION_VERSION_MAX)
    return read_versioned(ConsumerProtocolSubscription, version, subscription)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """All of a member's assignment, whose every version begins like version 0. Raises Malformed."""
    known_version_of(assignment, _VERSION_MAX)
    return read_versioned(ConsumerProtocolAssignment, 0, assignment)


def subscription_version(subscription: bytes) -> int:
    """The version in which a member understands its assignment. Raises Malformed."""
    return min(known_version_of(subscription, _VERSION_MAX), _SUBSCRIPTION_VERSION_MAX)


def encode_assignment(partitions: Iterable[tuple[str, list[int]]], version: int) -> bytes:
    """The assignment of a consumer, without data of an assignor."""
    rows = [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in partitions]
    return versioned(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None), version)


TRANSACTION_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
"""The names of the states, by `transaction_status`."""


class TransactionLogKey(Message):
    transactional_id: str = string("0+")


class TransactionPartitions(Message):
    topic: str = string("0+")
    partition_ids: list[int] = array(INT32, "0+")


class TransactionLogValue(Message, flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[TransactionPartitions] | None = array(TransactionPartitions, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)


class SharePartitionKey(Message):
    """Kafka's ShareSnapshotKey and ShareUpdateKey."""

    group_id: str = string("0+")
    topic_id: uuid.UUID = id16("0+")
    partition: int = int32("0+")


class StateBatch(Message):
    """Consecutive records in one state; `last_offset` is inclusive."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class ShareSnapshotValue(Message, flexible="0+"):
    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ShareUpdateValue(Message, flexible="0+"):
    """A change since the last snapshot."""

    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


SHARE_SNAPSHOT = 0
SHARE_UPDATE = 1
SHARE_STATE_RECORDS = {
    SHARE_SNAPSHOT: RecordKind(SharePartitionKey, ShareSnapshotValue, 0),
    SHARE_UPDATE: RecordKind(SharePartitionKey, ShareUpdateValue, 0),
}
"""By the version of the key, in `__share_group_state`."""
