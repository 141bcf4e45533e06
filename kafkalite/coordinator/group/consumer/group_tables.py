"""The tables of a consumer group, and the steps that change them; each step is one record of `__consumer_offsets`.

A decision makes its steps one after another, and each takes effect at once. If the decision is refused on its way, or
its records could not be appended, the steps are undone in reverse. Reading the log makes the same steps.
Source: org.apache.kafka.coordinator.group.modern.{ModernGroup, consumer.ConsumerGroup}, GroupMetadataManager (replay;
4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.changes import Undo
from kafkalite.coordinator.group.consumer.member import (
    DELETED,
    ConsumerMember,
    CurrentAssignment,
    ResolvedRegex,
    Subscription,
)
from kafkalite.coordinator.group.partition_sets import PartitionEpochs, PartitionSet, TargetAssignments

FIRST_EPOCH = 1  # of a group and of its target before any member


class SetSubscription(NamedTuple):
    """Record 5; None removes the member."""

    member_id: str
    value: Subscription | None


class SetCurrent(NamedTuple):
    """Record 8; None frees the member's partitions."""

    member_id: str
    value: CurrentAssignment | None


class SetTarget(NamedTuple):
    """Record 7."""

    member_id: str
    value: PartitionSet | None


class SetTargetEpoch(NamedTuple):
    """Record 6. `timestamp_ms` is the date of the target, 0 if it is unknown."""

    epoch: int
    timestamp_ms: int


class SetGroupEpoch(NamedTuple):
    """Record 3."""

    epoch: int
    metadata_hash: int


class SetRegex(NamedTuple):
    """Record 16; None forgets the topics of a regular expression that no member has any more."""

    regex: str
    value: ResolvedRegex | None


class SetTopicMetadata(NamedTuple):
    """Record 4, which Kafka 4.0 wrote instead of a hash. Only its removal is written here."""

    is_present: bool


Step = SetSubscription | SetCurrent | SetTarget | SetTargetEpoch | SetGroupEpoch | SetRegex | SetTopicMetadata


class ConsumerGroupTables:
    """Members, epochs and targets of one group, with what is counted over its members."""

    def __init__(self) -> None:
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.has_topic_metadata = False  # a record 4 stands in the log
        self.targets = TargetAssignments()
        self.regexes: dict[str, ResolvedRegex] = {}  # resolved ones
        self.members: dict[str, ConsumerMember] = {}
        self.member_changes = 0  # how often one of them was put or removed
        self.instances: dict[str, str] = {}  # instance id -> member id
        self.partition_epochs = PartitionEpochs()
        # how many members, by topic, regular expression, assignor, and protocol of those that speak the classic one
        self.name_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.protocol_counts: Counter[str] = Counter()
        self.classic_count = 0
        self.regex_topic_counts: Counter[str] = Counter()  # how many resolved expressions, by topic

    def apply(self, step: Step) -> Undo:
        """Make the step; returns what undoes it."""
        match step:
            case SetSubscription(member_id, value):
                return self._set_subscription(member_id, value)
            case SetCurrent(member_id, current):
                member = self.members.get(member_id)
                if member is None and current is None:
                    return _nothing
                member = member or ConsumerMember(member_id)
                return self._put_member(member_id, member._replace(current=current or DELETED))
            case SetTarget(member_id, target):
                undo: Undo = partial(self.targets.put, member_id, self.targets.by_member.get(member_id))
                self.targets.put(member_id, target)
            case SetTargetEpoch():
                undo = partial(self.apply, SetTargetEpoch(self.target_epoch, self.target_timestamp_ms))
                self.target_epoch, self.target_timestamp_ms = step
            case SetGroupEpoch():
                undo = partial(self.apply, SetGroupEpoch(self.group_epoch, self.metadata_hash))
                self.group_epoch, self.metadata_hash = step
            case SetRegex(regex, resolved):
                undo = partial(self._put_regex, regex, self.regexes.get(regex))
                self._put_regex(regex, resolved)
            case SetTopicMetadata(is_present):
                undo = partial(setattr, self, "has_topic_metadata", self.has_topic_metadata)
                self.has_topic_metadata = is_present
        return undo

    def _set_subscription(self, member_id: str, value: Subscription | None) -> Undo:
        if value is None:
            return self._put_member(member_id, None)
        member = self.members.get(member_id) or ConsumerMember(member_id)
        return self._put_member(member_id, member._replace(subscription=value))

    def _put_member(self, member_id: str, member: ConsumerMember | None) -> Undo:
        self.member_changes += 1
        before = self.members.get(member_id)
        instance_id = before.instance_id if before is not None else None
        if before is not None:
            self._count(before, -1)
            if instance_id is not None and self.instances.get(instance_id) == member_id:
                del self.instances[instance_id]
            self.partition_epochs.remove(before.current.assigned, before.current.epoch)
            self.partition_epochs.remove(before.current.pending_revocation, before.current.epoch)
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member
            self._count(member, 1)
            if member.instance_id is not None:
                self.instances[member.instance_id] = member_id
            self.partition_epochs.add(member.current.assigned, member.current.epoch)
            self.partition_epochs.add(member.current.pending_revocation, member.current.epoch)
        return partial(self._put_member, member_id, before)

    def _count(self, member: ConsumerMember, step: int) -> None:
        subscription = member.subscription
        _add(self.name_counts, subscription.topic_names, step)
        if subscription.topic_regex:
            _add(self.regex_counts, (subscription.topic_regex,), step)
        if subscription.server_assignor is not None:
            _add(self.assignor_counts, (subscription.server_assignor,), step)
        if subscription.classic is not None:
            self.classic_count += step
            _add(self.protocol_counts, {name for name, _ in subscription.classic.protocols}, step)

    def _put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.regexes.pop(regex, None)
        if before is not None:
            _add(self.regex_topic_counts, before.topics, -1)
        if resolved is not None:
            self.regexes[regex] = resolved
            _add(self.regex_topic_counts, resolved.topics, 1)

    # --- questions

    @property
    def subscribed_topics(self) -> set[str]:
        """Topics that members are subscribed to by name or by a resolved regular expression."""
        return {*self.name_counts, *self.regex_topic_counts}

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names that the member is subscribed to. A regular expression that is not resolved matches none."""
        names = member.subscription.topic_names
        resolved = self.regexes.get(member.regex or "")
        return names if resolved is None else names | resolved.topics

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members have one subscription: the same names, or one regular expression and no names."""
        if not self.regex_counts:
            return all(count == len(self.members) for count in self.name_counts.values())
        if self.name_counts or len(self.regex_counts) > 1:
            return False
        return self.regex_counts.total() == len(self.members)

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor that most members wish for."""
        wished = self.assignor_counts.most_common(1)
        return wished[0][0] if wished else None


def _add(counts: Counter[str], names: Iterable[str], step: int) -> None:
    for name in names:
        count = counts[name] + step
        if count:
            counts[name] = count
        else:
            del counts[name]


def _nothing() -> None:
    return
