"""Draws groups as assignors see them: members, what they are subscribed to, and what they own already."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from random import Random
from typing import Any

from kafkalite.coordinator.group.consumer.assignors import Assignment, GroupSpec, MemberSpec

TOPICS_MAX = 6
MEMBERS_MAX = 9
PARTITIONS = (1, 1, 2, 3, 4, 7, 12, 30)


def drawn_group(random: Random, *, is_homogeneous: bool) -> GroupSpec:
    """Targets are what an earlier assignment may have left: disjoint, and partly of topics nobody is subscribed to."""
    topics = sorted(uuid.UUID(bytes=random.randbytes(16)) for _ in range(random.randrange(1, TOPICS_MAX + 1)))
    counts = {topic: random.choice(PARTITIONS) for topic in topics}
    ids = [f"{random.choice('abcXYZ09')}{number}" for number in range(random.randrange(1, MEMBERS_MAX + 1))]
    random.shuffle(ids)
    owners: dict[str, dict[uuid.UUID, set[int]]] = {member_id: {} for member_id in ids}
    favourites = random.sample(ids, random.randrange(1, len(ids) + 1))  # so that the load was uneven
    share_owned = random.choice((0.0, 0.5, 0.9, 1.0))
    for topic, count in counts.items():
        for partition in range(count):
            if random.random() < share_owned:
                owners[random.choice(favourites)].setdefault(topic, set()).add(partition)
    together = frozenset(random.sample(topics, random.randrange(len(topics) + 1)))
    members = {}
    for member_id in ids:
        chosen = together if is_homogeneous else frozenset(random.sample(topics, random.randrange(len(topics) + 1)))
        target = {topic: frozenset(partitions) for topic, partitions in owners[member_id].items()}
        instance_id = f"i{random.randrange(100)}-{member_id}" if random.random() < 0.3 else None
        members[member_id] = MemberSpec(instance_id, chosen, target)
    return GroupSpec(members, counts, is_homogeneous)


def group_as_json(group: GroupSpec) -> dict[str, Any]:
    """A case for `group_parts`, without the name of the assignor."""
    members = [
        {
            "id": member_id,
            "instance": member.instance_id,
            "topics": sorted(topic.hex for topic in member.topic_ids),
            "target": assignment_as_json(member.target),
        }
        for member_id, member in group.members.items()
    ]
    counts = {topic.hex: count for topic, count in group.partition_counts.items()}
    kind = "HOMOGENEOUS" if group.is_homogeneous else "HETEROGENEOUS"
    return {"kind": "assignment", "type": kind, "counts": counts, "members": members}


def group_of_json(case: Mapping[str, Any]) -> GroupSpec:
    """The inverse of `group_as_json`."""
    members = {
        one["id"]: MemberSpec(
            one["instance"], frozenset(map(uuid.UUID, one["topics"])), assignment_of_json(one["target"])
        )
        for one in case["members"]
    }
    counts = {uuid.UUID(topic): count for topic, count in case["counts"].items()}
    return GroupSpec(members, counts, case["type"] == "HOMOGENEOUS")


def assignment_as_json(assignment: Assignment) -> dict[str, list[int]]:
    return {topic.hex: sorted(partitions) for topic, partitions in assignment.items()}


def assignment_of_json(assignment: Mapping[str, list[int]]) -> Assignment:
    return {uuid.UUID(topic): frozenset(partitions) for topic, partitions in assignment.items()}


def sizes_and_moves(group: GroupSpec, assigned: Mapping[str, Assignment]) -> tuple[dict[str, int], int]:
    """The number of partitions of each member, and how many leave a member that is still subscribed to their topic."""
    sizes = {member_id: sum(map(len, one.values())) for member_id, one in assigned.items()}
    moves = sum(
        len(partitions - assigned[member_id].get(topic, frozenset()))
        for member_id, member in group.members.items()
        for topic, partitions in member.target.items()
        if topic in member.topic_ids
    )
    return sizes, moves
