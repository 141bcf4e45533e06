"""JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13): membership in a classic group."""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, array, blob, boolean, int16, int32, string


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
