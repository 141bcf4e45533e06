"""What a group asks the world to do, as values: tests compare lists, the coordinator performs them.

Effects are performed in their order. A group has at most one timer of each kind; setting one replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.coordinator.group.join_results import JoinResult, JoinWaiter, SyncResult, SyncWaiter

if TYPE_CHECKING:
    from kafkalite.coordinator.group.members import Member


class GroupTimer(Enum):
    """The three things that a group waits for."""

    JOIN = "members join"
    SYNC = "members ask for their assignment"
    SESSION = "members show that they live"


class AnswerJoin(NamedTuple):
    waiter: JoinWaiter
    result: JoinResult


class AnswerSync(NamedTuple):
    waiter: SyncWaiter
    result: SyncResult


class SetTimer(NamedTuple):
    timer: GroupTimer
    deadline_ms: int  # of the monotonic clock


class CancelTimer(NamedTuple):
    timer: GroupTimer


class AssignmentStored(NamedTuple):
    """The leader's assignment is on disk: the generation may go to work."""

    generation_id: int
    assignments: Mapping[str, bytes]


class EmptyGroupStored(NamedTuple):
    """That the group has no members any more is on disk."""

    generation_id: int


class ReplacementStored(NamedTuple):
    """A static member's new id is on disk. `before` is the member as it was, to go back to should that fail."""

    generation_id: int
    before: Member
    member_id: str
    leader_id: str
    can_skip_assignment: bool


class Append(NamedTuple):
    """Write `records` to the group's partition, then tell the group's `appended` about it with `then`."""

    records: list[tuple[bytes, bytes | None]]
    then: AssignmentStored | EmptyGroupStored | ReplacementStored


Effect = AnswerJoin | AnswerSync | SetTimer | CancelTimer | Append
