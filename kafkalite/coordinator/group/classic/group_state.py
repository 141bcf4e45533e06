"""The states of a classic group as tables, its timers, and the changes that it stores.

A group is EMPTY until a member joins, then PREPARING until all known members have joined or the rebalance timeout has
passed, then COMPLETING until the leader has sent the assignment, then STABLE until a member joins, leaves or changes:

    EMPTY -> PREPARING -> COMPLETING -> STABLE
      ^        |    ^          |          |
      +--------+    +----------+----------+        DEAD: deleted, or another broker leads it

Absence from a table means "not allowed".
Source: kafka.coordinator.group.GroupState (3.9), whose names clients see in DescribeGroups and ListGroups.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kafkalite.coordinator.group.classic.members import Member


class GroupState(Enum):
    """The states of the classic group protocol, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

ENTERED_FROM: Mapping[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({EMPTY, COMPLETING, STABLE}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: frozenset({EMPTY, PREPARING, COMPLETING, STABLE}),
}

# The errors for requests of members of the current generation. Any other request has been refused before with
# UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or FENCED_INSTANCE_ID.
HEARTBEAT_ERROR: Mapping[GroupState, ErrorCode] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,  # makes the member join again
    COMPLETING: ErrorCode.NONE,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
COMMIT_ERROR: Mapping[GroupState, ErrorCode] = {
    EMPTY: ErrorCode.NONE,
    PREPARING: ErrorCode.NONE,  # the last chance to save progress before the partitions move
    COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
SYNC_ERROR: Mapping[GroupState, ErrorCode] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING: ErrorCode.NONE,  # waits until the leader's assignment is on disk
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class GroupTimer(Enum):
    """The timers of a group, one of each."""

    JOIN = "all members have joined"
    SYNC = "all members have asked for their assignments"
    SESSION = "a sign of life from each member"
    REPORT = "a rebalance that waits for long is logged"


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


Stored = AssignmentStored | EmptyGroupStored | ReplacementStored
