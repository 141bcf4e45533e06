"""A group whose coordinator assigns its partitions or tasks, and whose members speak no classic protocol.

Kafka calls groups modern whose coordinator assigns; those of consumers, which may have classic members, do not derive
from this class. A change of the group goes through `changes`, and the deadlines of its members through `deadlines`.
Source: org.apache.kafka.coordinator.group.modern.ModernGroup, GroupMetadataManager (classicGroupJoin and its kin; 4.3).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.changes import Change, Changes, StepT, StoredChange
from kafkalite.coordinator.group.deadlines import MemberDeadlines
from kafkalite.coordinator.group.group import Group, JoinRequest, JoinResult, SyncRequest, SyncResult
from kafkalite.coordinator.runtime.effects import Answer, CancelTimer, Records, Waiter


class ModernGroup(Group, Generic[StepT]):
    """The common parts of share groups and of groups of Kafka Streams. `records_of` gives the records of steps."""

    __slots__ = ("changes", "deadlines")

    def __init__(self, group_id: str, partition: int, records_of: Callable[[str, Iterable[StepT]], Records]) -> None:
        super().__init__(group_id, partition)
        self.deadlines = MemberDeadlines()
        self.changes: Changes[StepT] = Changes(group_id, self.deadlines, records_of)

    @property
    @abstractmethod
    def member_ids(self) -> Collection[str]: ...

    @property
    def protocol_type(self) -> str | None:
        return self.kind

    @property
    def has_members(self) -> bool:
        return bool(self.member_ids)

    def _changes_in_flight(self) -> Sequence[Change[Any]]:
        return self.changes.in_flight

    def on_append(self, then: StoredChange, error: ErrorCode, now: Moment) -> Sequence[Any]:
        return self.changes.on_append(then, error, now.monotonic_ms)

    def close(self, error: ErrorCode) -> Sequence[Any]:
        return [CancelTimer(MemberDeadlines.TIMER), *self.changes.close(error)]

    # --- requests of the classic protocol

    def join(self, request: JoinRequest, waiter: Waiter[JoinResult], now: Moment) -> Sequence[Any]:
        return (Answer(waiter, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")),)

    def sync(self, request: SyncRequest, waiter: Waiter[SyncResult], now_ms: int) -> Sequence[Any]:
        return (Answer(waiter, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)),)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, Sequence[Any]]:
        return ErrorCode.UNKNOWN_MEMBER_ID, ()

    def leave(
        self, identities: Sequence[tuple[str, str | None]], waiter: Waiter[Sequence[ErrorCode]], now: Moment
    ) -> Sequence[Any]:
        return (Answer(waiter, [ErrorCode.UNKNOWN_MEMBER_ID] * len(identities)),)
