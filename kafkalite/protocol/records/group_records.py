"""Schemas of the records in __consumer_offsets: committed offsets and classic groups.

Source: OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json, GroupMetadataValue.json of Apache Kafka.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, array, blob, int32, int64, string

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
