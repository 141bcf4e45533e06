"""The next step of one member towards its target assignment.

A member gives up what is not meant for it any more, and says so, before it gets anything new; and it gets only
partitions that no other member has, or is giving up. So no partition has two owners. It reaches the epoch of the target
when nothing is left to give up, and may then still wait for others.
Source: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder (4.3), with KAFKA-19431.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.consumer.member import CurrentAssignment, MemberState
from kafkalite.coordinator.group.partition_sets import (
    FREE,
    NOTHING_ASSIGNED,
    AssignedPartitions,
    OwnedPartitions,
    PartitionSet,
    is_owned,
)

_UNKNOWN_STATE = (
    "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
)


class Goal(NamedTuple):
    """The target that a member is to reach. `subscribed` has the ids of the topics that it is subscribed to now."""

    epoch: int
    target: PartitionSet
    subscribed: Collection[UUID]
    partition_epoch: Callable[[UUID, int], int]


def reconcile(
    current: CurrentAssignment, goal: Goal, owned: OwnedPartitions | None, *, is_resubscribed: bool
) -> CurrentAssignment:
    """The member's next step, or `current` if there is none. `owned` is None in a heartbeat that does not say it.

    Raises KafkaError(FENCED_MEMBER_EPOCH) for a member in an unknown state.
    """
    state = current.state
    if state is MemberState.STABLE and current.epoch == goal.epoch:
        return _without_unsubscribed(current, goal, owned) if is_resubscribed else current
    if state is MemberState.UNREVOKED and _has_to_revoke(current.pending_revocation, owned):
        return _without_unsubscribed(current, goal, owned) if is_resubscribed else current
    if state is not MemberState.UNKNOWN:
        return _next_assignment(current, current.epoch, goal, owned)
    if owned is None or owned:
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
    return _next_assignment(current, goal.epoch, goal, owned)


def _has_to_revoke(partitions: AssignedPartitions, owned: OwnedPartitions | None) -> bool:
    return owned is None or is_owned(owned, partitions)


def _without_unsubscribed(current: CurrentAssignment, goal: Goal, owned: OwnedPartitions | None) -> CurrentAssignment:
    """Gives up topics that the member is not subscribed to any more; its target may still have them."""
    dropped = {each: epochs for each, epochs in current.assigned.items() if each not in goal.subscribed}
    if not dropped:
        return current
    kept = {each: epochs for each, epochs in current.assigned.items() if each in goal.subscribed}
    pending = {**current.pending_revocation}
    for topic_id, epochs in dropped.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
    if _has_to_revoke(pending, owned):
        return current.advance(current.epoch, MemberState.UNREVOKED, kept, pending)
    return current.advance(current.epoch, current.state, kept, current.pending_revocation)


def _next_assignment(
    current: CurrentAssignment, epoch: int, goal: Goal, owned: OwnedPartitions | None
) -> CurrentAssignment:
    kept: dict[UUID, dict[int, int]] = {}
    dropped: dict[UUID, dict[int, int]] = {}
    gained: dict[UUID, list[int]] = {}
    is_waiting = False
    for topic_id in current.assigned.keys() | goal.target.keys():
        assigned = current.assigned.get(topic_id, {})
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset()
        if held := {index: since for index, since in assigned.items() if index in target}:
            kept[topic_id] = held
        if lost := {index: since for index, since in assigned.items() if index not in target}:
            dropped[topic_id] = lost
        own = current.pending_revocation.get(topic_id, {})  # what it is giving up itself does not keep it waiting
        missing = target.difference(held)
        free = [index for index in missing if index in own or goal.partition_epoch(topic_id, index) == FREE]
        is_waiting = is_waiting or len(free) < len(missing)
        if free:
            gained[topic_id] = free
    if dropped and _has_to_revoke(dropped, owned):
        return current.advance(epoch, MemberState.UNREVOKED, kept, dropped)
    for topic_id, indexes in gained.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(indexes, goal.epoch))
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    return current.advance(goal.epoch, state, kept, NOTHING_ASSIGNED)
