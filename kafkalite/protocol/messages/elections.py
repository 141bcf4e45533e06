"""ElectLeaders (43): elections of preferred leaders (KIP-183), and of leaders that are not in sync (KIP-460)."""

from __future__ import annotations

from kafkalite.protocol.codec.primitives import INT32
from kafkalite.protocol.codec.schema import Message, array, int8, int16, int32, string


class TopicPartitions(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class ElectLeadersRequest(Message, flexible="2+"):
    """`topic_partitions` None means all partitions. Version 0 elects preferred leaders only."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60_000)


class PartitionResult(Message):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReplicaElectionResult(Message):
    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


class ElectLeadersResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
