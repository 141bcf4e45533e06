"""Steps of a consumer group, one or more for each kind of record, with and without optional fields."""

from __future__ import annotations

import uuid

from kafkalite.coordinator.group.consumer.group_tables import (
    SetCurrent,
    SetGroupEpoch,
    SetRegex,
    SetSubscription,
    SetTarget,
    SetTargetEpoch,
    Step,
)
from kafkalite.coordinator.group.consumer.member import (
    ClassicMember,
    CurrentAssignment,
    MemberState,
    ResolvedRegex,
    Subscription,
)

_A, _B = uuid.UUID(int=1 << 100), uuid.UUID(int=7)
_ALL_FIELDS = Subscription("i", "rack", "client", "/10.0.0.1", frozenset({"b", "a"}), "x.*", 60_000, "range")
_CLASSIC = ClassicMember(10_000, (("range", b"\0\1"), ("roundrobin", b"")))

STEPS: list[Step] = [
    SetSubscription("m", _ALL_FIELDS),
    SetSubscription("m", Subscription(client_id="c", client_host="/h", classic=_CLASSIC)),
    SetSubscription("m", Subscription(topic_regex=None)),
    SetCurrent("m", CurrentAssignment(3, 2, MemberState.UNREVOKED, {_A: {0: 1, 2: 3}, _B: {1: 2}}, {_B: {5: 2}})),
    SetCurrent("m", CurrentAssignment(-2, 4, MemberState.UNRELEASED)),
    SetTarget("m", {_A: frozenset({1, 0})}),
    SetTarget("m", {}),
    SetTargetEpoch(3, 0),
    SetTargetEpoch(3, 1_700_000_000_000),
    SetGroupEpoch(3, 0),
    SetGroupEpoch(3, -5),
    SetRegex("x.*", ResolvedRegex(frozenset({"b", "a"}), 3, 4)),
]
