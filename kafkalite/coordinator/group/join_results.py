"""Answers to joins and syncs, and the callbacks that receive them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kafkalite.common.errors import ErrorCode


class JoinedMember(NamedTuple):
    """One line of what the leader is told."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """What a JoinGroup response says. The defaults are those of a refusal."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncResult(NamedTuple):
    """What a SyncGroup response says."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class JoinWaiter(Protocol):
    """Somebody who waits for the answer to a JoinGroup; may have given up meanwhile."""

    def answer(self, result: JoinResult, /) -> None: ...


class SyncWaiter(Protocol):
    """Somebody who waits for the answer to a SyncGroup; may have given up meanwhile."""

    def answer(self, result: SyncResult, /) -> None: ...
