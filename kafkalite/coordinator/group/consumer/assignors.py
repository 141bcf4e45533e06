"""Assignors of the broker: how the partitions of the subscribed topics are shared among the members of a group.

`uniform` gives members the same number of partitions and moves as few as it can. If all have one subscription, each may
keep its fair share, and the rest goes to members with room. Otherwise each free partition goes to the least loaded
subscriber of its topic, and then partitions move from the most to the least loaded subscriber of a topic until no move
helps. `range` gives each member one range of each topic, and so the same partitions of topics with equal counts.
Racks play no part. Members are taken in the order of the mapping, and topics in an order of their own, so equal input
has equal output.
Source: KIP-848; org.apache.kafka.coordinator.group.assignor.{UniformAssignor, RangeAssignor} (4.3).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Final

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import java_order

_BALANCING_ROUNDS_MAX: Final = 16

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id; no topic is without partitions."""


class AssignorFailure(Exception):
    """There is no assignment, because a subscribed topic is not in the metadata."""


class MemberSpec(NamedTuple):
    """A member as an assignor sees it."""

    instance_id: str | None
    topic_ids: Collection[uuid.UUID]  # existing topics of its names and of its resolved regular expression
    target: Assignment  # from the last assignor


class GroupSpec(NamedTuple):
    """A group as an assignor sees it."""

    members: Mapping[str, MemberSpec]  # by member id
    partition_counts: Mapping[uuid.UUID, int]  # at least those of the subscribed topics
    is_homogeneous: bool  # all members have one subscription


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""The new target of every member. Raises AssignorFailure."""


def assign_uniform(group: GroupSpec) -> dict[str, Assignment]:
    """Balanced and sticky."""
    topics = _subscribed_topics(group)
    if not topics:
        return {member_id: {} for member_id in group.members}
    if group.is_homogeneous:
        return _share_equally(group, topics)
    return _Balancer(group, topics).assign()


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """A range of each topic. Which one follows from the order of members: static ones by instance id, then others."""
    topics = _subscribed_topics(group)
    ordered = sorted(group.members, key=lambda member_id: _range_order(member_id, group.members[member_id]))
    subscribers = dict.fromkeys(topics, ordered) if group.is_homogeneous else _subscribers(group, ordered)
    assigned: dict[str, dict[uuid.UUID, frozenset[int]]] = {member_id: {} for member_id in group.members}
    for topic, count in topics.items():
        quota, extras = divmod(count, len(subscribers[topic]))
        start = 0
        for position, member_id in enumerate(islice(subscribers[topic], count)):
            end = start + quota + (position < extras)
            assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assigned)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that settings and members use."""


def _subscribed_topics(group: GroupSpec) -> dict[uuid.UUID, int]:
    """Partition counts of the topics that any member is subscribed to, in the order of their ids."""
    members = group.members.values()
    ids = set().union(*(member.topic_ids for member in islice(members, 1 if group.is_homogeneous else None)))
    try:
        return {topic: group.partition_counts[topic] for topic in sorted(ids)}
    except KeyError as missing:
        raise AssignorFailure(f"Member is subscribed to topic {missing.args[0]} that does not exist") from None


def _subscribers(group: GroupSpec, member_ids: Iterable[str]) -> dict[uuid.UUID, list[str]]:
    found: dict[uuid.UUID, list[str]] = {}
    for member_id in member_ids:
        for topic in group.members[member_id].topic_ids:
            found.setdefault(topic, []).append(member_id)
    return found


def _range_order(member_id: str, member: MemberSpec) -> tuple[bool, bytes]:
    return member.instance_id is None, java_order(member.instance_id or member_id)


def _share_equally(group: GroupSpec, topics: Mapping[uuid.UUID, int]) -> dict[str, Assignment]:
    """Each member keeps up to its share. Shares differ by one: members that own more than the smaller one are first to
    get the larger."""
    quota, extras = divmod(sum(topics.values()), len(group.members))
    free = {topic: set(range(count)) for topic, count in topics.items()}
    given_up: list[tuple[uuid.UUID, int]] = []
    assigned: dict[str, Assignment] = {}  # of the members that stay as they are, and the places of the others
    changed: dict[str, dict[uuid.UUID, set[int]]] = {}
    rooms: list[tuple[dict[uuid.UUID, set[int]], int]] = []  # members below their share, and how far
    left = len(group.members)
    # nearly all members keep what they have, and its topics are the same objects: 0.45 us a member instead of 0.7
    last: uuid.UUID | None = None
    unclaimed: set[int] | None = None
    for member_id, (_, _, target) in group.members.items():
        size = 0
        lost: dict[uuid.UUID, frozenset[int]] = {}
        for topic, partitions in target.items():
            if topic is not last:
                last, unclaimed = topic, free.get(topic)
            if unclaimed is not None and partitions <= unclaimed:
                unclaimed -= partitions
                size += len(partitions)
            else:
                lost[topic] = partitions if unclaimed is None else partitions - unclaimed
                if unclaimed is not None:
                    unclaimed -= partitions
                size += len(partitions) - len(lost[topic])
        has_extra = extras > 0 and (size > quota or left <= extras)
        extras -= has_extra
        left -= 1
        room = quota + has_extra - size
        assigned[member_id] = target
        if not room and not lost:
            continue
        owned = {topic: set(some.difference(lost.get(topic, ()))) for topic, some in target.items()}
        changed[member_id] = owned
        if room < 0:
            given_up += _cut(owned, -room)
        elif room:
            rooms.append((owned, room))
    unassigned = [(topic, partition) for topic, partitions in free.items() for partition in sorted(partitions)]
    unassigned += given_up
    start = 0
    for owned, room in rooms:
        for topic, partition in unassigned[start : start + room]:
            owned.setdefault(topic, set()).add(partition)
        start += room
    assert start == len(unassigned)
    assigned.update((member_id, _frozen(owned)) for member_id, owned in changed.items())
    return assigned


def _cut(owned: dict[uuid.UUID, set[int]], surplus: int) -> list[tuple[uuid.UUID, int]]:
    """Takes `surplus` partitions away, from the last topics first."""
    cut: list[tuple[uuid.UUID, int]] = []
    for topic in reversed(owned):
        excess = sorted(owned[topic])[-(surplus - len(cut)) :]
        owned[topic].difference_update(excess)
        cut += ((topic, partition) for partition in excess)
        if len(cut) == surplus:
            break
    return cut


def _frozen(owned: Mapping[uuid.UUID, Collection[int]]) -> Assignment:
    return {topic: frozenset(partitions) for topic, partitions in owned.items() if partitions}


class _Balancer:
    """The uniform assignor for members of several subscriptions. Members go by their index."""

    def __init__(self, group: GroupSpec, topics: Mapping[uuid.UUID, int]) -> None:
        self._topics = topics
        self._member_ids = list(group.members)
        self._subscribers: dict[uuid.UUID, list[int]] = {topic: [] for topic in topics}
        self._owners: dict[uuid.UUID, dict[int, set[int]]] = {topic: {} for topic in topics}
        self._loads: list[int] = []  # partitions of each member
        self._free = {topic: set(range(count)) for topic, count in topics.items()}
        for index, member in enumerate(group.members.values()):
            for topic in member.topic_ids:
                self._subscribers[topic].append(index)
            load = 0
            for topic, partitions in member.target.items():
                if topic in member.topic_ids and (kept := self._free[topic] & partitions):
                    self._owners[topic][index] = kept
                    self._free[topic] -= kept
                    load += len(kept)
            self._loads.append(load)

    def assign(self) -> dict[str, Assignment]:
        # Topics with many partitions for few subscribers leave least choice, so they come first.
        topics = sorted(self._topics, key=lambda topic: self._precedence(topic))
        for topic in topics:
            self._assign_free(topic)
        shared = [topic for topic in topics if len(self._subscribers[topic]) > 1]
        for _ in range(_BALANCING_ROUNDS_MAX):
            if not sum(map(self._balance, shared)):
                break
        assigned: list[dict[uuid.UUID, frozenset[int]]] = [{} for _ in self._loads]
        for topic, owners in self._owners.items():
            for index, partitions in owners.items():
                assigned[index][topic] = frozenset(partitions)
        return dict(zip(self._member_ids, assigned, strict=True))

    def _precedence(self, topic: uuid.UUID) -> tuple[float, int, uuid.UUID]:
        subscribers = len(self._subscribers[topic])
        return -self._topics[topic] / subscribers, subscribers, topic

    def _assign_free(self, topic: uuid.UUID) -> None:
        """Gives each free partition to the least loaded subscriber, the first of several."""
        if not self._free[topic]:
            return
        heap = self._by_load(self._subscribers[topic], sign=1)
        owners, members = self._owners[topic], len(self._loads)
        for partition in sorted(self._free[topic]):
            index = heap[0] % members
            owners.setdefault(index, set()).add(partition)
            self._loads[index] += 1
            heapreplace(heap, heap[0] + members)

    def _balance(self, topic: uuid.UUID) -> int:
        """Moves partitions of `topic` from its most to its least loaded subscriber while that evens their loads, and
        returns how many."""
        subscribers, owners, loads = self._subscribers[topic], self._owners[topic], self._loads
        if max(map(loads.__getitem__, owners), default=0) - min(map(loads.__getitem__, subscribers)) < 2:
            return 0
        members, moved = len(loads), 0
        stacks = {index: sorted(partitions) for index, partitions in owners.items()}
        most, least = self._by_load(owners, sign=-1), self._by_load(subscribers, sign=1)
        while most:
            donor, receiver = most[0] % members, least[0] % members
            if loads[donor] != -(most[0] // members):  # it has received since, and so is among the least loaded
                heappop(most)
                continue
            if loads[receiver] != least[0] // members:  # it has given since; its load of now is in the heap as well
                heappop(least)
                continue
            if loads[donor] - loads[receiver] < 2:
                break
            partition = stacks[donor].pop()
            owners[donor].discard(partition)
            owners.setdefault(receiver, set()).add(partition)
            loads[donor] -= 1
            loads[receiver] += 1
            moved += 1
            heapreplace(least, least[0] + members)
            heappush(least, loads[donor] * members + donor)
            if stacks[donor]:
                heapreplace(most, most[0] + members)
            else:
                heappop(most)
                del owners[donor]
        return moved

    def _by_load(self, indices: Iterable[int], sign: int) -> list[int]:
        """A heap of load * members + index: whole numbers are compared faster than pairs."""
        members = len(self._loads)
        heap = [sign * self._loads[index] * members + index for index in indices]
        heapify(heap)
        return heap
