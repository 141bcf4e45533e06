"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: translates messages to the values of consumer groups (KIP-848).

Source: kafka.server.KafkaApis (handleConsumerGroupHeartbeat, handleConsumerGroupDescribe; 4.3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from kafkalite.api.request.admission import AdmissionEpoch
from kafkalite.api.request.request_context import (
    GROUP,
    OPERATIONS_NOT_ASKED,
    TOPIC,
    PendingResponse,
    RequestContext,
    Runtime,
    refusal,
)
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group.consumer.group_description import ConsumerMemberDescription, NamedPartitions
from kafkalite.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, HeartbeatResult
from kafkalite.coordinator.group.consumer.member import NO_TIMEOUT_MS
from kafkalite.coordinator.group.group import CONSUMER
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.metadata.finalized_features import GROUP_VERSION, FinalizedFeatures
from kafkalite.protocol.messages import consumer_groups as wire
from kafkalite.security.acl.acl import Operation

_MASKED = "The group has described topic(s) that the client is not authorized to describe."
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


class ConsumerGroupApi(NamedTuple):
    """The APIs of consumer groups."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    groups: GroupCoordinator
    features: FinalizedFeatures
    admission_epoch: AdmissionEpoch  # of what its fast path remembers

    @property
    def is_enabled(self) -> bool:
        is_on = self.features.level(GROUP_VERSION) > 0
        return is_on and CONSUMER in self.config().group_coordinator_rebalance_protocols

    def consumer_group_heartbeat(
        self, request: wire.ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> wire.ConsumerGroupHeartbeatResponse | Awaitable[wire.ConsumerGroupHeartbeatResponse]:
        if not self.is_enabled:
            return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not context.may(Operation.READ, GROUP, request.group_id):
            return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        client = context.client_id or "", f"/{context.connection.host}"
        if says_nothing(request):
            member = request.member_id, request.member_epoch, request.instance_id
            interval_ms = self.groups.consumer_groups.keep_alive(request.group_id, *member, client)
            if interval_ms is not None:
                return wire.ConsumerGroupHeartbeatResponse(
                    member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=interval_ms
                )
        names = request.subscribed_topic_names
        if names and not context.may_describe_topics(names):
            return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        owned = request.topic_partitions
        heartbeat = ConsumerHeartbeat(
            request.member_id,
            request.member_epoch,
            *client,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            names,
            request.subscribed_topic_regex,
            request.server_assignor,
            None if owned is None else {each.topic_id: each.partitions for each in owned},
            None if context.access is None else partial(context.may, Operation.DESCRIBE, TOPIC, is_logged=False),
        )
        pending = PendingResponse(_heartbeat_response)
        self.groups.consumer_groups.heartbeat(request.group_id, heartbeat, context.api_version, pending)
        return pending.outcome(self.runtime.loop)

    def consumer_group_describe(
        self, request: wire.ConsumerGroupDescribeRequest, context: RequestContext
    ) -> wire.ConsumerGroupDescribeResponse:
        groups = []
        for group_id, is_allowed in context.refused_last(Operation.DESCRIBE, GROUP, request.group_ids, str):
            if not is_allowed:
                error = KafkaError(refusal(GROUP).code, "")
                groups.append(_failed(group_id, error))
                continue
            try:
                described = self._described(group_id, context)
            except KafkaError as error:
                described = _failed(group_id, error)
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = context.group_operations(group_id)
            groups.append(described)
        return wire.ConsumerGroupDescribeResponse(groups=groups)

    def _described(self, group_id: str, context: RequestContext) -> wire.DescribedConsumerGroup:
        if not self.is_enabled:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "")
        group = self.groups.consumer_groups.describe(group_id)
        if not context.may_describe_topics(sorted(group.topics())):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _MASKED)
        return wire.DescribedConsumerGroup(
            group_id=group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=group.assignor,
            members=[_member(each) for each in group.members],
            authorized_operations=OPERATIONS_NOT_ASKED,
        )


def says_nothing(request: wire.ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the heartbeat only renews the session of its member."""
    return (
        request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == NO_TIMEOUT_MS
    )


def _heartbeat_response(result: HeartbeatResult) -> wire.ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        rows = [
            wire.HeartbeatTopicPartitions(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in result.assignment.items()
        ]
        assignment = wire.HeartbeatAssignment(topic_partitions=rows)
    return wire.ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _failed(group_id: str, error: KafkaError) -> wire.DescribedConsumerGroup:
    return wire.DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)


def _member(description: ConsumerMemberDescription) -> wire.DescribedConsumerGroupMember:
    member = description.member
    subscription = member.subscription
    return wire.DescribedConsumerGroupMember(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex,
        assignment=_assignment(description.assignment),
        target_assignment=_assignment(description.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(rows: Sequence[NamedPartitions]) -> wire.DescribedAssignment:
    return wire.DescribedAssignment(
        topic_partitions=[
            wire.DescribedTopicPartitions(
                topic_id=row.topic_id, topic_name=row.topic_name, partitions=[*row.partitions]
            )
            for row in rows
        ]
    )
