"""A member of a group of the classic protocol that shares work among processes, for daemons of our own.

The member that the coordinator makes the leader divides the work: `divide` gets the ids of all members, and returns the
share of each. A static member (KIP-345) that is restarted takes its old place at once, without a rebalance; a second
process with its instance id fences the first. All of it happens in the caller's thread: `heartbeat` is to be called
more often than the session timeout.
Source: org.apache.kafka.clients.consumer.internals.AbstractCoordinator; KIP-394 for MEMBER_ID_REQUIRED.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import GROUP_KEY, ClusterClient, Retries, WriteFailed
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

_JOIN_VERSION = 9  # from there on a leader that is restarted in its place stays the leader (KIP-814)
_SYNC_VERSION = 3
_HEARTBEAT_VERSION = 3
_LEAVE_VERSION = 3
_PROTOCOL = "shares"
_REJOIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
)

Divide = Callable[[Sequence[str]], Mapping[str, bytes]]
"""The share of each member, by its id: the instance id, or the member id without one."""


class Membership(NamedTuple):
    """A member of a group in one generation. `instance_id` of a static one, None of others."""

    generation_id: int
    member_id: str
    instance_id: str | None = None


NO_MEMBER = Membership(-1, "")


class Share(NamedTuple):
    """A member's share of the work in one generation, and whether it leads the group."""

    work: bytes
    leads: bool


class GroupMember:
    """One member. Raises WriteFailed if the group refuses it, or has no coordinator for too long."""

    def __init__(
        self,
        cluster: ClusterClient,
        group_id: str,
        protocol_type: str,
        instance_id: str | None,
        retries: Retries,
        *,
        session_timeout_ms: int = 30_000,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._protocol_type = protocol_type
        self._instance_id = instance_id
        self._retries = retries
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._member_id = ""
        self.membership = NO_MEMBER

    def join(self, divide: Divide) -> Share:
        """Joins the next generation, and waits for the share in it."""
        deadline_s = self._retries.monotonic_s() + self._retries.timeout_s + self._rebalance_timeout_ms / 1000
        while True:
            joined = self._join()
            if not joined.error_code:
                self._member_id = joined.member_id
                self.membership = Membership(joined.generation_id, joined.member_id, self._instance_id)
                work = self._sync(joined, divide)
                if work is not None:
                    return Share(work, joined.leader == joined.member_id)
            elif joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
            elif joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            elif joined.error_code not in _REJOIN:
                raise self._refused(joined.error_code)
            if self._retries.monotonic_s() >= deadline_s:
                raise WriteFailed(f"group {self._group_id} does not finish a rebalance")

    def heartbeat(self) -> bool:
        """Whether the share is still this member's; if not, `join` again. Raises Unanswered as well."""
        generation_id, member_id, instance_id = self.membership
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        code = self._ask_code(request, _HEARTBEAT_VERSION)
        if code in _REJOIN:
            return False
        if code:
            raise self._refused(code)
        return True

    def leave(self) -> None:
        """Gives the share back at once; a static member keeps it until its session ends. Raises Unanswered as well."""
        if self._instance_id is None and self.membership != NO_MEMBER:
            request = LeaveGroupRequest(group_id=self._group_id, members=[MemberIdentity(member_id=self._member_id)])
            self._ask_code(request, _LEAVE_VERSION)

    def _ask_code(self, request: HeartbeatRequest | LeaveGroupRequest, version: int) -> int:
        ask = partial(self._cluster.ask_coordinator, self._group_id, GROUP_KEY, request, version)
        code: int = self._retries.ask_coordinator(lambda: _Coded.of(ask())).error_code
        return code

    def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )

        def ask() -> JoinGroupResponse | int:
            code, coordinator = self._cluster.find_coordinator(self._group_id, GROUP_KEY)
            if code:
                return code
            wait_s = self._rebalance_timeout_ms / 1000 + self._retries.timeout_s
            client = self._cluster.member(coordinator)
            version = client.newest(JoinGroupRequest, _JOIN_VERSION)
            joined: JoinGroupResponse = client.ask(request, version, wait_s)
            return joined.error_code if ErrorCode.of(joined.error_code).is_retriable else joined

        joined: JoinGroupResponse = self._retries.persist(f"group {self._group_id} cannot be joined", ask)
        return joined

    def _sync(self, joined: JoinGroupResponse, divide: Divide) -> bytes | None:
        """The share; None if another rebalance has begun meanwhile."""
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            by_name = {one.group_instance_id or one.member_id: one.member_id for one in joined.members}
            assignments = [
                SyncGroupRequestAssignment(member_id=by_name[name], assignment=work)
                for name, work in divide(sorted(by_name)).items()
            ]
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._instance_id,
            assignments=assignments,
        )
        try:
            code, coordinator = self._cluster.find_coordinator(self._group_id, GROUP_KEY)
            if code:
                return None
            wait_s = self._rebalance_timeout_ms / 1000 + self._retries.timeout_s
            synced = self._cluster.member(coordinator).ask(request, _SYNC_VERSION, wait_s)
        except Unanswered:
            return None
        if synced.error_code in _REJOIN or ErrorCode.of(synced.error_code).is_retriable:
            return None
        if synced.error_code:
            raise self._refused(synced.error_code)
        return bytes(synced.assignment)

    def _refused(self, code: int) -> WriteFailed:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return WriteFailed(f"another process is instance {self._instance_id!r} of group {self._group_id} now")
        return WriteFailed(f"group {self._group_id} refuses this member: {name_of_error(code)}")


class _Coded(NamedTuple):
    error_code: int

    @classmethod
    def of(cls, answer: object) -> _Coded:
        return cls(answer if isinstance(answer, int) else answer.error_code)  # type: ignore[attr-defined]
