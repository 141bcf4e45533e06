"""The effects of a group's decisions, as values: tests compare lists, the coordinator performs them.

Effects are performed in their order. A group has at most one timer of each kind; setting a timer replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.coordinator.group.membership import JoinResult, JoinWaiter, SyncResult, SyncWaiter

if TYPE_CHECKING:
    from kafkalite.coordinator.group.members import Member


class GroupTimer(Enum):
    """The kinds of timers of a group."""

    JOIN = "all members have joined"
    SYNC = "all members have asked for their assignments"
    SESSION = "a sign of life from each member"


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
    """The leader's assignment is on disk and may be sent to the members."""

    generation_id: int
    assignments: Mapping[str, bytes]


class EmptyGroupStored(NamedTuple):
    """The record of a group without members is on disk."""

    generation_id: int


class ReplacementStored(NamedTuple):
    """A static member's new id is on disk. `before` is a copy of the member to restore if the append fails."""

    generation_id: int
    before: Member
    member_id: str
    leader_id: str
    supports_skipping_assignment: bool


class Append(NamedTuple):
    """Write `records` to the group's partition, then call the group's `on_append` with `then`."""

    records: list[tuple[bytes, bytes | None]]
    then: AssignmentStored | EmptyGroupStored | ReplacementStored


Effect = AnswerJoin | AnswerSync | SetTimer | CancelTimer | Append


class Effects:
    """Collects the effects of one decision; `take` returns and removes them."""

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, *effects: Effect) -> None:
        self._effects += effects

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
