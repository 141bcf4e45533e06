"""Effects that only consumer groups have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.changes import HeldAnswer
from kafkalite.coordinator.group.consumer.group_change import GroupChange


class ResolveRegexes(NamedTuple):
    """Match these expressions; `may_describe` is the right of the member whose heartbeat asks for it."""

    regexes: frozenset[str]
    may_describe: Callable[[str], bool] | None


class DowngradeGroup(NamedTuple):
    """Make the group a classic one, without the `leaving` members, in this generation. `change` is what the last
    request has changed before. `reason`: the members must join again at once; None: they keep their assignment."""

    leaving: frozenset[str]
    generation_id: int
    reason: str | None
    change: GroupChange
    answers: Sequence[HeldAnswer]
