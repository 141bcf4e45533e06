"""JoinGroup and SyncGroup as values: requests, results, and the waiters that receive the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkalite.common.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member supports, in the member's order of preference."""


class JoinRequest(NamedTuple):
    """A JoinGroup request."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool  # v4+: a new member is first given its id (KIP-394)
    supports_skipping_assignment: bool  # v9+ (KIP-814)
    new_uuid: str = ""  # for the id of a new member; set by the coordinator


class SyncRequest(NamedTuple):
    """A SyncGroup request."""

    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None  # None up to v4
    protocol_name: str | None
    assignments: Mapping[str, bytes]  # from the leader, by member id; empty from other members
    requires_protocol: bool  # v5+


class JoinedMember(NamedTuple):
    """One member, in the answer to the leader's JoinGroup."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a JoinGroup. The defaults are those of a refusal."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class JoinWaiter(Protocol):
    """Receives the answer to a JoinGroup. Its client may have left meanwhile."""

    def answer(self, result: JoinResult, /) -> None: ...


class SyncWaiter(Protocol):
    """Receives the answer to a SyncGroup. Its client may have left meanwhile."""

    def answer(self, result: SyncResult, /) -> None: ...
