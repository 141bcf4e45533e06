"""ElectLeaders (43): elections of preferred leaders (KIP-183), and of leaders that are not in sync (KIP-460).
AlterPartitionReassignments (45), ListPartitionReassignments (46): partitions move to other brokers (KIP-455)."""

from __future__ import annotations

from kafkalite.protocol.codec.schema import INT32, Message, array, int8, int16, int32, string


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


class ReassignablePartition(Message):
    """`replicas` None cancels the reassignment."""

    partition_index: int = int32("0+")
    replicas: list[int] | None = array(INT32, "0+", nullable="0+")


class ReassignableTopic(Message):
    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Message, flexible="0+"):
    timeout_ms: int = int32("0+", default=60_000)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReassignableTopicResponse(Message):
    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


class AlterPartitionReassignmentsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")


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
