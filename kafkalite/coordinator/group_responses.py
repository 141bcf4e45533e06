"""What groups decided, as the responses of each version say it; and the place where a request waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.group import Group
from kafkalite.coordinator.group.group_state import DEAD, STABLE
from kafkalite.coordinator.group.join_results import JoinResult, SyncResult
from kafkalite.protocol.messages.group_admin import DescribedGroup, DescribedGroupMember, ListedGroup
from kafkalite.protocol.messages.group_membership import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupResponse,
)

Result = TypeVar("Result")
Response = TypeVar("Response")

FIRST_JOIN_WITH_PROTOCOL_TYPE = 7
FIRST_LEAVE_OF_MANY = 3
CLASSIC = "classic"  # the type of a group with JoinGroup and SyncGroup, as all are here (KIP-848)


class PendingResponse(Generic[Result, Response]):
    """A request that may have to wait. Nobody is told if the one who waited has given up."""

    __slots__ = ("_future", "_render", "_response")

    def __init__(self, render: Callable[[Result], Response]) -> None:
        self._render = render
        self._response: Response | None = None
        self._future: asyncio.Future[Response] | None = None

    def answer(self, result: Result) -> None:
        response = self._render(result)
        if self._future is None:
            self._response = response
        elif not self._future.done():
            self._future.set_result(response)

    def outcome(self, new_future: Callable[[], asyncio.Future[object]]) -> Response | asyncio.Future[Response]:
        """The response if there is one by now, else a future of it."""
        if self._response is not None:
            return self._response
        self._future = cast("asyncio.Future[Response]", new_future())
        return self._future


def join_response(api_version: int, result: JoinResult) -> JoinGroupResponse:
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


def sync_response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


def leave_response(
    api_version: int, identities: Sequence[tuple[str, str | None]], codes: Sequence[ErrorCode]
) -> LeaveGroupResponse:
    """Up to version 2 the one code there is stands for the whole response."""
    if api_version < FIRST_LEAVE_OF_MANY:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(identities, codes, strict=True)
        ]
    )


def described(group_id: str, group: Group | None, fault: ErrorCode) -> DescribedGroup:
    """Metadata and assignments are shown only while they are settled. A group that does not exist is Dead."""
    if fault or group is None:
        return DescribedGroup(error_code=fault, group_id=group_id, group_state="" if fault else DEAD.value)
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members
        ],
    )


def listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )
