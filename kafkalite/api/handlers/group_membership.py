"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: translates messages of each version to the group coordinator's values.

Source: kafka.server.KafkaApis (3.9).
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from kafkalite.api.request.access import GROUP
from kafkalite.api.request.pending_response import PendingResponse
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.group import JoinRequest, JoinResult, SyncRequest, SyncResult
from kafkalite.protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafkalite.security.acl.acl import Operation

FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
FIRST_JOIN_THAT_NEEDS_AN_ID = 4
FIRST_JOIN_WITH_PROTOCOL_TYPE = 7
FIRST_JOIN_THAT_CAN_SKIP_ASSIGNMENT = 9
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_OF_MANY = 3


def join_group(
    services: Services, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
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
    services.groups.join(request.group_id, join, pending)
    return pending.outcome(services.runtime.loop)


def sync_group(
    services: Services, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    names = request.protocol_type, request.protocol_name
    is_whole = context.api_version < FIRST_SYNC_WITH_PROTOCOL or None not in names
    if is_whole and not context.may(Operation.READ, GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    sync = SyncRequest(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        *names,
        {each.member_id: each.assignment for each in request.assignments},
        context.api_version >= FIRST_SYNC_WITH_PROTOCOL,
    )
    pending = PendingResponse(_sync_response)
    services.groups.sync(request.group_id, sync, pending)
    return pending.outcome(services.runtime.loop)


def heartbeat(services: Services, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(
        error_code=services.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    )


def leave_group(services: Services, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Up to version 2 one member leaves, and its error is the error of the response."""
    has_members = context.api_version >= FIRST_LEAVE_OF_MANY
    identities = [(each.member_id, each.group_instance_id) for each in request.members]
    error, errors = services.groups.leave(request.group_id, identities if has_members else [(request.member_id, None)])
    if error or not has_members:
        return LeaveGroupResponse(error_code=error or errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(identities, errors, strict=True)
        ]
    )


def _join_response(api_version: int, result: JoinResult) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if api_version < FIRST_JOIN_WITH_PROTOCOL_TYPE:
        protocol_name = protocol_name or ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


def _sync_response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
