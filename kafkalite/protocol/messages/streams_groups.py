"""StreamsGroupHeartbeat (88) and StreamsGroupDescribe (89): groups whose coordinator assigns tasks (KIP-1071).

A member sends its topology when it joins, and the tasks that it owns when they changed. A task is a partition of a
subtopology; active tasks process records, standby tasks keep a copy of the state, warm-up tasks catch up to become
active. Null is "as before".
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import (
    INT16,
    INT32,
    STRING,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_struct,
    string,
    struct,
    uint16,
)
from kafkalite.protocol.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED


class StreamsKeyValue(Message):
    """Kafka's KeyValue: a client tag or a topic's setting."""

    key: str = string("0+")
    value: str = string("0+")


class StreamsTopicInfo(Message):
    """Kafka's TopicInfo: an internal topic, a changelog or for repartitioning."""

    name: str = string("0+")
    partitions: int = int32("0+")  # 0: the coordinator decides
    replication_factor: int = int16("0+")  # 0: the broker's default
    topic_configs: list[StreamsKeyValue] = array(StreamsKeyValue, "0+")


class StreamsEndpoint(Message):
    """Kafka's Endpoint: where a member answers interactive queries."""

    host: str = string("0+")
    port: int = uint16("0+")


class StreamsTaskOffset(Message):
    """Kafka's TaskOffset."""

    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


class StreamsTaskIds(Message):
    """Kafka's TaskIds: tasks of one subtopology."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class StreamsCopartitionGroup(Message):
    """Kafka's CopartitionGroup: indexes into the arrays of its subtopology."""

    source_topics: list[int] = array(INT16, "0+")
    source_topic_regex: list[int] = array(INT16, "0+")
    repartition_source_topics: list[int] = array(INT16, "0+")


class StreamsSubtopology(Message):
    """Kafka's Subtopology of the heartbeat."""

    subtopology_id: str = string("0+")
    source_topics: list[str] = array(STRING, "0+")
    source_topic_regex: list[str] = array(STRING, "0+")
    state_changelog_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo, "0+")
    repartition_sink_topics: list[str] = array(STRING, "0+")
    repartition_source_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo, "0+")
    copartition_groups: list[StreamsCopartitionGroup] = array(StreamsCopartitionGroup, "0+")


class StreamsTopology(Message):
    """Kafka's Topology of the heartbeat."""

    epoch: int = int32("0+")
    subtopologies: list[StreamsSubtopology] = array(StreamsSubtopology, "0+")


class StreamsGroupHeartbeatRequest(Message, flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")  # 0: joins; -1: leaves; -2: a static member that will return
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: StreamsTopology | None = nullable_struct(StreamsTopology, "0+")
    active_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, "0+", nullable="0+", null_by_default=True)
    standby_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, "0+", nullable="0+", null_by_default=True)
    warmup_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, "0+", nullable="0+", null_by_default=True)
    process_id: str | None = string("0+", nullable="0+")
    user_endpoint: StreamsEndpoint | None = nullable_struct(StreamsEndpoint, "0+")
    client_tags: list[StreamsKeyValue] | None = array(StreamsKeyValue, "0+", nullable="0+", null_by_default=True)
    task_offsets: list[StreamsTaskOffset] | None = array(StreamsTaskOffset, "0+", nullable="0+", null_by_default=True)
    task_end_offsets: list[StreamsTaskOffset] | None = array(
        StreamsTaskOffset, "0+", nullable="0+", null_by_default=True
    )
    shutdown_application: bool = boolean("0+")


class StreamsGroupStatus(Message):
    """Kafka's Status: a warning to the member, or the reason why it fails after a time."""

    status_code: int = int8("0+")
    status_detail: str = string("0+")


class StreamsTopicPartitions(Message):
    """Kafka's TopicPartition of this API."""

    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class EndpointToPartitions(Message):
    user_endpoint: StreamsEndpoint = struct(StreamsEndpoint, "0+")
    active_partitions: list[StreamsTopicPartitions] = array(StreamsTopicPartitions, "0+")
    standby_partitions: list[StreamsTopicPartitions] = array(StreamsTopicPartitions, "0+")


class StreamsGroupHeartbeatResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int32("0+")
    task_offset_interval_ms: int = int32("0+")
    status: list[StreamsGroupStatus] | None = array(StreamsGroupStatus, "0+", nullable="0+")
    active_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, "0+", nullable="0+", null_by_default=True)
    standby_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, "0+", nullable="0+", null_by_default=True)
    warmup_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, "0+", nullable="0+", null_by_default=True)
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, "0+", nullable="0+", null_by_default=True
    )


class StreamsGroupDescribeRequest(Message, flexible="0+"):
    group_ids: list[str] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("0+")


class DescribedSubtopology(Message):
    """Kafka's Subtopology of the description."""

    subtopology_id: str = string("0+")
    source_topics: list[str] = array(STRING, "0+")
    repartition_sink_topics: list[str] = array(STRING, "0+")
    state_changelog_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo, "0+")
    repartition_source_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo, "0+")


class DescribedTopology(Message):
    """Kafka's Topology of the description."""

    epoch: int = int32("0+")
    subtopologies: list[DescribedSubtopology] | None = array(
        DescribedSubtopology, "0+", nullable="0+", null_by_default=True
    )


class StreamsTasks(Message):
    """Kafka's Assignment of the description."""

    active_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, "0+")
    standby_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, "0+")
    warmup_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, "0+")


class DescribedStreamsGroupMember(Message):
    """Kafka's Member."""

    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: StreamsEndpoint | None = nullable_struct(StreamsEndpoint, "0+")
    client_tags: list[StreamsKeyValue] = array(StreamsKeyValue, "0+")
    task_offsets: list[StreamsTaskOffset] = array(StreamsTaskOffset, "0+")
    task_end_offsets: list[StreamsTaskOffset] = array(StreamsTaskOffset, "0+")
    assignment: StreamsTasks = struct(StreamsTasks, "0+")
    target_assignment: StreamsTasks = struct(StreamsTasks, "0+")
    is_classic: bool = boolean("0+")


class DescribedStreamsGroup(Message):
    """Kafka's DescribedGroup of this API."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    topology: DescribedTopology | None = nullable_struct(DescribedTopology, "0+")
    members: list[DescribedStreamsGroupMember] = array(DescribedStreamsGroupMember, "0+")
    authorized_operations: int = int32("0+", default=AUTHORIZED_OPERATIONS_OMITTED)


class StreamsGroupDescribeResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedStreamsGroup] = array(DescribedStreamsGroup, "0+")
