"""DescribeQuorum (55): the voters and observers of a Raft quorum (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import Message, array, int16, int32, int64, string, uint16, uuid


class DescribeQuorumPartitionData(Message):
    partition_index: int = int32("0+")


class DescribeQuorumTopicData(Message):
    topic_name: str = string("0+")
    partitions: list[DescribeQuorumPartitionData] = array(DescribeQuorumPartitionData, "0+")


class DescribeQuorumRequest(Message, flexible="0+"):
    topics: list[DescribeQuorumTopicData] = array(DescribeQuorumTopicData, "0+")


class QuorumReplicaState(Message):
    """Kafka's ReplicaState of this API."""

    replica_id: int = int32("0+")
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class DescribeQuorumPartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", default="")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[QuorumReplicaState] = array(QuorumReplicaState, "0+")
    observers: list[QuorumReplicaState] = array(QuorumReplicaState, "0+")


class DescribeQuorumTopic(Message):
    topic_name: str = string("0+")
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition, "0+")


class QuorumListener(Message):
    """Kafka's Listener of this API."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class QuorumNode(Message):
    """Kafka's Node of this API."""

    node_id: int = int32("2+")
    listeners: list[QuorumListener] = array(QuorumListener, "2+")


class DescribeQuorumResponse(Message, flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", default="")
    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic, "0+")
    nodes: list[QuorumNode] = array(QuorumNode, "2+")
