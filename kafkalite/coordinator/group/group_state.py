"""The states of a group, as tables.

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

from kafkalite.common.errors import ErrorCode


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

# Translates the error of a failed append for the waiting client, as Kafka does. Other errors are unchanged.
_NO_PARTITION = dict.fromkeys(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_NOT_LED = dict.fromkeys((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
GROUP_APPEND_ERROR: Mapping[ErrorCode, ErrorCode] = {
    **_NO_PARTITION,
    **_NOT_LED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
COMMIT_APPEND_ERROR: Mapping[ErrorCode, ErrorCode] = {
    **_NO_PARTITION,
    **_NOT_LED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
