"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups: translates
messages of each version to the group coordinator's values.

The topics __consumer_offsets and __transaction_state are created at the first FindCoordinator request for a group or
for a transactional id.
Source: kafka.server.KafkaApis (3.9; handleFindCoordinatorRequest), KIP-699.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial

from kafkalite.api.request.broker_endpoints import BrokerEndpoints
from kafkalite.api.request.request_context import (
    CLUSTER,
    GROUP,
    OPERATIONS_NOT_ASKED,
    TRANSACTIONAL_ID,
    PendingResponse,
    RequestContext,
    Runtime,
    refusal,
)
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import GROUP_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkalite.coordinator.group.classic.group_state import DEAD, STABLE
from kafkalite.coordinator.group.group import (
    CLASSIC,
    GroupDescription,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from kafkalite.coordinator.group_coordinator import GroupCoordinator, LeaveResult
from kafkalite.coordinator.internal_topic import InternalTopic
from kafkalite.coordinator.share_coordinator import is_share_key
from kafkalite.coordinator.transaction_coordinator import TransactionCoordinator
from kafkalite.protocol.messages import groups as wire
from kafkalite.security.acl.acl import Operation

FIRST_VERSION_WITH_KEYS = 4
FIRST_DESCRIPTION_WITH_MESSAGE = 6
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
SHARE_KEY_TYPE = 2
FIRST_VERSION_OF_SHARE_GROUPS = 6
_RESOURCE_TYPES = {GROUP_KEY_TYPE: GROUP, TRANSACTION_KEY_TYPE: TRANSACTIONAL_ID}
NO_ERROR = "NONE"  # the error message without an error up to version 3; from 4 on it is empty

FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
FIRST_JOIN_THAT_NEEDS_AN_ID = 4
FIRST_JOIN_WITH_PROTOCOL_TYPE = 7
FIRST_JOIN_THAT_CAN_SKIP_ASSIGNMENT = 9
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_OF_MANY = 3


class GroupApi(NamedTuple):
    """The APIs of groups, and FindCoordinator for groups and transactions."""

    runtime: Runtime
    brokers: BrokerEndpoints
    groups: GroupCoordinator
    offsets_topic: InternalTopic
    transactions: TransactionCoordinator
    transaction_topic: InternalTopic
    share_topic: InternalTopic

    def find_coordinator(
        self, request: wire.FindCoordinatorRequest, context: RequestContext
    ) -> wire.FindCoordinatorResponse | Awaitable[wire.FindCoordinatorResponse]:
        keys = request.coordinator_keys if context.api_version >= FIRST_VERSION_WITH_KEYS else [request.key]
        if request.key_type == SHARE_KEY_TYPE and not context.may_cluster(Operation.CLUSTER_ACTION):
            raise refusal(CLUSTER)
        needed = [(key, True) for key in keys]
        if (type_ := _RESOURCE_TYPES.get(request.key_type)) is not None:
            needed = context.refused_last(Operation.DESCRIBE, type_, keys, str)
        topic = self._topic_of(request.key_type)
        is_all_refused = needed and not needed[0][1]
        if topic is not None and not topic.is_ready and not is_all_refused:
            return self._create_topic_and_answer(topic, request, needed, context)
        return self._coordinators(request, needed, context, None)

    def _topic_of(self, key_type: int) -> InternalTopic | None:
        """The topic whose leaders are the coordinators for keys of this type."""
        if key_type == GROUP_KEY_TYPE:
            return self.offsets_topic
        if key_type == SHARE_KEY_TYPE:
            return self.share_topic
        return self.transaction_topic if key_type == TRANSACTION_KEY_TYPE else None

    async def _create_topic_and_answer(
        self,
        topic: InternalTopic,
        request: wire.FindCoordinatorRequest,
        needed: list[tuple[str, bool]],
        context: RequestContext,
    ) -> wire.FindCoordinatorResponse:
        try:
            await topic.ensure()
        except KafkaError as error:
            return self._coordinators(request, needed, context, error)
        return self._coordinators(request, needed, context, None)

    def _coordinators(
        self,
        request: wire.FindCoordinatorRequest,
        needed: list[tuple[str, bool]],
        context: RequestContext,
        topic_error: KafkaError | None,
    ) -> wire.FindCoordinatorResponse:
        found = []
        for key, is_allowed in needed:
            if is_allowed:
                found.append(self._coordinator(request.key_type, key, context, topic_error))
            else:
                error = refusal(_RESOURCE_TYPES[request.key_type])
                found.append(_no_coordinator(key, error.code, str(error)))
        if context.api_version >= FIRST_VERSION_WITH_KEYS:
            return wire.FindCoordinatorResponse(coordinators=found)
        only = found[0]
        return wire.FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message or NO_ERROR,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    def _coordinator(
        self, key_type: int, key: str, context: RequestContext, topic_error: KafkaError | None
    ) -> wire.Coordinator:
        if topic_error is not None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(topic_error))
        if key_type == GROUP_KEY_TYPE:
            topic, index = GROUP_METADATA_TOPIC, self.groups.store.partition_for(key)
        elif key_type == TRANSACTION_KEY_TYPE:
            topic, index = TRANSACTION_STATE_TOPIC, self.transactions.store.partition_for(key)
        elif key_type == SHARE_KEY_TYPE and context.api_version >= FIRST_VERSION_OF_SHARE_GROUPS:
            if not is_share_key(key):
                return _no_coordinator(key, ErrorCode.INVALID_REQUEST, "the key names no share partition")
            topic, index = SHARE_STATE_TOPIC, self.share_topic.partition_for(key)
        else:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"unknown coordinator key type {key_type}")
        leader, _ = self.brokers.leader_of(topic, index)
        broker = self.brokers.find(context.connection, leader)
        if broker is None:
            message = f"no broker leads {topic}-{index} at the moment, or not on this listener"
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return wire.Coordinator(error_message="", key=key, node_id=broker.broker_id, host=broker.host, port=broker.port)

    def describe_groups(
        self, request: wire.DescribeGroupsRequest, context: RequestContext
    ) -> wire.DescribeGroupsResponse:
        groups = []
        for group_id, is_allowed in context.refused_last(Operation.DESCRIBE, GROUP, dict.fromkeys(request.groups), str):
            if not is_allowed:
                groups.append(wire.DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id))
                continue
            is_asked = request.include_authorized_operations
            is_new = context.api_version >= FIRST_DESCRIPTION_WITH_MESSAGE
            operations_of = context.group_operations if is_new else partial(context.operations, GROUP)
            operations = operations_of(group_id) if is_asked else OPERATIONS_NOT_ASKED
            group, error = self.groups.describe(group_id)
            if group is not None and group.kind == CLASSIC:
                described = _described(group, shows_assignments=is_new)
                described.authorized_operations = operations
            elif error:
                described = wire.DescribedGroup(error_code=error, group_id=group_id)
            else:
                described = wire.DescribedGroup(group_id=group_id, group_state=DEAD.value)
                if is_new:
                    described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                    fault = "not found" if group is None else "is not a classic group"
                    described.error_message = f"Group {group_id} {fault}."
                else:
                    described.authorized_operations = operations
            groups.append(described)
        return wire.DescribeGroupsResponse(groups=groups)

    def list_groups(self, request: wire.ListGroupsRequest, context: RequestContext) -> wire.ListGroupsResponse:
        error, groups = self.groups.list_groups({name.lower() for name in request.states_filter or ()})
        if not context.may_cluster(Operation.DESCRIBE, is_logged=False):
            groups = [each for each in groups if context.may(Operation.DESCRIBE, GROUP, each.group_id, is_logged=False)]
        types = {name.lower() for name in request.types_filter or ()}
        return wire.ListGroupsResponse(
            error_code=error,
            groups=[
                wire.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state,
                    group_type=group.kind,
                )
                for group in groups
                if not types or group.kind in types
            ],
        )

    async def delete_groups(
        self, request: wire.DeleteGroupsRequest, context: RequestContext
    ) -> wire.DeleteGroupsResponse:
        needed = context.refused_last(Operation.DELETE, GROUP, request.groups_names, str)
        errors = await self.groups.delete_groups([group_id for group_id, is_allowed in needed if is_allowed])
        errors |= {each: ErrorCode.GROUP_AUTHORIZATION_FAILED for each, is_allowed in needed if not is_allowed}
        return wire.DeleteGroupsResponse(
            results=[
                wire.DeletableGroupResult(group_id=group_id, error_code=error) for group_id, error in errors.items()
            ]
        )

    def join_group(
        self, request: wire.JoinGroupRequest, context: RequestContext
    ) -> wire.JoinGroupResponse | Awaitable[wire.JoinGroupResponse]:
        version = context.api_version
        session_timeout_ms = request.session_timeout_ms
        join = JoinRequest(
            request.member_id,
            request.group_instance_id,
            context.client_id or "",
            f"/{context.connection.host}",
            request.rebalance_timeout_ms if version >= FIRST_JOIN_WITH_REBALANCE_TIMEOUT else session_timeout_ms,
            session_timeout_ms,
            request.protocol_type,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            version >= FIRST_JOIN_THAT_NEEDS_AN_ID,
            version >= FIRST_JOIN_THAT_CAN_SKIP_ASSIGNMENT,
        )
        pending = PendingResponse(partial(_join_response, version))
        self.groups.join(request.group_id, join, pending)
        return pending.outcome(self.runtime.loop)

    def sync_group(
        self, request: wire.SyncGroupRequest, context: RequestContext
    ) -> wire.SyncGroupResponse | Awaitable[wire.SyncGroupResponse]:
        names = request.protocol_type, request.protocol_name
        is_whole = context.api_version < FIRST_SYNC_WITH_PROTOCOL or None not in names
        if is_whole and not context.may(Operation.READ, GROUP, request.group_id):
            return wire.SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        sync = SyncRequest(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            *names,
            {each.member_id: each.assignment for each in request.assignments},
            context.api_version >= FIRST_SYNC_WITH_PROTOCOL,
        )
        pending = PendingResponse(_sync_response)
        self.groups.sync(request.group_id, sync, pending)
        return pending.outcome(self.runtime.loop)

    def heartbeat(self, request: wire.HeartbeatRequest, context: RequestContext) -> wire.HeartbeatResponse:
        return wire.HeartbeatResponse(
            error_code=self.groups.heartbeat(
                request.group_id, request.member_id, request.group_instance_id, request.generation_id
            )
        )

    def leave_group(
        self, request: wire.LeaveGroupRequest, context: RequestContext
    ) -> wire.LeaveGroupResponse | Awaitable[wire.LeaveGroupResponse]:
        """Up to version 2 one member leaves, and its error is the error of the response."""
        has_members = context.api_version >= FIRST_LEAVE_OF_MANY
        identities = [(each.member_id, each.group_instance_id) for each in request.members]
        pending = PendingResponse(partial(_leave_response, identities, has_members))
        self.groups.leave(request.group_id, identities if has_members else [(request.member_id, None)], pending)
        return pending.outcome(self.runtime.loop)


def _no_coordinator(key: str, error: ErrorCode, message: str) -> wire.Coordinator:
    return wire.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)


def _described(group: GroupDescription, *, shows_assignments: bool) -> wire.DescribedGroup:
    """The description of a group. Metadata and assignments are included only if it is stable, since they are partial
    before; assignments with `shows_assignments` in every state, as in Kafka 4.
    """
    is_stable = group.state == STABLE.value
    return wire.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            wire.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata if is_stable else b"",
                member_assignment=member.assignment if is_stable or shows_assignments else b"",
            )
            for member in group.members
        ],
    )


def _leave_response(
    identities: Sequence[tuple[str, str | None]], has_members: bool, result: LeaveResult
) -> wire.LeaveGroupResponse:
    error, errors = result
    if error or not has_members:
        return wire.LeaveGroupResponse(error_code=error or errors[0])
    return wire.LeaveGroupResponse(
        members=[
            wire.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(identities, errors, strict=True)
        ]
    )


def _join_response(api_version: int, result: JoinResult) -> wire.JoinGroupResponse:
    protocol_name = result.protocol_name
    if api_version < FIRST_JOIN_WITH_PROTOCOL_TYPE:
        protocol_name = protocol_name or ""
    return wire.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            wire.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


def _sync_response(result: SyncResult) -> wire.SyncGroupResponse:
    return wire.SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
