"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), DeleteRecords (21): topics, partitions, records."""

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
    int64,
    string,
    uuid,
)


class CreatableReplicaAssignment(Message):
    partition_index: int = int32("0+")
    broker_ids: list[int] = array(INT32, "0+")


class CreatableTopicConfig(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class CreatableTopic(Message):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


class CreateTopicsRequest(Message, flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Message):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Message):
    name: str = string("0+")
    topic_id: UUID = uuid("7+")
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


class CreateTopicsResponse(Message, flexible="5+"):
    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")


class DeleteTopicState(Message):
    name: str | None = string("6+", nullable="6+")
    topic_id: UUID = uuid("6+")


class DeleteTopicsRequest(Message, flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(STRING, "0-5")
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Message):
    name: str | None = string("0+", nullable="6+", default="")
    topic_id: UUID = uuid("6+")
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+")


class DeleteTopicsResponse(Message, flexible="4+"):
    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")


class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = array(INT32, "0+")


class CreatePartitionsTopic(Message):
    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


class CreatePartitionsRequest(Message, flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


class CreatePartitionsTopicResult(Message):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class CreatePartitionsResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")


class DeleteRecordsPartition(Message):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


class DeleteRecordsTopic(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


class DeleteRecordsRequest(Message, flexible="2+"):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


class DeleteRecordsPartitionResult(Message):
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


class DeleteRecordsTopicResult(Message):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


class DeleteRecordsResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
