"""Decides when the regular expressions of a group are matched against the topics of the cluster again.

All of them are matched together, so that a change of several begins one rebalance. A run is asynchronous, and its
result is a change of the group by itself: the first heartbeat of a member with a new expression has no partitions yet.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (maybeUpdateRegularExpressions; 4.3); KIP-848.
"""

from __future__ import annotations

from enum import Enum

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.consumer.group_tables import ConsumerGroupTables
from kafkalite.coordinator.group.deadlines import remaining_ms

MIN_INTERVAL_MS = 10_000  # between two runs; like the interval of a group, it is over a millisecond later, as in Kafka


class RegexChange(Enum):
    """Changes of a member's regular expression by its heartbeat."""

    NONE = "as before"
    UNRESOLVED = "another one, whose topics are not known yet"
    RESOLVED = "none any more, or one whose topics are known"


class LastRefresh(NamedTuple):
    """The last run as the group's records show it. They are always resolved together, so one tells of all."""

    regex_count: int
    timestamp_ms: int | None

    @classmethod
    def of(cls, tables: ConsumerGroupTables) -> LastRefresh:
        first = next(iter(tables.regexes.values()), None)
        return cls(len(tables.regexes), None if first is None else first.timestamp_ms)


class RegexRefresh:
    """The runs of one group. `version` is that of the topics at the last run; None after the group was loaded."""

    __slots__ = ("is_running", "version")

    def __init__(self) -> None:
        self.is_running = False
        self.version: int | None = None

    def begin(self, version: int) -> None:
        self.is_running = True
        self.version = version

    def end(self, *, is_failed: bool) -> None:
        self.is_running = False
        if is_failed:  # a later heartbeat tries again
            self.version = None

    def is_due(
        self,
        last: LastRefresh,
        tables: ConsumerGroupTables,
        topics_version: int,
        wall_ms: int,
        interval_ms: int,
        *,
        is_new: bool,
    ) -> bool:
        """Whether a run begins. `last` is from before the heartbeat, `tables` are with its change; `is_new`: it brought
        an expression that no other member has."""
        if self.is_running or not tables.regex_counts:
            return False
        if last.timestamp_ms is not None and remaining_ms(last.timestamp_ms, MIN_INTERVAL_MS + 1, wall_ms):
            return False
        return (
            is_new
            or len(tables.regex_counts) != last.regex_count
            or self.version != topics_version
            or (last.timestamp_ms is not None and not remaining_ms(last.timestamp_ms, interval_ms + 1, wall_ms))
        )
