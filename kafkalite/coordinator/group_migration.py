"""The conversion of a group between the classic and the consumer protocol while it works.

A classic group becomes a consumer group when a member of the consumer protocol joins it, and a consumer group classic
when its last member of that protocol is gone. Members keep their ids and partitions, and the group its offsets.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (validateOnlineUpgrade, convertToConsumerGroup,
convertToClassicGroup), modern.consumer.ConsumerGroup.fromClassicGroup, classic.ClassicGroup.fromConsumerGroup (4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group.classic.classic_group import ClassicGroup
from kafkalite.coordinator.group.classic.members import Member
from kafkalite.coordinator.group.consumer.consumer_group import ConsumerGroup
from kafkalite.coordinator.group.consumer.group_environment import GroupEnvironment
from kafkalite.coordinator.group.consumer.group_tables import (
    SetCurrent,
    SetGroupEpoch,
    SetSubscription,
    SetTarget,
    SetTargetEpoch,
    Step,
)
from kafkalite.coordinator.group.consumer.member import ClassicMember, CurrentAssignment, MemberState, Subscription
from kafkalite.coordinator.group.consumer.member_records import records_of
from kafkalite.coordinator.group.partition_sets import PartitionSet, assigned_in_epoch
from kafkalite.coordinator.group.topics import Topics
from kafkalite.coordinator.runtime.effects import Effect
from kafkalite.protocol.records import (
    CONSUMER_PROTOCOL_TYPE,
    encode_assignment,
    read_assignment,
    read_subscription,
    subscription_version,
)

_MALFORMED = "the embedded consumer protocol is malformed"
_CUSTOM_ASSIGNOR = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


def upgraded(
    classic: ClassicGroup, environment: GroupEnvironment, now: Moment
) -> tuple[ConsumerGroup, Sequence[Effect]]:
    """The consumer group that takes the place of a classic one with members, in its generation, and the effects that
    start the sessions of its members. Its records go before those of its first change.

    Raises KafkaError(GROUP_ID_NOT_FOUND) with the reason if the group cannot be one.
    """
    config = environment.config(classic.group_id)
    if not config.migration_policy.may_upgrade:
        raise _refused(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refused(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > config.max_size:
        raise _refused(classic, "the group size exceeds the consumer group maximum size")
    group = ConsumerGroup(classic.group_id, classic.partition, environment)
    epoch = classic.describe().epoch
    members = [(each.member_id, *_member_values(classic, each, environment.topics)) for each in classic.members]
    names = {name for _, subscription, _ in members for name in subscription.topic_names}
    steps: list[Step] = [SetSubscription(member_id, subscription) for member_id, subscription, _ in members]
    steps.append(SetGroupEpoch(epoch, environment.topics.hash_of(names)))
    steps += [SetTarget(member_id, target) for member_id, _, target in members]
    steps.append(SetTargetEpoch(epoch, 0))
    for member_id, _, target in members:
        current = CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned_in_epoch(target, epoch))
        steps.append(SetCurrent(member_id, current))
    for step in steps:
        group.tables.apply(step)
    group.members.preceding_records = [*classic.tombstones(), *records_of(classic.group_id, steps)]
    effects = [
        effect
        for each in classic.members
        for effect in group.members.renew_session(each.member_id, each.session_timeout_ms, now.monotonic_ms)
    ]
    return group, effects


def _refused(classic: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _member_values(classic: ClassicGroup, member: Member, topics: Topics) -> tuple[Subscription, PartitionSet]:
    """Subscription and target of one member; the latter is its last assignment, of topics that exist."""
    try:
        subscription = read_subscription(member.metadata(classic.describe().protocol_name))
        assignment = read_assignment(member.assignment) if member.assignment else None
    except Malformed as fault:
        raise _refused(classic, _MALFORMED) from fault
    if assignment is not None and assignment.user_data:
        raise _refused(classic, _CUSTOM_ASSIGNOR)
    target: dict[UUID, frozenset[int]] = {}
    for row in assignment.assigned_partitions if assignment is not None else ():
        topic_id = topics.id_of(row.topic)
        if topic_id is not None and row.partitions:
            target[topic_id] = frozenset(row.partitions)
    values = Subscription(
        member.instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )
    return values, target


def downgraded(
    group: ConsumerGroup, leaving: Collection[str], generation_id: int, config: BrokerConfig, now: Moment
) -> ClassicGroup:
    """The classic group that takes the place of a consumer group, with its targets as assignments. All members but the
    leaving ones are of the classic protocol."""
    topics = group.environment.topics
    members = []
    for member_id, member in group.tables.members.items():
        classic = member.subscription.classic
        if member_id in leaving or classic is None:
            continue
        values = member.subscription
        target = group.tables.targets.get(member_id)
        names = ((topics.name_of(topic_id), sorted(indexes)) for topic_id, indexes in target.items())
        members.append(
            Member(
                member_id,
                values.instance_id,
                values.client_id,
                values.client_host,
                values.rebalance_timeout_ms,
                classic.session_timeout_ms,
                classic.protocols,
                _assignment([(name, indexes) for name, indexes in names if name is not None], classic),
            )
        )
    return ClassicGroup.from_members(group.group_id, group.partition, members, generation_id, config, now)


def _assignment(partitions: Iterable[tuple[str, list[int]]], classic: ClassicMember) -> bytes:
    return encode_assignment(partitions, subscription_version(classic.protocols[0][1]))
