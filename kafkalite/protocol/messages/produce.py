"""Produce (0): record batches from a client into partitions."""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import Message, array, int16, int32, int64, records, string, struct, uuid
from kafkalite.protocol.messages.metadata import LeaderIdAndEpoch, NodeEndpoint


class PartitionProduceData(Message):
    index: int = int32("0+")
    records: memoryview | None = records("0+", nullable="0+")


class TopicProduceData(Message):
    name: str = string("0-12")
    topic_id: UUID = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Message, flexible="9+"):
    transactional_id: str | None = string("3+", nullable="3+")
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Message):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+")


class PartitionProduceResponse(Message):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", mostly_empty=True)
    error_message: str | None = string("8+", nullable="8+")
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    name: str = string("0-12")
    topic_id: UUID = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


class ProduceResponse(Message, flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
