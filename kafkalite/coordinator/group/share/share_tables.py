"""The tables of a share group, and the steps that change them; each step is one record of `__consumer_offsets`.

A decision makes its steps one after another, and each takes effect at once; if the log refuses them they are undone in
reverse. Reading the log makes the same steps. Besides members, epochs and targets the group knows the partitions whose
state the share coordinator has: only those can be assigned.
Source: org.apache.kafka.coordinator.group.modern.share.{ShareGroup, ShareGroupMember}, GroupMetadataManager (4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.changes import Undo
from kafkalite.coordinator.group.partition_sets import NO_PARTITIONS, PartitionSet, TargetAssignments, partition_set
from kafkalite.coordinator.runtime.effects import Records
from kafkalite.protocol.codec.codec import known_version_of, read_versioned, version_of, versioned
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.records import (
    AssignmentEpochValue,
    GroupEpochValue,
    GroupIdKey,
    MemberKey,
    ShareCurrentAssignmentValue,
    SharedTopic,
    SharedTopicPartitions,
    ShareMemberMetadataValue,
    StatePartitionMetadataValue,
    TargetAssignmentValue,
    TopicIdPartitions,
)

MEMBER, GROUP_EPOCH, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS = range(10, 16)
KINDS = frozenset(range(10, 16))
"""The versions of the keys of these records."""
_VALUE_VERSION = 0
JOINED_EPOCH = 0
FIRST_EPOCH = 1  # of a group and of its target before any member


class ShareSubscription(NamedTuple):
    """The facts that a member gives of itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()


class ShareAssignment(NamedTuple):
    """How far a member has come. Its epoch before is accepted once more, for the answer may get lost."""

    epoch: int = JOINED_EPOCH
    previous_epoch: int = -1
    partitions: PartitionSet = NO_PARTITIONS


class ShareMember(NamedTuple):
    """One member."""

    member_id: str
    subscription: ShareSubscription = ShareSubscription()
    current: ShareAssignment = ShareAssignment()


class SharedPartitions(NamedTuple):
    """Partitions of one topic whose state the share coordinator has or will have. `since_ms` is a date."""

    name: str
    partitions: frozenset[int]
    since_ms: int = 0


class StatePartitions(NamedTuple):
    """By topic id: those being initialized, those that are, and topics whose state is being deleted, with names."""

    initializing: Mapping[UUID, SharedPartitions] = {}
    initialized: Mapping[UUID, SharedPartitions] = {}
    deleting: Mapping[UUID, str] = {}


class SetSubscription(NamedTuple):
    """Record 10; None removes the member."""

    member_id: str
    value: ShareSubscription | None


class SetGroupEpoch(NamedTuple):
    """Record 11."""

    epoch: int
    metadata_hash: int


class SetTargetEpoch(NamedTuple):
    """Record 12."""

    epoch: int
    timestamp_ms: int


class SetTarget(NamedTuple):
    """Record 13."""

    member_id: str
    value: PartitionSet | None


class SetCurrent(NamedTuple):
    """Record 14."""

    member_id: str
    value: ShareAssignment | None


class SetStatePartitions(NamedTuple):
    """Record 15."""

    value: StatePartitions


Step = SetSubscription | SetGroupEpoch | SetTargetEpoch | SetTarget | SetCurrent | SetStatePartitions


class ShareGroupTables:
    """Members, epochs and targets of one group."""

    def __init__(self) -> None:
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.targets = TargetAssignments()
        self.members: dict[str, ShareMember] = {}
        self.name_counts: Counter[str] = Counter()
        self.state_partitions = StatePartitions()

    @property
    def subscribed_topics(self) -> set[str]:
        """The topics that members want, whether they exist or not."""
        return set(self.name_counts)

    def apply(self, step: Step) -> Undo:
        """Make the step; returns what undoes it."""
        match step:
            case SetSubscription(member_id, subscription):
                if subscription is None:
                    return self._put_member(member_id, None)
                member = self.members.get(member_id) or ShareMember(member_id)
                return self._put_member(member_id, member._replace(subscription=subscription))
            case SetCurrent(member_id, current):
                known = self.members.get(member_id)
                if known is None and current is None:
                    return _nothing
                known = known or ShareMember(member_id)
                return self._put_member(member_id, known._replace(current=current or ShareAssignment()))
            case SetTarget(member_id, target):
                undo: Undo = partial(self.targets.put, member_id, self.targets.by_member.get(member_id))
                self.targets.put(member_id, target)
            case SetTargetEpoch():
                undo = partial(self.apply, SetTargetEpoch(self.target_epoch, self.target_timestamp_ms))
                self.target_epoch, self.target_timestamp_ms = step
            case SetGroupEpoch():
                undo = partial(self.apply, SetGroupEpoch(self.group_epoch, self.metadata_hash))
                self.group_epoch, self.metadata_hash = step
            case SetStatePartitions(value):
                undo = partial(setattr, self, "state_partitions", self.state_partitions)
                self.state_partitions = value
        return undo

    def _put_member(self, member_id: str, member: ShareMember | None) -> Undo:
        before = self.members.get(member_id)
        for old in before.subscription.topic_names if before is not None else ():
            self.name_counts[old] -= 1
            if not self.name_counts[old]:
                del self.name_counts[old]
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member
            self.name_counts.update(member.subscription.topic_names)
        return partial(self._put_member, member_id, before)


def _nothing() -> None:
    """The step changed nothing."""


def records_of(group_id: str, steps: Iterable[Step]) -> Records:
    """A record for each step."""
    return [_record(group_id, step) for step in steps]


def _record(group_id: str, step: Step) -> tuple[bytes, bytes | None]:
    match step:
        case SetSubscription(member_id, subscription):
            value: Message | None = None
            if subscription is not None:
                value = ShareMemberMetadataValue(
                    rack_id=subscription.rack_id,
                    client_id=subscription.client_id,
                    client_host=subscription.client_host,
                    subscribed_topic_names=sorted(subscription.topic_names),
                )
            return _member_key(MEMBER, group_id, member_id), _bytes(value)
        case SetCurrent(member_id, current):
            value = None
            if current is not None:
                value = ShareCurrentAssignmentValue(
                    member_epoch=current.epoch,
                    previous_member_epoch=current.previous_epoch,
                    assigned_partitions=_rows(current.partitions),
                )
            return _member_key(CURRENT, group_id, member_id), _bytes(value)
        case SetTarget(member_id, target):
            value = None if target is None else TargetAssignmentValue(topic_partitions=_rows(target))
            return _member_key(TARGET, group_id, member_id), _bytes(value)
        case SetTargetEpoch(epoch, timestamp_ms):
            value = AssignmentEpochValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
            return _group_key(TARGET_EPOCH, group_id), _bytes(value)
        case SetGroupEpoch(epoch, metadata_hash):
            return _group_key(GROUP_EPOCH, group_id), _bytes(GroupEpochValue(epoch=epoch, metadata_hash=metadata_hash))
        case SetStatePartitions(partitions):
            return _group_key(STATE_PARTITIONS, group_id), _bytes(_state_value(partitions))


def tombstones_of_group(group_id: str, member_ids: Iterable[str]) -> Records:
    """Tombstones of all records of a group, in Kafka's order."""
    members = list(member_ids)
    return [
        *((_member_key(CURRENT, group_id, each), None) for each in members),
        *((_member_key(TARGET, group_id, each), None) for each in members),
        (_group_key(TARGET_EPOCH, group_id), None),
        *((_member_key(MEMBER, group_id, each), None) for each in members),
        (_group_key(STATE_PARTITIONS, group_id), None),
        (_group_key(GROUP_EPOCH, group_id), None),
    ]


def step_of(key: bytes, value: bytes) -> Step:
    """The step that a record of one of `KINDS` stands for. What was being initialized is tried again by the next
    heartbeat. Raises Malformed."""
    kind = version_of(key)
    known_version_of(value, _VALUE_VERSION)
    if kind == GROUP_EPOCH:
        epoch = read_versioned(GroupEpochValue, _VALUE_VERSION, value)
        return SetGroupEpoch(epoch.epoch, epoch.metadata_hash)
    if kind == TARGET_EPOCH:
        target_epoch = read_versioned(AssignmentEpochValue, _VALUE_VERSION, value)
        return SetTargetEpoch(target_epoch.assignment_epoch, target_epoch.assignment_timestamp)
    if kind == STATE_PARTITIONS:
        return SetStatePartitions(_state_partitions(value))
    member_id = read_versioned(MemberKey, kind, key).member_id
    if kind == MEMBER:
        member = read_versioned(ShareMemberMetadataValue, _VALUE_VERSION, value)
        names = frozenset(member.subscribed_topic_names)
        return SetSubscription(
            member_id, ShareSubscription(member.rack_id, member.client_id, member.client_host, names)
        )
    if kind == TARGET:
        target = read_versioned(TargetAssignmentValue, _VALUE_VERSION, value)
        return SetTarget(member_id, _partitions(target.topic_partitions))
    current = read_versioned(ShareCurrentAssignmentValue, _VALUE_VERSION, value)
    assigned = _partitions(current.assigned_partitions)
    return SetCurrent(member_id, ShareAssignment(current.member_epoch, current.previous_member_epoch, assigned))


def group_id_of(key: bytes) -> str:
    """The group of a record of one of `KINDS`. Raises Malformed."""
    kind = version_of(key)
    if kind in (MEMBER, TARGET, CURRENT):
        return read_versioned(MemberKey, kind, key).group_id
    return read_versioned(GroupIdKey, kind, key).group_id


def _member_key(kind: int, group_id: str, member_id: str) -> bytes:
    return versioned(MemberKey(group_id=group_id, member_id=member_id), kind)


def _group_key(kind: int, group_id: str) -> bytes:
    return versioned(GroupIdKey(group_id=group_id), kind)


def _bytes(value: Message | None) -> bytes | None:
    return None if value is None else versioned(value, _VALUE_VERSION)


def _rows(partitions: PartitionSet) -> list[TopicIdPartitions]:
    return [TopicIdPartitions(topic_id=each, partitions=sorted(some)) for each, some in partitions.items()]


def _partitions(rows: Iterable[TopicIdPartitions]) -> PartitionSet:
    return partition_set((row.topic_id, row.partitions) for row in rows)


def _state_value(partitions: StatePartitions) -> StatePartitionMetadataValue:
    return StatePartitionMetadataValue(
        initializing_topics=_shared_rows(partitions.initializing),
        initialized_topics=_shared_rows(partitions.initialized),
        deleting_topics=[SharedTopic(topic_id=each, topic_name=name) for each, name in partitions.deleting.items()],
    )


def _shared_rows(partitions: Mapping[UUID, SharedPartitions]) -> list[SharedTopicPartitions]:
    return [
        SharedTopicPartitions(topic_id=each, topic_name=some.name, partitions=sorted(some.partitions))
        for each, some in partitions.items()
    ]


def _state_partitions(value: bytes) -> StatePartitions:
    found = read_versioned(StatePartitionMetadataValue, _VALUE_VERSION, value)
    initializing, initialized = (
        {row.topic_id: SharedPartitions(row.topic_name, frozenset(row.partitions)) for row in rows}
        for rows in (found.initializing_topics, found.initialized_topics)
    )
    return StatePartitions(initializing, initialized, {row.topic_id: row.topic_name for row in found.deleting_topics})
