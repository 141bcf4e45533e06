"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: handed to the group coordinator, which decides."""

from __future__ import annotations

from collections.abc import Awaitable

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


def join_group(
    services: Services, request: JoinGroupRequest, call: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    return services.groups.join_group(request, call.api_version, call.client_id or "", f"/{call.connection.host}")


def sync_group(
    services: Services, request: SyncGroupRequest, call: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    return services.groups.sync_group(request, call.api_version)


def heartbeat(services: Services, request: HeartbeatRequest, call: RequestContext) -> HeartbeatResponse:
    return services.groups.heartbeat(request)


def leave_group(
    services: Services, request: LeaveGroupRequest, call: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    return services.groups.leave_group(request, call.api_version)
