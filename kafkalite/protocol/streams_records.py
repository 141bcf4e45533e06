"""Schemas of the records of groups of Kafka Streams in `__consumer_offsets`: 17 and 19 to 23 (KIP-1071).

The topology, endpoints and rows of tasks have the same fields in the same order as those of StreamsGroupHeartbeat, so
both have the same parts.
Source: the StreamsGroup*Value.json of Apache Kafka's group-coordinator (4.3).
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import (
    INT32,
    Message,
    array,
    int8,
    int32,
    int64,
    nullable_struct,
    string,
)
from kafkalite.protocol.messages.streams_groups import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopology,
)

__all__ = [
    "AssignedTaskIds",
    "StreamsCopartitionGroup",
    "StreamsCurrentAssignmentValue",
    "StreamsEndpoint",
    "StreamsGroupMetadataValue",
    "StreamsKeyValue",
    "StreamsMemberMetadataValue",
    "StreamsSubtopology",
    "StreamsTargetAssignmentValue",
    "StreamsTaskIds",
    "StreamsTopicInfo",
    "StreamsTopology",
    "StreamsTopologyValue",
]


class StreamsGroupMetadataValue(Message, flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", default=-1, tag=0)
    last_assignment_configs: list[StreamsKeyValue] = array(StreamsKeyValue, "0+", tag=1)


class StreamsMemberMetadataValue(Message, flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+")
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: StreamsEndpoint | None = nullable_struct(StreamsEndpoint, "0+")
    client_tags: list[StreamsKeyValue] = array(StreamsKeyValue, "0+")


class StreamsTargetAssignmentValue(Message, flexible="0+"):
    active_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, "0+")
    standby_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, "0+")
    warmup_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, "0+")


class AssignedTaskIds(Message):
    """Kafka's TaskIds. `assignment_epochs` are as many as `partitions`, or none: of tasks that are not active, and in a
    record from before 4.3."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array(INT32, "0+")
    assignment_epochs: list[int] = array(INT32, "0+", tag=0)


class StreamsCurrentAssignmentValue(Message, flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[AssignedTaskIds] = array(AssignedTaskIds, "0+")
    standby_tasks: list[AssignedTaskIds] = array(AssignedTaskIds, "0+")
    warmup_tasks: list[AssignedTaskIds] = array(AssignedTaskIds, "0+")
    active_tasks_pending_revocation: list[AssignedTaskIds] = array(AssignedTaskIds, "0+")
    standby_tasks_pending_revocation: list[AssignedTaskIds] = array(AssignedTaskIds, "0+")
    warmup_tasks_pending_revocation: list[AssignedTaskIds] = array(AssignedTaskIds, "0+")


class StreamsTopologyValue(Message, flexible="0+"):
    epoch: int = int32("0+")
    subtopologies: list[StreamsSubtopology] = array(StreamsSubtopology, "0+")
