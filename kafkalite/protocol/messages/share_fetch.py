"""ShareFetch (78) and ShareAcknowledge (79): a member of a share group reads records and acknowledges them (KIP-932).

Both go to the leader of the partitions and share the epochs of one session. Whole record batches are sent; the
acquired records of an answer say which offsets the member holds. Acknowledgements travel with the next fetch or alone.
"""

from __future__ import annotations

from uuid import UUID

from kafkalite.common.region import Part
from kafkalite.protocol.codec.schema import (
    INT8,
    INT32,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)
from kafkalite.protocol.messages.metadata import NodeEndpoint


class AcknowledgementBatch(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")  # inclusive
    # One for all offsets or one for each. 0: gap, 1: accept, 2: release, 3: reject, 4: renew.
    acknowledge_types: list[int] = array(INT8, "0+")


class ShareFetchPartition(Message):
    """Kafka's FetchPartition of this API."""

    partition_index: int = int32("0+")
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+", mostly_empty=True)


class ShareFetchTopic(Message):
    """Kafka's FetchTopic of this API."""

    topic_id: UUID = uuid("0+")
    partitions: list[ShareFetchPartition] = array(ShareFetchPartition, "0+")


class ShareForgottenTopic(Message):
    """Kafka's ForgottenTopic of this API."""

    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(INT32, "0+")


class ShareFetchRequest(Message, flexible="0+"):
    group_id: str | None = string("0+", nullable="0+")
    member_id: str | None = string("0+", nullable="0+", default="")
    share_session_epoch: int = int32("0+")  # 0: opens a session; -1: closes it
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=0x7FFFFFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+")  # 0: whole batches, 1: no more records than asked for (KIP-1206)
    is_renew_ack: bool = boolean("2+")  # the acknowledgements renew locks, nothing is fetched (KIP-1222)
    topics: list[ShareFetchTopic] = array(ShareFetchTopic, "0+")
    forgotten_topics_data: list[ShareForgottenTopic] = array(ShareForgottenTopic, "0+", mostly_empty=True)


class ShareLeader(Message):
    """Kafka's LeaderIdAndEpoch of these APIs: zeros where the answer names none."""

    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class AcquiredRecords(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")  # inclusive
    delivery_count: int = int16("0+")


class ShareFetchedPartition(Message):
    """Kafka's PartitionData of this API."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = string("0+", nullable="0+")
    current_leader: ShareLeader = struct(ShareLeader, "0+")
    records: Part | list[Part] | None = records("0+", nullable="0", null_sent_as_empty=True)
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords, "0+")


class ShareFetchedTopic(Message):
    """Kafka's ShareFetchableTopicResponse."""

    topic_id: UUID = uuid("0+")
    partitions: list[ShareFetchedPartition] = array(ShareFetchedPartition, "0+")


class ShareFetchResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchedTopic] = array(ShareFetchedTopic, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+", mostly_empty=True)


class ShareAcknowledgePartition(Message):
    """Kafka's AcknowledgePartition."""

    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class ShareAcknowledgeTopic(Message):
    """Kafka's AcknowledgeTopic."""

    topic_id: UUID = uuid("0+")
    partitions: list[ShareAcknowledgePartition] = array(ShareAcknowledgePartition, "0+")


class ShareAcknowledgeRequest(Message, flexible="0+"):
    group_id: str | None = string("0+", nullable="0+")
    member_id: str | None = string("0+", nullable="0+", default="")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+")
    topics: list[ShareAcknowledgeTopic] = array(ShareAcknowledgeTopic, "0+")


class ShareAcknowledgedPartition(Message):
    """Kafka's PartitionData of this API."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    current_leader: ShareLeader = struct(ShareLeader, "0+")


class ShareAcknowledgedTopic(Message):
    """Kafka's ShareAcknowledgeTopicResponse."""

    topic_id: UUID = uuid("0+")
    partitions: list[ShareAcknowledgedPartition] = array(ShareAcknowledgedPartition, "0+")


class ShareAcknowledgeResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgedTopic] = array(ShareAcknowledgedTopic, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+", mostly_empty=True)
