"""The description of a group, as ConsumerGroupDescribe shows it.

Source: org.apache.kafka.coordinator.group.modern.consumer.{ConsumerGroup, ConsumerGroupMember} (asDescribedGroup,
asConsumerGroupDescribeMember; 4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from uuid import UUID

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.consumer.group_tables import ConsumerGroupTables
from kafkalite.coordinator.group.consumer.member import ConsumerMember
from kafkalite.coordinator.group.topics import Topics


class ConsumerGroupState(Enum):
    """The states of a group, by Kafka's names. None is stored: they follow from epochs and members."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


def state_of(tables: ConsumerGroupTables) -> ConsumerGroupState:
    if not tables.members:
        return ConsumerGroupState.EMPTY
    if tables.group_epoch > tables.target_epoch:
        return ConsumerGroupState.ASSIGNING
    if all(member.current.is_reconciled_to(tables.target_epoch) for member in tables.members.values()):
        return ConsumerGroupState.STABLE
    return ConsumerGroupState.RECONCILING


class NamedPartitions(NamedTuple):
    """Partitions of one topic that exists."""

    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]


class ConsumerMemberDescription(NamedTuple):
    """One member. `assignment` has also what it is giving up."""

    member: ConsumerMember
    assignment: Sequence[NamedPartitions]
    target: Sequence[NamedPartitions]


class ConsumerGroupDescription(NamedTuple):
    """One group."""

    group_id: str
    state: str
    group_epoch: int
    target_epoch: int
    assignor: str
    members: Sequence[ConsumerMemberDescription]

    def topics(self) -> set[str]:
        """Every topic that the description names."""
        named = {row.topic_name for each in self.members for row in (*each.assignment, *each.target)}
        return named.union(*(each.member.subscription.topic_names for each in self.members))


def describe(
    group_id: str, tables: ConsumerGroupTables, topics: Topics, default_assignor: str
) -> ConsumerGroupDescription:
    members = [
        ConsumerMemberDescription(
            member,
            _named(_together(member.current.assigned, member.current.pending_revocation), topics),
            _named(tables.targets.get(member_id), topics),
        )
        for member_id, member in tables.members.items()
    ]
    return ConsumerGroupDescription(
        group_id,
        state_of(tables).value,
        tables.group_epoch,
        tables.target_epoch,
        tables.preferred_assignor or default_assignor,
        members,
    )


def _together(*parts: Mapping[UUID, Iterable[int]]) -> dict[UUID, set[int]]:
    found: dict[UUID, set[int]] = {}
    for part in parts:
        for topic_id, indexes in part.items():
            found.setdefault(topic_id, set()).update(indexes)
    return found


def _named(partitions: Mapping[UUID, Collection[int]], topics: Topics) -> list[NamedPartitions]:
    """Topics that are gone are left out."""
    named = ((topic_id, topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
    return [NamedPartitions(topic_id, name, sorted(indexes)) for topic_id, name, indexes in named if name is not None]
