"""A group of any kind: the values that describe it and its requests, and its base class.

A group belongs to the partition of `__consumer_offsets` that its id hashes to, and keeps its committed offsets. The
kinds of groups differ in how members share the partitions; the coordinator, offsets and handlers know only this module.
Source: org.apache.kafka.coordinator.group.Group (4.0).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.group.changes import Change, undone
from kafkalite.coordinator.group.offset_store import ExpirationCondition, OffsetStore
from kafkalite.coordinator.runtime.effects import Effect, Records, Waiter

JOIN, SYNC, REVOKE = "join", "sync", "revoke"  # phases of a rebalance
_PURPOSES = {JOIN: "to join again", SYNC: "to ask for their assignment", REVOKE: "to give up partitions"}
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"  # kinds of groups
REPORT_AFTER_MS = 5_000  # of waiting: then it is logged
_NAMED_MAX = 5

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


class Identity(NamedTuple):
    """A member in a request that commits offsets. `epoch` is its generation or member epoch, -1 without a member.

    `knows_member_epochs`: the request is one of those that members of the consumer protocol send (OffsetCommit 9).
    """

    member_id: str
    instance_id: str | None
    epoch: int
    knows_member_epochs: bool = False


class MemberDescription(NamedTuple):
    """One member. `metadata` and `assignment` are opaque bytes of the group's protocol, partial while it rebalances.
    `session_began_ms` (monotonic clock) is None while the member waits for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    metadata: bytes
    assignment: bytes
    session_began_ms: int | None


class GroupDescription(NamedTuple):
    """One group. `state` has Kafka's name; a group without `protocol_type` has never had members."""

    group_id: str
    kind: str
    state: str
    epoch: int
    protocol_type: str | None
    protocol_name: str | None
    members: tuple[MemberDescription, ...]


class GroupSummary(NamedTuple):
    """One group in a list."""

    group_id: str
    kind: str
    state: str
    protocol_type: str | None

    @classmethod
    def of(cls, group: Group) -> GroupSummary:
        return cls(group.group_id, group.kind, group.state_name, group.protocol_type)


class Waiting(NamedTuple):
    """A rebalance that waits in `phase`, JOIN, SYNC or REVOKE, for these members, `names` by client id if it is known;
    without any the group waits for members to come. `left_ms` is None without a timer, `since_ms` is a date (None:
    unknown)."""

    phase: str
    member_ids: tuple[str, ...]
    names: tuple[str, ...]
    left_ms: int | None
    since_ms: int | None

    def sentence(self, group_id: str, waited_ms: int) -> str:
        """One line, such as for a log."""
        missing = f"members that may still come ({group_id} was empty)"
        if self.names:
            more = f" and {len(self.names) - _NAMED_MAX} more" if len(self.names) > _NAMED_MAX else ""
            missing = f"{', '.join(self.names[:_NAMED_MAX])}{more} {_PURPOSES[self.phase]}"
        until = "" if self.left_ms is None else f", for {max(0, self.left_ms) / 1000:.0f} s more at most"
        return f"group {group_id} has waited {waited_ms / 1000:.0f} s for {missing}{until}"


class Group(ABC):
    """One group. `kind` is the group type of ListGroups. Methods take an event and the time, and return effects."""

    __slots__ = ("group_id", "offsets", "partition")
    kind: ClassVar[str]

    def __init__(self, group_id: str, partition: int) -> None:
        self.group_id = group_id
        self.partition = partition  # of __consumer_offsets
        self.offsets = OffsetStore()

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Kafka's name of the state, as in ListGroups."""

    @property
    def state_filter(self) -> str:
        """The word by which ListGroups selects the state, in lower case."""
        return self.state_name.lower()

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """None: the group has never had members and only keeps offsets."""

    @property
    @abstractmethod
    def has_members(self) -> bool:
        """Whether it has members, or ids given to members that have not joined yet."""

    @property
    def is_storing(self) -> bool:
        """Whether a change is on its way to the log."""
        return bool(self._changes_in_flight())

    def as_stored(self) -> AbstractContextManager[None]:
        """Within it the group is as the log has it, without the changes that are on their way there."""
        return undone(self._changes_in_flight())

    def _changes_in_flight(self) -> Sequence[Change[Any]]:
        """In the order of the log."""
        return ()

    @property
    def is_unborn(self) -> bool:
        """Whether nothing of it has been stored, so that it is as if it had not been made."""
        return False

    @abstractmethod
    def describe(self) -> GroupDescription: ...

    def waiting(self, now_ms: int) -> Waiting | None:
        """The members that its rebalance waits for; None if it does not wait."""
        return None

    # --- requests of members

    @abstractmethod
    def join(self, request: JoinRequest, waiter: Waiter[JoinResult], now: Moment) -> Sequence[Effect]:
        """JoinGroup: `waiter` is answered at once or when the next generation is complete."""

    @abstractmethod
    def sync(self, request: SyncRequest, waiter: Waiter[SyncResult], now_ms: int) -> Sequence[Effect]:
        """SyncGroup: answered at once when stable, else when the leader's assignments are stored."""

    @abstractmethod
    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> tuple[ErrorCode, Sequence[Effect]]:
        """Heartbeat: REBALANCE_IN_PROGRESS makes the member join again. Almost never has effects."""

    @abstractmethod
    def leave(
        self, identities: Sequence[tuple[str, str | None]], waiter: Waiter[Sequence[ErrorCode]], now: Moment
    ) -> Sequence[Effect]:
        """LeaveGroup: `waiter` gets one code per (member id, instance id). An instance id alone is an administrator's
        removal."""

    # --- offsets

    @abstractmethod
    def validate_commit(
        self, identity: Identity, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, Sequence[Effect]]:
        """OffsetCommit: whether the member may commit offsets of these partitions. Almost never has effects: in a
        classic group a commit is a sign of life."""

    @abstractmethod
    def validate_transactional_commit(self, identity: Identity, partitions: Iterable[TopicPartition]) -> ErrorCode:
        """TxnOffsetCommit: before version 3 a producer does not know the member, and may commit to any group. Neither a
        sign of life nor refused during a rebalance."""

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """OffsetFetch: whether the member is of its current epoch; -1 without a member, and up to version 8."""
        return ErrorCode.NONE

    @abstractmethod
    def validate_offset_delete(self) -> ErrorCode:
        """OffsetDelete: allowed for a group without members, or of consumers, since their subscriptions are known."""

    @abstractmethod
    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether members read the topic, or may read it because their subscriptions are unknown."""

    @abstractmethod
    def offset_expiration_condition(self) -> ExpirationCondition | None:
        """The condition for the expiration of the group's offsets; None while they do not expire."""

    @abstractmethod
    def tombstones(self) -> Records:
        """Records that delete the group itself from the log, without its offsets."""

    # --- events

    @abstractmethod
    def on_timer(self, timer: Any, now: Moment) -> Sequence[Effect]:
        """The timer fired."""

    @abstractmethod
    def on_append(self, then: Any, error: ErrorCode, now: Moment) -> Sequence[Effect]:
        """An append is done; `error` is that of the log. The group may have changed meanwhile."""

    @abstractmethod
    def on_loaded(self, now: Moment) -> Sequence[Effect]:
        """The group was read from disk: every member's session begins again."""

    def prepare_deletion(self) -> ErrorCode:
        """DeleteGroups: NON_EMPTY_GROUP with members; else ids given to members that have not joined are void."""
        return ErrorCode.NON_EMPTY_GROUP if self.has_members else ErrorCode.NONE

    @abstractmethod
    def close(self, error: ErrorCode) -> Sequence[Effect]:
        """The group is deleted, or another broker leads its partition: answers every waiting request with `error`."""
