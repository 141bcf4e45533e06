"""The assignor of share groups: every partition has a member, every member a partition, and shares are even.

Partitions may have several members: with more members than partitions each has about as many. Otherwise each has one,
and members have about as many partitions. What a member has is kept as far as that allows.
Source: org.apache.kafka.coordinator.group.assignor.SimpleAssignor (4.3), whose exact placement depends on hashes of
member ids and is not repeated here; KIP-932.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from kafkalite.coordinator.group.partition_sets import PartitionSet, partition_set

_TopicPartition = tuple[UUID, int]


def assign(
    subscriptions: Mapping[str, Collection[UUID]],
    assignable: Mapping[UUID, Collection[int]],
    current: Mapping[str, PartitionSet],
) -> dict[str, PartitionSet]:
    """The partitions of each member. `subscriptions` has the topics of each member, `assignable` the partitions that
    may be assigned, `current` what members have."""
    wanted = {
        member_id: {(topic, index) for topic in topics for index in assignable.get(topic, ())}
        for member_id, topics in sorted(subscriptions.items())
    }
    partitions = sorted(set().union(*wanted.values()))
    if not partitions:
        return {member_id: {} for member_id in wanted}
    most_partitions = -(-len(partitions) // len(wanted))
    most_members = -(-len(wanted) // len(partitions))
    members_of: dict[_TopicPartition, list[str]] = {each: [] for each in partitions}
    assigned: dict[str, set[_TopicPartition]] = {member_id: set() for member_id in wanted}

    def give(partition: _TopicPartition, member_id: str) -> None:
        members_of[partition].append(member_id)
        assigned[member_id].add(partition)

    for member_id, mine in wanted.items():
        kept = {(topic, index) for topic, indexes in current.get(member_id, {}).items() for index in indexes}
        for partition in sorted(kept & mine):
            if len(assigned[member_id]) < most_partitions and len(members_of[partition]) < most_members:
                give(partition, member_id)
    for partition, holders in members_of.items():
        if not holders:
            give(
                partition,
                min((each for each in wanted if partition in wanted[each]), key=lambda each: len(assigned[each])),
            )
    for member_id, mine in wanted.items():
        if mine and not assigned[member_id]:
            give(min(sorted(mine), key=lambda each: len(members_of[each])), member_id)
    return {
        member_id: partition_set((topic, (index,)) for topic, index in sorted(mine))
        for member_id, mine in assigned.items()
    }
