"""The durable state of share partitions (KIP-932): the requests of leaders to a share coordinator (83 to 87).

One state for each group, topic id and partition: where it starts and what is known of the records after it. A state
epoch belongs to the group (higher after its offsets were altered), a leader epoch to the partition: a lower one of
either is fenced. There is no error for a whole answer and no throttling.
"""

from __future__ import annotations

from uuid import UUID

from kafkalite.protocol.codec.schema import Message, array, int8, int16, int32, int64, string, uuid


class StateBatch(Message):
    """Consecutive records in one state, in requests, answers and records of the share coordinator."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")  # inclusive
    delivery_state: int = int8("0+")  # 0: available, 2: acknowledged, 4: archived
    delivery_count: int = int16("0+")


class SharePartitionResult(Message):
    """Kafka's PartitionResult of the answers that only say whether it was done."""

    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ShareTopicResult(Message):
    """Kafka's InitializeStateResult, WriteStateResult and DeleteStateResult."""

    topic_id: UUID = uuid("0+")
    partitions: list[SharePartitionResult] = array(SharePartitionResult, "0+")


class InitializeSharePartition(Message):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")  # -1: by the group's share.auto.offset.reset at the first read


class InitializeShareTopic(Message):
    """Kafka's InitializeStateData."""

    topic_id: UUID = uuid("0+")
    partitions: list[InitializeSharePartition] = array(InitializeSharePartition, "0+")


class InitializeShareGroupStateRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    topics: list[InitializeShareTopic] = array(InitializeShareTopic, "0+")


class InitializeShareGroupStateResponse(Message, flexible="0+"):
    results: list[ShareTopicResult] = array(ShareTopicResult, "0+")


class ReadSharePartition(Message):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadShareTopic(Message):
    """Kafka's ReadStateData and ReadStateSummaryData."""

    topic_id: UUID = uuid("0+")
    partitions: list[ReadSharePartition] = array(ReadSharePartition, "0+")


class ReadShareGroupStateRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    topics: list[ReadShareTopic] = array(ReadShareTopic, "0+")


class SharePartitionState(Message):
    """Kafka's PartitionResult of a read."""

    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")  # -1: not known yet
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ShareTopicState(Message):
    """Kafka's ReadStateResult."""

    topic_id: UUID = uuid("0+")
    partitions: list[SharePartitionState] = array(SharePartitionState, "0+")


class ReadShareGroupStateResponse(Message, flexible="0+"):
    results: list[ShareTopicState] = array(ShareTopicState, "0+")


class WriteSharePartition(Message):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")  # -1: as before
    delivery_complete_count: int = int32("1+", default=-1)  # terminal records from the start offset on (KIP-1226)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class WriteShareTopic(Message):
    """Kafka's WriteStateData."""

    topic_id: UUID = uuid("0+")
    partitions: list[WriteSharePartition] = array(WriteSharePartition, "0+")


class WriteShareGroupStateRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    topics: list[WriteShareTopic] = array(WriteShareTopic, "0+")


class WriteShareGroupStateResponse(Message, flexible="0+"):
    results: list[ShareTopicResult] = array(ShareTopicResult, "0+")


class DeleteSharePartition(Message):
    partition: int = int32("0+")


class DeleteShareTopic(Message):
    """Kafka's DeleteStateData."""

    topic_id: UUID = uuid("0+")
    partitions: list[DeleteSharePartition] = array(DeleteSharePartition, "0+")


class DeleteShareGroupStateRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    topics: list[DeleteShareTopic] = array(DeleteShareTopic, "0+")


class DeleteShareGroupStateResponse(Message, flexible="0+"):
    results: list[ShareTopicResult] = array(ShareTopicResult, "0+")


class ReadShareGroupStateSummaryRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    topics: list[ReadShareTopic] = array(ReadShareTopic, "0+")


class SharePartitionSummary(Message):
    """Kafka's PartitionResult of a summary."""

    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1)


class ShareTopicSummary(Message):
    """Kafka's ReadStateSummaryResult."""

    topic_id: UUID = uuid("0+")
    partitions: list[SharePartitionSummary] = array(SharePartitionSummary, "0+")


class ReadShareGroupStateSummaryResponse(Message, flexible="0+"):
    results: list[ShareTopicSummary] = array(ShareTopicSummary, "0+")
