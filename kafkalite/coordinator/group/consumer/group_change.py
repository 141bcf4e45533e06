"""One change of a consumer group on its way: the steps of a decision, in the order of their records.

A heartbeat changes the subscription of its member, then perhaps the epoch of the group, then the target of all members,
then the current assignment of the member. The records are one batch. A change that is refused is undone.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (consumerGroupHeartbeat, updateSubscriptionMetadata,
maybeUpdateTargetAssignment, maybeReconcile, consumerGroupFenceMembers; 4.3), modern.TargetAssignmentBuilder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.changes import Change, HeldAnswer
from kafkalite.coordinator.group.consumer.assignors import ASSIGNORS, AssignorFailure, GroupSpec, MemberSpec
from kafkalite.coordinator.group.consumer.group_environment import ConsumerGroupConfig, GroupEnvironment
from kafkalite.coordinator.group.consumer.group_tables import (
    ConsumerGroupTables,
    SetCurrent,
    SetGroupEpoch,
    SetRegex,
    SetSubscription,
    SetTarget,
    SetTargetEpoch,
    SetTopicMetadata,
    Step,
)
from kafkalite.coordinator.group.consumer.member import ConsumerMember, CurrentAssignment, ResolvedRegex, Subscription
from kafkalite.coordinator.group.consumer.reconciliation import Goal, reconcile
from kafkalite.coordinator.group.deadlines import remaining_ms
from kafkalite.coordinator.group.partition_sets import NO_PARTITIONS, OwnedPartitions

logger = logging.getLogger(__name__)

_make = tuple.__new__
_NO_DATE_MS = 0  # of a target after which the next one may follow at once


class GroupChange(Change[Step]):
    """The steps of one decision, which have taken effect in `tables`."""

    __slots__ = ("_environment", "_group_id", "effects", "is_bumped", "tables")

    def __init__(self, group_id: str, tables: ConsumerGroupTables, environment: GroupEnvironment) -> None:
        super().__init__(tables)
        self.tables = tables
        self.effects: list[Any] = []  # of timers and the like, besides the records
        self.is_bumped = False  # the epoch of the group was advanced, so a rebalance begins
        self._group_id = group_id
        self._environment = environment

    # --- members

    def update_subscription(self, member_id: str, value: Subscription) -> None:
        member = self.tables.members.get(member_id)
        if member is None or member.subscription != value:
            self.make(SetSubscription(member_id, value))

    def replace(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give the static member its new id. It keeps its partitions and its target, and is answered anew."""
        target = self.tables.targets.get(old.member_id)
        member = old._replace(member_id=member_id, current=old.current._replace(epoch=0, previous_epoch=0))
        self._remove_member(old.member_id)
        self.make(SetSubscription(member_id, member.subscription))
        self.make(SetTarget(member_id, target))
        self.make(SetCurrent(member_id, member.current))
        return member

    def remove(self, members: Collection[ConsumerMember]) -> None:
        """Remove the members and begin a rebalance. The next heartbeat of another member assigns their partitions."""
        for member in members:
            self._remove_member(member.member_id)
        for regex in dict.fromkeys(member.regex for member in members):
            if regex is not None and regex not in self.tables.regex_counts:
                self.make(SetRegex(regex, None))
        self._bump(self._metadata_hash())

    def _remove_member(self, member_id: str) -> None:
        self.make(SetCurrent(member_id, None))
        self.make(SetTarget(member_id, None))
        self.make(SetSubscription(member_id, None))

    # --- the epoch of the group

    def update_metadata(self, *, is_resubscribed: bool) -> None:
        """Advance the epoch if a subscription has changed, or the topics of the group have."""
        metadata_hash = self._metadata_hash()
        if is_resubscribed or metadata_hash != self.tables.metadata_hash:
            self.begin_rebalance()
        if self.tables.has_topic_metadata:
            self.make(SetTopicMetadata(is_present=False))

    def begin_rebalance(self) -> None:
        """Advance the epoch, so that the next heartbeat assigns the partitions anew."""
        self._bump(self._metadata_hash())
        self.is_bumped = True

    def unassign(self) -> None:
        """Advance the epoch and give every member an empty target, so that each has to give up all partitions."""
        self.begin_rebalance()
        for member_id, target in list(self.tables.targets.by_member.items()):
            if target:
                self.make(SetTarget(member_id, NO_PARTITIONS))
        self.make(SetTargetEpoch(self.tables.group_epoch, _NO_DATE_MS))

    def resolve_regexes(self, resolved: Iterable[tuple[str, ResolvedRegex]]) -> None:
        """Store what regular expressions have matched, and advance the epoch if that has changed."""
        is_changed = False
        for regex, value in resolved:
            if regex not in self.tables.regex_counts:
                continue
            known = self.tables.regexes.get(regex)
            self.make(SetRegex(regex, value))
            is_new = known is None and (bool(value.topics) or self._is_target_outdated(regex))
            is_changed = is_changed or is_new or (known is not None and value.topics != known.topics)
        metadata_hash = self._metadata_hash()
        if is_changed or metadata_hash != self.tables.metadata_hash:
            self._bump(metadata_hash)
            self.is_bumped = True

    def _is_target_outdated(self, regex: str) -> bool:
        """Whether the target has partitions for a member with this expression that it is not subscribed to any more. In
        Kafka they have no reader until the next rebalance, if the expression matches nothing and others subscribe to
        their topics."""
        tables, topics = self.tables, self._environment.topics
        return any(
            topics.name_of(topic_id) not in tables.topics_of(member)
            for member_id, member in tables.members.items()
            if member.regex == regex
            for topic_id in tables.targets.get(member_id)
        )

    def _metadata_hash(self) -> int:
        return self._environment.topics.hash_of(self.tables.subscribed_topics)

    def _bump(self, metadata_hash: int) -> None:
        epoch = self.tables.group_epoch + 1
        logger.info("group %s: epoch %d", self._group_id, epoch)
        self.make(SetGroupEpoch(epoch, metadata_hash))

    # --- the target of all members

    def update_target(self, config: ConsumerGroupConfig, wall_ms: int) -> None:
        """Assign the partitions anew if the epoch of the group has advanced, but no more often than
        group.consumer.assignment.interval.ms. Until then members follow the target that there is.

        Raises KafkaError(UNKNOWN_SERVER_ERROR) if the assignor fails.
        """
        tables = self.tables
        if tables.target_epoch >= tables.group_epoch:
            return
        if remaining_ms(tables.target_timestamp_ms, config.assignment_interval_ms, wall_ms):
            return
        wished = tables.preferred_assignor
        assign = ASSIGNORS[wished if wished in config.assignors else config.assignors[0]]
        topics = self._environment.topics
        counts = topics.partition_counts(topics.ids_of(tables.subscribed_topics))
        spec = GroupSpec(self._member_specs(counts.keys()), counts, tables.is_homogeneous)
        try:
            targets = assign(spec)
        except AssignorFailure as failure:
            message = f"Failed to compute a new target assignment for epoch {tables.group_epoch}: {failure}"
            logger.error("group %s: %s", self._group_id, message)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from failure
        known = tables.targets.by_member
        for member_id, target in targets.items():
            before = known.get(member_id)
            if target is not before and target != before:
                self.make(SetTarget(member_id, target))
        self.make(SetTargetEpoch(tables.group_epoch, wall_ms))

    def _member_specs(self, topic_ids: Collection[UUID]) -> dict[str, MemberSpec]:
        """The members as the assignor sees them. `topic_ids`: those that any of them is subscribed to."""
        tables, topics = self.tables, self._environment.topics
        target_of = tables.targets.by_member.get
        if tables.is_homogeneous:  # 0.3 us a member instead of 1.9
            return {
                member_id: _make(
                    MemberSpec, (member.subscription.instance_id, topic_ids, target_of(member_id, NO_PARTITIONS))
                )
                for member_id, member in tables.members.items()
            }
        ids: dict[frozenset[str], Collection[UUID]] = {}
        specs = {}
        for member_id, member in tables.members.items():
            names = tables.topics_of(member)
            if names not in ids:
                ids[names] = topics.ids_of(names)
            specs[member_id] = MemberSpec(
                member.subscription.instance_id, ids[names], target_of(member_id, NO_PARTITIONS)
            )
        return specs

    # --- one member on its way

    def reconcile(
        self, member_id: str, owned: OwnedPartitions | None, *, is_resubscribed: bool
    ) -> CurrentAssignment | None:
        """The member's next step; None if it stays where it is. Raises KafkaError(FENCED_MEMBER_EPOCH)."""
        tables = self.tables
        member = tables.members[member_id]
        if not is_resubscribed and member.current.is_reconciled_to(tables.target_epoch):
            return None
        topics = self._environment.topics
        goal = Goal(
            tables.target_epoch,
            tables.targets.get(member_id),
            topics.ids_of(tables.topics_of(member)),
            tables.partition_epochs.get,
        )
        current = reconcile(member.current, goal, owned, is_resubscribed=is_resubscribed)
        if current == member.current:
            return None
        self.make(SetCurrent(member_id, current))
        return current


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
