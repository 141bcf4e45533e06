"""StreamsGroupHeartbeat, StreamsGroupDescribe: translates messages to the values of groups of Kafka Streams (KIP-1071).

The internal topics that a heartbeat finds missing are created here, if its client may do that.
Source: kafka.server.KafkaApis (handleStreamsGroupHeartbeat, handleStreamsGroupDescribe; 4.3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from kafkalite.api.request.request_context import (
    GROUP,
    OPERATIONS_NOT_ASKED,
    TOPIC,
    PendingResponse,
    RequestContext,
    Runtime,
    refusal,
)
from kafkalite.api.request.streams_topics import StreamsTopics
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import java_order
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group.group import STREAMS
from kafkalite.coordinator.group.streams.configured_topology import ConfiguredSubtopology, Fault, Status
from kafkalite.coordinator.group.streams.streams_heartbeat import (
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
)
from kafkalite.coordinator.group.streams.streams_member import NO_TIMEOUT_MS, Endpoint, StreamsMember
from kafkalite.coordinator.group.streams.tasks import NO_TASKS, Tasks, TaskSet, task_rows, task_set
from kafkalite.coordinator.group.streams.topology import (
    InternalTopic,
    Subtopology,
    Topology,
    check_topic_names,
    read_topology,
    topic_infos,
)
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.streams_groups import StreamsGroupDescription
from kafkalite.metadata.finalized_features import STREAMS_VERSION, FinalizedFeatures
from kafkalite.protocol.messages import streams_groups as wire
from kafkalite.security.acl.acl import Operation

_MASKED = "The described group uses topics that the client is not authorized to describe."
_ERRORS_SHOWN_MAX = 3


class StreamsGroupApi(NamedTuple):
    """The APIs of groups of Kafka Streams."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    groups: GroupCoordinator
    features: FinalizedFeatures
    topics: StreamsTopics

    @property
    def is_enabled(self) -> bool:
        is_on = self.features.level(STREAMS_VERSION) > 0
        return is_on and STREAMS in self.config().group_coordinator_rebalance_protocols

    # --- heartbeats

    def streams_group_heartbeat(
        self, request: wire.StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> wire.StreamsGroupHeartbeatResponse | Awaitable[wire.StreamsGroupHeartbeatResponse]:
        if not self.is_enabled:
            return wire.StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not context.may(Operation.READ, GROUP, request.group_id):
            return wire.StreamsGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        client = context.client_id or "", f"/{context.connection.host}"
        if _says_nothing(request):
            member = request.member_id, request.member_epoch, request.endpoint_information_epoch
            interval_ms = self.groups.streams_groups.keep_alive(request.group_id, *member, client)
            if interval_ms is not None:
                return wire.StreamsGroupHeartbeatResponse(
                    member_id=request.member_id,
                    member_epoch=request.member_epoch,
                    heartbeat_interval_ms=interval_ms,
                    endpoint_information_epoch=request.endpoint_information_epoch,
                )
        topology = None if request.topology is None else read_topology(request.topology)
        if topology is not None:
            try:
                self._check_topics(topology, context)
            except KafkaError as error:
                return wire.StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)
        pending = PendingResponse(partial(self._respond, context))
        heartbeat = _heartbeat(request, topology, client)
        self.groups.streams_groups.heartbeat(request.group_id, heartbeat, pending)
        return pending.outcome(self.runtime.loop)

    def _check_topics(self, topology: Topology, context: RequestContext) -> None:
        names = topology.named_topics()
        check_topic_names(names)
        if not context.may_describe_topics(names):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")

    def _respond(self, context: RequestContext, result: StreamsHeartbeatResult) -> wire.StreamsGroupHeartbeatResponse:
        if result.missing_topics:
            added = self._create(result.missing_topics, context, result.heartbeat_interval_ms)
            result = result._replace(statuses=_with_detail(result.statuses, added))
        return _heartbeat_response(result)

    def _create(self, topics: Sequence[InternalTopic], context: RequestContext, heartbeat_interval_ms: int) -> str:
        """Begin to create the topics. Returns what is to be added to the status that they are missing."""
        names = [each.name for each in topics]
        if not context.may_cluster(Operation.CREATE, is_logged=False):
            refused = [each for each in names if not context.may(Operation.CREATE, TOPIC, each)]
            if refused:
                return f"Unauthorized to CREATE on topics {', '.join(refused)}."
        self.topics.create(topics, context, heartbeat_interval_ms * 2)
        errors = [f"{name} ({error})" for name, error in self.topics.errors_of(names).items()]
        if not errors:
            return ""
        more = len(errors) - _ERRORS_SHOWN_MAX
        shown = ", ".join(errors[:_ERRORS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
        return f"Creation failed: {shown}."

    # --- descriptions

    def streams_group_describe(
        self, request: wire.StreamsGroupDescribeRequest, context: RequestContext
    ) -> wire.StreamsGroupDescribeResponse:
        if not self.is_enabled:
            error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "")
            return wire.StreamsGroupDescribeResponse(groups=[_failed(each, error) for each in request.group_ids])
        refused, groups = [], []
        for group_id, is_allowed in context.refused_last(Operation.DESCRIBE, GROUP, request.group_ids, str):
            if not is_allowed:
                refused.append(_failed(group_id, KafkaError(refusal(GROUP).code, "")))
                continue
            try:
                described = self._described(group_id, context)
            except KafkaError as error:
                described = _failed(group_id, error)
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = context.group_operations(group_id)
            groups.append(described)
        return wire.StreamsGroupDescribeResponse(groups=[*refused, *groups])

    def _described(self, group_id: str, context: RequestContext) -> wire.DescribedStreamsGroup:
        group = self.groups.streams_groups.describe(group_id)
        if group.topology is not None and not context.may_describe_topics(group.topology.named_topics()):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _MASKED)
        return wire.DescribedStreamsGroup(
            group_id=group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.target_epoch,
            topology=_described_topology(group),
            members=[_member(each, group.targets.get(each.member_id, NO_TASKS)) for each in group.members.values()],
            authorized_operations=OPERATIONS_NOT_ASKED,
        )


# --- heartbeats as values


def _says_nothing(request: wire.StreamsGroupHeartbeatRequest) -> bool:
    """Whether the heartbeat only renews the session of its member."""
    return (
        request.active_tasks is None
        and request.standby_tasks is None
        and request.warmup_tasks is None
        and request.topology is None
        and request.process_id is None
        and request.user_endpoint is None
        and request.client_tags is None
        and request.task_offsets is None
        and request.task_end_offsets is None
        and request.instance_id is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == NO_TIMEOUT_MS
        and not request.shutdown_application
    )


def _heartbeat(
    request: wire.StreamsGroupHeartbeatRequest, topology: Topology | None, client: tuple[str, str]
) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        request.member_id,
        request.member_epoch,
        *client,
        request.endpoint_information_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        topology,
        _task_set(request.active_tasks),
        _task_set(request.standby_tasks),
        _task_set(request.warmup_tasks),
        request.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        None if tags is None else tuple(sorted((each.key, each.value) for each in tags)),
        request.task_offsets is not None,
        request.task_end_offsets is not None,
        request.shutdown_application,
    )


def _task_set(rows: Iterable[wire.StreamsTaskIds] | None) -> TaskSet | None:
    return None if rows is None else task_set((row.subtopology_id, row.partitions) for row in rows)


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> list[wire.StreamsTaskIds]:
    return [wire.StreamsTaskIds(subtopology_id=key, partitions=partitions) for key, partitions in task_rows(tasks)]


def _with_detail(statuses: tuple[Fault, ...], added: str) -> tuple[Fault, ...]:
    """The statuses with more about missing internal topics."""
    if not added:
        return statuses
    return tuple(
        each._replace(detail=f"{each.detail}; {added}") if each.status is Status.MISSING_INTERNAL_TOPICS else each
        for each in statuses
    )


def _heartbeat_response(result: StreamsHeartbeatResult) -> wire.StreamsGroupHeartbeatResponse:
    tasks, endpoints = result.tasks, result.endpoints
    statuses = [wire.StreamsGroupStatus(status_code=each.status, status_detail=each.detail) for each in result.statuses]
    return wire.StreamsGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        status=statuses,
        active_tasks=None if tasks is None else _task_ids(tasks.active),
        standby_tasks=None if tasks is None else _task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
        endpoint_information_epoch=result.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [_endpoint_row(each) for each in endpoints],
    )


def _endpoint_row(row: EndpointPartitions) -> wire.EndpointToPartitions:
    return wire.EndpointToPartitions(
        user_endpoint=wire.StreamsEndpoint(host=row.endpoint.host, port=row.endpoint.port),
        active_partitions=_topic_partitions(row.active),
        standby_partitions=_topic_partitions(row.standby),
    )


def _topic_partitions(rows: Iterable[tuple[str, Sequence[int]]]) -> list[wire.StreamsTopicPartitions]:
    return [wire.StreamsTopicPartitions(topic=topic, partitions=list(partitions)) for topic, partitions in rows]


# --- descriptions


def _failed(group_id: str, error: KafkaError) -> wire.DescribedStreamsGroup:
    return wire.DescribedStreamsGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)


def _described_topology(group: StreamsGroupDescription) -> wire.DescribedTopology | None:
    """With decided numbers of partitions if all topics are there, else as the members have sent it."""
    topology, configured = group.topology, group.configured
    if topology is None:
        return None
    if configured is not None and configured.is_ready:
        rows = [_subtopology(key, each) for key, each in (configured.subtopologies or {}).items()]
    else:
        rows = [_subtopology(each.subtopology_id, each) for each in topology.subtopologies]
    return wire.DescribedTopology(epoch=topology.epoch, subtopologies=rows)


def _subtopology(subtopology_id: str, row: Subtopology | ConfiguredSubtopology) -> wire.DescribedSubtopology:
    return wire.DescribedSubtopology(
        subtopology_id=subtopology_id,
        source_topics=sorted(row.source_topics, key=java_order),
        repartition_sink_topics=sorted(row.repartition_sink_topics, key=java_order),
        state_changelog_topics=topic_infos(_sorted(row.changelog_topics)),
        repartition_source_topics=topic_infos(_sorted(row.repartition_source_topics)),
    )


def _sorted(topics: Iterable[InternalTopic]) -> list[InternalTopic]:
    return sorted(topics, key=lambda topic: java_order(topic.name))


def _member(member: StreamsMember, target: Tasks) -> wire.DescribedStreamsGroupMember:
    metadata, current = member.metadata, member.current
    endpoint = metadata.user_endpoint
    return wire.DescribedStreamsGroupMember(
        member_id=member.member_id,
        member_epoch=current.epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None if endpoint is None else wire.StreamsEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[wire.StreamsKeyValue(key=key, value=value) for key, value in metadata.client_tags],
        assignment=_tasks(current.assigned.without_epochs()),
        target_assignment=_tasks(target),
    )


def _tasks(tasks: Tasks) -> wire.StreamsTasks:
    return wire.StreamsTasks(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )
