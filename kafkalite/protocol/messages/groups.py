"""Classic groups: JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13) of members; FindCoordinator (10),
DescribeGroups (15), ListGroups (16) and DeleteGroups (42) of any client.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import STRING, Message, array, blob, boolean, int8, int16, int32, string
from kafkalite.protocol.messages.metadata import AUTHORIZED_OPERATIONS_OMITTED


class JoinGroupRequestProtocol(Message):
    name: str = string("0+")
    metadata: bytes = blob("0+")


class JoinGroupRequest(Message, flexible="6+"):
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+")


class JoinGroupResponseMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+")
    metadata: bytes = blob("0+")


class JoinGroupResponse(Message, flexible="6+"):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+")
    protocol_name: str | None = string("0+", nullable="7+", default="")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")


class SyncGroupRequestAssignment(Message):
    member_id: str = string("0+")
    assignment: bytes = blob("0+")


class SyncGroupRequest(Message, flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+")
    protocol_type: str | None = string("5+", nullable="5+")
    protocol_name: str | None = string("5+", nullable="5+")
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Message, flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+")
    protocol_name: str | None = string("5+", nullable="5+")
    assignment: bytes = blob("0+")


class HeartbeatRequest(Message, flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+")


class HeartbeatResponse(Message, flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")


class MemberIdentity(Message):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    reason: str | None = string("5+", nullable="5+")


class LeaveGroupRequest(Message, flexible="4+"):
    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Message):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")


class FindCoordinatorRequest(Message, flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(STRING, "4+")


class Coordinator(Message):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


class FindCoordinatorResponse(Message, flexible="3+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


class DescribeGroupsRequest(Message, flexible="5+"):
    groups: list[str] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = blob("0+")
    member_assignment: bytes = blob("0+")


class DescribedGroup(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=AUTHORIZED_OPERATIONS_OMITTED)


class DescribeGroupsResponse(Message, flexible="5+"):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


class ListGroupsRequest(Message, flexible="3+"):
    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")


class ListedGroup(Message):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Message, flexible="3+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


class DeleteGroupsRequest(Message, flexible="2+"):
    groups_names: list[str] = array(STRING, "0+")


class DeletableGroupResult(Message):
    group_id: str = string("0+")
    error_code: int = int16("0+")


class DeleteGroupsResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
