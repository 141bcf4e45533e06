"""Partitions of topics by topic id: sets of them, sets that know when each was assigned, and the owners' epochs.

A group that assigns partitions itself has three of them: the target assignment of each member, the current assignment
of each member with the epoch in which each partition was assigned (KIP-1251), and for each partition the epoch of the
member that has it, or is giving it up.
Source: org.apache.kafka.coordinator.group.modern.{Assignment, ModernGroup}, modern.consumer.ConsumerGroup (4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

K = TypeVar("K", bound=Hashable)

PartitionSet = Mapping[UUID, frozenset[int]]
"""By topic id; no topic without partitions. Immutable."""

AssignedPartitions = Mapping[UUID, Mapping[int, int]]
"""By topic id: partition -> the epoch in which it was assigned; no topic without partitions. Immutable."""

OwnedPartitions = Mapping[UUID, Collection[int]]
"""The partitions that a member reports as its own."""

NO_PARTITIONS: PartitionSet = {}
NOTHING_ASSIGNED: AssignedPartitions = {}
FREE = -1  # the epoch of a partition that no member has


def partition_set(partitions: Iterable[tuple[K, Iterable[int]]]) -> Mapping[K, frozenset[int]]:
    """The set without empty topics; a topic that comes twice counts with all its partitions. Tasks of subtopologies
    count as partitions of topics here and below."""
    found: dict[K, frozenset[int]] = {}
    for topic_id, indexes in partitions:
        if some := frozenset(indexes):
            found[topic_id] = found.get(topic_id, frozenset()) | some
    return found


def assigned_in_epoch(partitions: Mapping[UUID, Iterable[int]], epoch: int) -> AssignedPartitions:
    """The partitions as assigned in one epoch."""
    return {topic_id: found for topic_id, indexes in partitions.items() if (found := dict.fromkeys(indexes, epoch))}


def is_owned(owned: Mapping[K, Collection[int]], within: Mapping[K, Collection[int]]) -> bool:
    """Whether one of the partitions in `within` is owned."""
    return any(
        index in known for topic_id, indexes in owned.items() if (known := within.get(topic_id)) for index in indexes
    )


def owns_only(owned: Mapping[K, Collection[int]], within: Mapping[K, Collection[int]]) -> bool:
    """Whether `owned` is a subset of `within`."""
    return all(topic_id in within and set(indexes).issubset(within[topic_id]) for topic_id, indexes in owned.items())


class PartitionEpochs:
    """The epoch of the member that has each partition, or is giving it up.

    Records of a compacted log may show a partition with two members for a moment: the later one counts, and the removal
    of the earlier one leaves it alone, for its epoch is another.
    """

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[UUID, dict[int, int]] = {}

    def get(self, topic_id: UUID, index: int) -> int:
        """FREE if no member has the partition."""
        epochs = self._epochs.get(topic_id)
        return FREE if epochs is None else epochs.get(index, FREE)

    def add(self, partitions: AssignedPartitions, epoch: int) -> None:
        for topic_id, indexes in partitions.items():
            self._epochs.setdefault(topic_id, {}).update(dict.fromkeys(indexes, epoch))

    def remove(self, partitions: AssignedPartitions, epoch: int) -> None:
        """Free the partitions that are held in this epoch."""
        for topic_id, indexes in partitions.items():
            epochs = self._epochs.get(topic_id)
            if epochs is None:
                continue
            for index in indexes:
                if epochs.get(index) == epoch:
                    del epochs[index]
            if not epochs:
                del self._epochs[topic_id]


class TargetAssignments:
    """The target assignment of each member, and the member that each partition is meant for."""

    __slots__ = ("by_member", "member_of")

    def __init__(self) -> None:
        self.by_member: dict[str, PartitionSet] = {}
        self.member_of: dict[UUID, dict[int, str]] = {}

    def get(self, member_id: str) -> PartitionSet:
        return self.by_member.get(member_id, NO_PARTITIONS)

    def put(self, member_id: str, target: PartitionSet | None) -> None:
        """Set or remove (None) the target of a member."""
        before = self.by_member.get(member_id, NO_PARTITIONS)
        if target is None:
            self.by_member.pop(member_id, None)
        else:
            self.by_member[member_id] = target
        after = target or NO_PARTITIONS
        for topic_id, indexes in before.items():
            members = self.member_of.get(topic_id, {})
            for index in indexes - after.get(topic_id, frozenset()):
                if members.get(index) == member_id:  # else it is meant for another by now
                    del members[index]
            if not members:
                self.member_of.pop(topic_id, None)
        for topic_id, indexes in after.items():
            if added := indexes - before.get(topic_id, frozenset()):
                self.member_of.setdefault(topic_id, {}).update(dict.fromkeys(added, member_id))
