"""The records of consumer groups: the steps of `group_tables.py` as keys and values, and back.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers, the ConsumerGroup*Key/Value.json (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from kafkalite.coordinator.group.consumer.group_tables import (
    SetCurrent,
    SetGroupEpoch,
    SetRegex,
    SetSubscription,
    SetTarget,
    SetTargetEpoch,
    SetTopicMetadata,
    Step,
)
from kafkalite.coordinator.group.consumer.member import (
    ClassicMember,
    CurrentAssignment,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from kafkalite.coordinator.group.partition_sets import AssignedPartitions, partition_set
from kafkalite.coordinator.runtime.effects import Records
from kafkalite.protocol.codec.codec import known_version_of, read_versioned, version_of, versioned
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.records import (
    GROUP_RECORDS,
    AssignedTopicPartitions,
    AssignmentEpochValue,
    ClassicMemberMetadata,
    ClassicProtocol,
    CurrentAssignmentValue,
    GroupEpochValue,
    GroupIdKey,
    MemberKey,
    MemberMetadataValue,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentValue,
    TopicIdPartitions,
)

GROUP_EPOCH, TOPIC_METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KINDS: Final = frozenset({GROUP_EPOCH, TOPIC_METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX})
"""The versions of the keys of these records."""

_VALUE_VERSION = 0


def records_of(group_id: str, steps: Iterable[Step]) -> Records:
    """A record for each step."""
    return [_record(group_id, step) for step in steps]


def _record(group_id: str, step: Step) -> tuple[bytes, bytes | None]:
    match step:
        case SetSubscription(member_id, subscription):
            return _member_key(MEMBER, group_id, member_id), _bytes(subscription and _member_value(subscription))
        case SetCurrent(member_id, current):
            return _member_key(CURRENT, group_id, member_id), _bytes(current and _current_value(current))
        case SetTarget(member_id, target):
            value = None
            if target is not None:
                rows = [TopicIdPartitions(topic_id=each, partitions=sorted(some)) for each, some in target.items()]
                value = TargetAssignmentValue(topic_partitions=rows)
            return _member_key(TARGET, group_id, member_id), _bytes(value)
        case SetTargetEpoch(epoch, timestamp_ms):
            value_ = AssignmentEpochValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
            return _group_key(TARGET_EPOCH, group_id), _bytes(value_)
        case SetGroupEpoch(epoch, metadata_hash):
            return _group_key(GROUP_EPOCH, group_id), _bytes(GroupEpochValue(epoch=epoch, metadata_hash=metadata_hash))
        case SetRegex(regex, resolved):
            key = versioned(RegularExpressionKey(group_id=group_id, regular_expression=regex), REGEX)
            return key, _bytes(resolved and _regex_value(resolved))
        case SetTopicMetadata():
            return _group_key(TOPIC_METADATA, group_id), None


def tombstones_of_group(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> Records:
    """Tombstones of all records of a group, in Kafka's order."""
    members = list(member_ids)
    records: Records = [(_member_key(CURRENT, group_id, each), None) for each in members]
    records += [(_member_key(TARGET, group_id, each), None) for each in members]
    records.append((_group_key(TARGET_EPOCH, group_id), None))
    records += [(_member_key(MEMBER, group_id, each), None) for each in members]
    keys = (versioned(RegularExpressionKey(group_id=group_id, regular_expression=each), REGEX) for each in regexes)
    records += [(key, None) for key in keys]
    return [*records, (_group_key(TOPIC_METADATA, group_id), None), (_group_key(GROUP_EPOCH, group_id), None)]


def group_id_of(key: bytes) -> str:
    """The group of a record of one of `KINDS`. Raises Malformed."""
    version = version_of(key)
    decoded = read_versioned(GROUP_RECORDS[version].key, version, key)
    assert isinstance(decoded, GroupIdKey | MemberKey | RegularExpressionKey)
    return decoded.group_id


def step_of(key: bytes, value: bytes) -> Step:
    """The step that a record of one of `KINDS` stands for. Raises Malformed."""
    kind = version_of(key)
    known_version_of(value, _VALUE_VERSION)
    if kind in (GROUP_EPOCH, TARGET_EPOCH):
        if kind == TARGET_EPOCH:
            target_epoch = read_versioned(AssignmentEpochValue, _VALUE_VERSION, value)
            return SetTargetEpoch(target_epoch.assignment_epoch, max(0, target_epoch.assignment_timestamp))
        group_epoch = read_versioned(GroupEpochValue, _VALUE_VERSION, value)
        return SetGroupEpoch(group_epoch.epoch, group_epoch.metadata_hash)
    if kind == REGEX:
        regex = read_versioned(RegularExpressionKey, kind, key).regular_expression
        resolved = read_versioned(RegularExpressionValue, _VALUE_VERSION, value)
        return SetRegex(regex, ResolvedRegex(frozenset(resolved.topics), resolved.version, resolved.timestamp))
    if kind == TOPIC_METADATA:
        return SetTopicMetadata(is_present=True)
    member_id = read_versioned(MemberKey, kind, key).member_id
    if kind == MEMBER:
        return SetSubscription(member_id, _subscription(read_versioned(MemberMetadataValue, _VALUE_VERSION, value)))
    if kind == TARGET:
        rows = read_versioned(TargetAssignmentValue, _VALUE_VERSION, value).topic_partitions
        return SetTarget(member_id, partition_set((row.topic_id, row.partitions) for row in rows))
    return SetCurrent(member_id, _current(read_versioned(CurrentAssignmentValue, _VALUE_VERSION, value)))


def _group_key(kind: int, group_id: str) -> bytes:
    return versioned(GroupIdKey(group_id=group_id), kind)


def _member_key(kind: int, group_id: str, member_id: str) -> bytes:
    return versioned(MemberKey(group_id=group_id, member_id=member_id), kind)


def _bytes(value: Message | None) -> bytes | None:
    return None if value is None else versioned(value, _VALUE_VERSION)


def _member_value(subscription: Subscription) -> MemberMetadataValue:
    classic = subscription.classic
    return MemberMetadataValue(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
        ),
    )


def _subscription(value: MemberMetadataValue) -> Subscription:
    classic = value.classic_member_metadata
    return Subscription(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex,
        value.rebalance_timeout_ms,
        value.server_assignor,
        None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms, tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
        ),
    )


def _current_value(current: CurrentAssignment) -> CurrentAssignmentValue:
    return CurrentAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_rows(current.assigned),
        partitions_pending_revocation=_rows(current.pending_revocation),
    )


def _rows(partitions: AssignedPartitions) -> list[AssignedTopicPartitions]:
    return [
        AssignedTopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in ((topic_id, dict(sorted(some.items()))) for topic_id, some in partitions.items())
    ]


def _current(value: CurrentAssignmentValue) -> CurrentAssignment:
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState.of(value.state),
        _assigned(value.assigned_partitions, value.member_epoch),
        _assigned(value.partitions_pending_revocation, value.member_epoch),
    )


def _assigned(rows: Iterable[AssignedTopicPartitions], member_epoch: int) -> AssignedPartitions:
    """Kafka before 4.3 wrote no epochs of partitions, where the member's epoch stands for them."""
    found: dict[UUID, Mapping[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if len(epochs) != len(row.partitions):
            epochs = [max(0, member_epoch)] * len(row.partitions)
        if row.partitions:
            found[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return found


def _regex_value(resolved: ResolvedRegex) -> RegularExpressionValue:
    return RegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
