"""One share group (KIP-932): its heartbeats, its timers, and the partitions whose state is initialized.

A heartbeat is answered when its records are in the log. There is no revocation: a member takes its target as it is, and
two members may have one partition, for records are locked one by one. A partition is assigned only when the share
coordinator has its state; the heartbeat that first wants it does not wait for that.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (shareGroupHeartbeat and its kin),
modern.share.ShareGroup (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.group.changes import Change, HeldAnswer
from kafkalite.coordinator.group.consumer.group_environment import GroupTotals
from kafkalite.coordinator.group.deadlines import Deadline, Wait, remaining_ms, waiting_interval_ms
from kafkalite.coordinator.group.group import (
    SHARE,
    GroupDescription,
    Identity,
    MemberDescription,
)
from kafkalite.coordinator.group.modern_group import ModernGroup
from kafkalite.coordinator.group.offset_store import ExpirationCondition
from kafkalite.coordinator.group.partition_sets import PartitionSet
from kafkalite.coordinator.group.share.share_tables import (
    FIRST_EPOCH,
    JOINED_EPOCH,
    SetCurrent,
    SetGroupEpoch,
    SetSubscription,
    SetTarget,
    SetTargetEpoch,
    ShareAssignment,
    ShareGroupTables,
    ShareMember,
    ShareSubscription,
    StatePartitions,
    Step,
    records_of,
    tombstones_of_group,
)
from kafkalite.coordinator.group.share.simple_assignor import assign
from kafkalite.coordinator.group.share.state_partitions import InitializeState, StatePartitionChanges
from kafkalite.coordinator.group.topics import Topics
from kafkalite.coordinator.runtime.effects import (
    Answer,
    Records,
    Waiter,
)

logger = logging.getLogger(__name__)

LEAVING_EPOCH = -1


class ShareGroupConfig(NamedTuple):
    """The settings of one group: those of the broker, or of the group itself where it has them."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000


class ShareEnvironment(NamedTuple):
    """The surroundings that all share groups of a broker share."""

    topics: Topics
    config: Callable[[str], ShareGroupConfig]  # by group id
    totals: GroupTotals


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat; None is "as before"."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    topic_names: Sequence[str] | None = None


class ShareHeartbeatResult(NamedTuple):
    """The answer. The defaults are those of an error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: PartitionSet | None = None


class ShareGroup(ModernGroup[Step]):
    """State and members of one group."""

    __slots__ = ("environment", "state_partitions", "tables")
    kind: ClassVar[str] = SHARE

    def __init__(self, group_id: str, partition: int, environment: ShareEnvironment) -> None:
        super().__init__(group_id, partition, records_of)
        self.environment = environment
        self.tables = ShareGroupTables()
        self.state_partitions = StatePartitionChanges(self.tables, environment.topics, self.changes)

    @property
    def config(self) -> ShareGroupConfig:
        return self.environment.config(self.group_id)

    @property
    def state_name(self) -> str:
        return "Stable" if self.tables.members else "Empty"

    @property
    def member_ids(self) -> Collection[str]:
        return self.tables.members.keys()

    @property
    def is_unborn(self) -> bool:
        return (
            not self.tables.members
            and self.tables.group_epoch == FIRST_EPOCH
            and self.tables.state_partitions == StatePartitions()
        )

    # --- heartbeats

    def share_heartbeat(
        self, request: ShareHeartbeat, waiter: Waiter[ShareHeartbeatResult], now: Moment
    ) -> Sequence[Any]:
        """ShareGroupHeartbeat: the answer waits for the log. A request that was validated."""
        change = Change[Step](self.tables)
        try:
            if request.member_epoch == LEAVING_EPOCH:
                member = self._member(request.member_id)
                result = ShareHeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)
                return self._remove(member, change, [HeldAnswer(waiter, result, ShareHeartbeatResult)], "left")
            result, initialize = self._decide(request, change, now)
        except KafkaError as error:
            change.undo()
            return (Answer(waiter, ShareHeartbeatResult(error.code, error.message)),)
        timer = self.deadlines.set(Wait.SESSION, request.member_id, now.monotonic_ms + self.config.session_timeout_ms)
        effects = [] if initialize is None else [initialize]
        return [*timer, *self.changes.store(change, [HeldAnswer(waiter, result, ShareHeartbeatResult)], effects)]

    def _decide(
        self, request: ShareHeartbeat, change: Change[Step], now: Moment
    ) -> tuple[ShareHeartbeatResult, InitializeState | None]:
        config, tables = self.config, self.tables
        is_join = request.member_epoch == JOINED_EPOCH
        if len(tables.members) >= config.max_size and request.member_id not in tables.members:
            message = f"The share group has reached its maximum capacity of {config.max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        member = self._member(request.member_id, may_be_new=is_join)
        if not is_join:
            _check_epoch(request.member_epoch, member.current)
        before = member.subscription
        subscription = before._replace(
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=before.topic_names if request.topic_names is None else frozenset(request.topic_names),
        )
        if member.member_id not in tables.members or subscription != before:
            change.make(SetSubscription(member.member_id, subscription))
        is_bumped = subscription.topic_names != before.topic_names
        if tables.target_epoch >= tables.group_epoch and self._has_new_partitions():
            is_bumped = True
        metadata_hash = self.environment.topics.hash_of(tables.subscribed_topics)
        if is_bumped or metadata_hash != tables.metadata_hash:
            is_bumped = True
            change.make(SetGroupEpoch(tables.group_epoch + 1, metadata_hash))
            self.environment.totals.share_rebalances += 1
        self._update_target(change, now.wall_ms)
        current = self._reconcile(member.member_id, change, is_resubscribed=is_bumped)
        initialize = self.state_partitions.initialize(change, config.initialize_retry_interval_ms, now.wall_ms)
        is_full = is_join or request.topic_names is not None
        result = ShareHeartbeatResult(
            ErrorCode.NONE,
            None,
            member.member_id,
            current.epoch,
            self._interval_ms(subscription, config, now.wall_ms),
            current.partitions if is_full or current.partitions != member.current.partitions else None,
        )
        return result, initialize

    def _interval_ms(self, subscription: ShareSubscription, config: ShareGroupConfig, wall_ms: int) -> int:
        """The time until the next heartbeat of a member with this subscription: less than usual while it waits for its
        target, or for partitions to get their state."""
        tables, interval_ms = self.tables, config.heartbeat_interval_ms
        if tables.target_epoch < tables.group_epoch:
            no_news_ms = remaining_ms(tables.target_timestamp_ms, config.assignment_interval_ms, wall_ms)
            return waiting_interval_ms(interval_ms, no_news_ms)
        initializing = tables.state_partitions.initializing.values()
        is_waiting = any(each.name in subscription.topic_names for each in initializing)
        return waiting_interval_ms(interval_ms) if is_waiting else interval_ms

    def _member(self, member_id: str, *, may_be_new: bool = False) -> ShareMember:
        member = self.tables.members.get(member_id)
        if member is None:
            if not may_be_new:
                message = f"Member {member_id} is not a member of group {self.group_id}."
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
            logger.info("group %s: %s joins", self.group_id, member_id)
            member = ShareMember(member_id)
        return member

    def _has_new_partitions(self) -> bool:
        """Whether partitions that members want are initialized, and the target does not have them, or has others."""
        tables = self.tables
        if not tables.members:
            return False
        assigned = tables.targets.member_of
        return any(
            topic.name in tables.name_counts and topic.partitions != assigned.get(topic_id, {}).keys()
            for topic_id, topic in tables.state_partitions.initialized.items()
        )

    def _update_target(self, change: Change[Step], wall_ms: int) -> None:
        tables = self.tables
        if tables.target_epoch >= tables.group_epoch:
            return
        if remaining_ms(tables.target_timestamp_ms, self.config.assignment_interval_ms, wall_ms):
            return
        topics = self.environment.topics
        wanted = {each: topics.ids_of(member.subscription.topic_names) for each, member in tables.members.items()}
        counts = topics.partition_counts(topics.ids_of(tables.subscribed_topics))
        initialized = tables.state_partitions.initialized
        assignable = {
            topic_id: sorted(index for index in initialized[topic_id].partitions if index < count)
            for topic_id, count in counts.items()
            if topic_id in initialized
        }
        for member_id, target in assign(wanted, assignable, tables.targets.by_member).items():
            if target != tables.targets.by_member.get(member_id):
                change.make(SetTarget(member_id, target))
        change.make(SetTargetEpoch(tables.group_epoch, wall_ms))

    def _reconcile(self, member_id: str, change: Change[Step], *, is_resubscribed: bool) -> ShareAssignment:
        """The member takes its target; one whose target is still to come loses what it does not want any more."""
        tables = self.tables
        member = tables.members[member_id]
        current = member.current
        if current.epoch == tables.target_epoch and not is_resubscribed:
            return current
        wanted = self.environment.topics.ids_of(member.subscription.topic_names)
        partitions = {each: some for each, some in tables.targets.get(member_id).items() if each in wanted}
        after = current._replace(partitions=partitions)
        if current.epoch != tables.target_epoch:
            after = ShareAssignment(tables.target_epoch, current.epoch, partitions)
        if after != current:
            change.make(SetCurrent(member_id, after))
        return after

    # --- members that are gone

    def _remove(
        self,
        member: ShareMember,
        change: Change[Step],
        answers: Sequence[HeldAnswer],
        reason: str,
        due: Sequence[Deadline] = (),
    ) -> Sequence[Any]:
        logger.info("group %s loses %s: %s", self.group_id, member.member_id, reason)
        for step in (SetCurrent, SetTarget, SetSubscription):
            change.make(step(member.member_id, None))
        tables = self.tables
        change.make(SetGroupEpoch(tables.group_epoch + 1, self.environment.topics.hash_of(tables.subscribed_topics)))
        change.forgotten += [*due, *self.deadlines.forget(member.member_id)]
        return self.changes.store(change, answers)

    def on_timer(self, timer: Any, now: Moment) -> Sequence[Any]:
        effects: list[Any] = []
        for due in self.deadlines.take_due(now.monotonic_ms):
            member = self.tables.members.get(due.member_id)
            if member is not None:
                reason = f"it did not give {due.wait.value} in time"
                effects += self._remove(member, Change[Step](self.tables), [], reason, [due])
        return [*effects, *self.deadlines.watch_earliest()]

    def on_loaded(self, now: Moment) -> Sequence[Any]:
        deadline_ms = now.monotonic_ms + self.config.session_timeout_ms
        return [
            effect
            for member_id in self.tables.members
            for effect in self.deadlines.set(Wait.SESSION, member_id, deadline_ms)
        ]

    def tombstones(self) -> Records:
        return tombstones_of_group(self.group_id, self.tables.members)

    # --- offsets

    def validate_commit(
        self, identity: Identity, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, Sequence[Any]]:
        return ErrorCode.GROUP_ID_NOT_FOUND, ()

    def validate_transactional_commit(self, identity: Identity, partitions: Iterable[TopicPartition]) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return topic in self.tables.name_counts

    def offset_expiration_condition(self) -> ExpirationCondition | None:
        return None

    # --- descriptions

    def describe(self) -> GroupDescription:
        members = tuple(
            MemberDescription(
                member.member_id,
                None,
                member.subscription.client_id,
                member.subscription.client_host,
                -1,
                self.config.session_timeout_ms,
                (),
                b"",
                b"",
                None,
            )
            for member in self.tables.members.values()
        )
        return GroupDescription(
            self.group_id, self.kind, self.state_name, self.tables.group_epoch, self.kind, "simple", members
        )


def _check_epoch(epoch: int, current: ShareAssignment) -> None:
    if epoch > current.epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({current.epoch}). The member must abandon all its partitions and rejoin.",
        )
    if epoch < current.epoch and epoch != current.previous_epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
            f"({current.epoch}), and it does not match the previous member epoch ({current.previous_epoch}). The "
            "member must abandon all its partitions and rejoin.",
        )
