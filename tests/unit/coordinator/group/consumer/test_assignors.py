"""The assignors: what every assignment keeps to, and beside those of Kafka 4.3's own classes."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    AssignorFailure,
    GroupSpec,
    MemberSpec,
    assign_range,
    assign_uniform,
)
from tests.support.drawn_groups import assignment_as_json, drawn_group, group_of_json, sizes_and_moves
from tests.support.places import ROOT

A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests" / "golden" / "groups" / "assignments.json").read_text())

groups = st.builds(
    lambda random, is_homogeneous: drawn_group(random, is_homogeneous=is_homogeneous),
    st.randoms(use_true_random=False),
    st.booleans(),
)


def spec(members: Mapping[str, Any], counts: Mapping[uuid.UUID, int]) -> GroupSpec:
    """Members as topics, or as (topics, target)."""
    pairs = {name: one if isinstance(one, tuple) else (one, {}) for name, one in members.items()}
    specs = {name: MemberSpec(None, frozenset(topics), target) for name, (topics, target) in pairs.items()}
    return GroupSpec(specs, counts, len({one.topic_ids for one in specs.values()}) == 1)


def after(group: GroupSpec, assigned: Mapping[str, Assignment]) -> GroupSpec:
    members = {name: one._replace(target=assigned[name]) for name, one in group.members.items()}
    return group._replace(members=members)


def sizes(assigned: Mapping[str, Assignment]) -> dict[str, int]:
    return {name: sum(map(len, one.values())) for name, one in assigned.items()}


def lost(group: GroupSpec, assigned: Mapping[str, Assignment]) -> int:
    return sizes_and_moves(group, assigned)[1]


@given(groups, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_one_subscriber(group: GroupSpec, name: str) -> None:
    assigned = ASSIGNORS[name](group)
    assert list(assigned) == list(group.members)
    owners = [
        (topic, partition, member)
        for member, one in assigned.items()
        for topic, partitions in one.items()
        for partition in partitions
    ]
    assert all(topic in group.members[member].topic_ids for topic, _, member in owners)
    assert all(partitions for one in assigned.values() for partitions in one.values())
    wanted = {topic for one in group.members.values() for topic in one.topic_ids}
    everything = [(topic, partition) for topic in sorted(wanted) for partition in range(group.partition_counts[topic])]
    assert sorted((topic, partition) for topic, partition, _ in owners) == everything


@given(groups)
def test_uniform_is_balanced(group: GroupSpec) -> None:
    """No partition can go to another subscriber of its topic such that both are nearer to each other."""
    assigned = assign_uniform(group)
    loads = sizes(assigned)
    for owner, one in assigned.items():
        for topic in one:
            for name, member in group.members.items():
                assert topic not in member.topic_ids or loads[owner] <= loads[name] + 1
    if group.is_homogeneous:
        assert max(loads.values()) - min(loads.values()) <= 1


@given(groups)
def test_uniform_moves_nothing_of_a_balanced_group(group: GroupSpec) -> None:
    first = assign_uniform(group)
    assert assign_uniform(after(group, first)) == first


@given(groups)
def test_uniform_moves_only_what_is_above_a_share(group: GroupSpec) -> None:
    if not group.is_homogeneous:
        return
    topics = next(iter(group.members.values())).topic_ids
    quota, extras = divmod(sum(group.partition_counts[topic] for topic in topics), len(group.members))
    owned = sorted(
        (sum(len(one.target.get(topic, ())) for topic in topics) for one in group.members.values()), reverse=True
    )
    surplus = sum(max(0, size - quota - (position < extras)) for position, size in enumerate(owned))
    assert lost(group, assign_uniform(group)) == surplus


@given(groups)
def test_a_newcomer_takes_from_the_others_what_it_gets_and_nothing_else_moves(group: GroupSpec) -> None:
    if not group.is_homogeneous:
        return
    before = after(group, assign_uniform(group))
    newcomer = next(iter(group.members.values()))._replace(target={}, instance_id=None)
    grown = before._replace(members={"newcomer": newcomer, **before.members})
    assigned = assign_uniform(grown)
    assert lost(grown, assigned) == sizes(assigned)["newcomer"]


@given(groups)
def test_range_gives_equal_topics_alike(group: GroupSpec) -> None:
    """Topics of equal counts and subscribers are co-partitioned."""
    assigned = assign_range(group)
    for one in group.partition_counts:
        for other in group.partition_counts:
            alike = all((one in member.topic_ids) == (other in member.topic_ids) for member in group.members.values())
            if alike and group.partition_counts[one] == group.partition_counts[other]:
                assert all(mine.get(one) == mine.get(other) for mine in assigned.values())


def test_range_orders_static_members_by_instance_and_the_others_by_id() -> None:
    members = {"b": None, "a": None, "z": "2", "y": "10"}
    group = GroupSpec({one: MemberSpec(static, {A}, {}) for one, static in members.items()}, {A: 6}, True)
    assert assign_range(group) == {"y": {A: {0, 1}}, "z": {A: {2, 3}}, "a": {A: {4}}, "b": {A: {5}}}


def test_uniform_fills_the_partition_that_a_leaving_member_left() -> None:
    group = spec({"m": ({A}, {A: frozenset({0, 1})}), "n": ({A}, {A: frozenset({2})})}, {A: 4})
    assert assign_uniform(group) == {"m": {A: {0, 1}}, "n": {A: {2, 3}}}


def test_uniform_evens_loads_across_topics_of_different_subscribers() -> None:
    everything = {A: frozenset(range(4)), B: frozenset(range(4))}
    group = spec({"m": ({A, B}, everything), "n": {B, C}, "o": {C}}, {A: 4, B: 4, C: 4})
    assert sizes(assign_uniform(group)) == {"m": 5, "n": 4, "o": 3}  # no move of one partition evens them


def test_groups_without_topics_or_members_get_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign(spec({"m": set(), "n": set()}, {})) == {"m": {}, "n": {}}
        assert assign(GroupSpec({}, {}, True)) == {}
        assert assign(spec({"m": {A}, "n": set()}, {A: 0})) == {"m": {}, "n": {}}


def test_a_topic_without_metadata_is_a_failure() -> None:
    for assign in ASSIGNORS.values():
        with pytest.raises(AssignorFailure, match="does not exist"):
            assign(spec({"m": {A, B}}, {A: 1}))


@pytest.mark.parametrize("case", CASES)
def test_equals_kafka(case: dict[str, Any]) -> None:
    """In every partition for range. For uniform, whose placement there follows the order of Java's maps, in the number
    of partitions of each member and in how many move."""
    group = group_of_json(case)
    ranges = {name: assignment_as_json(one) for name, one in assign_range(group).items()}
    assert ranges == case["range"]
    if "uniform" in case:
        assert list(sizes_and_moves(group, assign_uniform(group))) == case["uniform"]


def test_a_thousand_members_share_ten_thousand_partitions_in_a_second() -> None:
    """Twice, in fact: 0.07 s with one subscription, 0.3 s with several."""
    topics = {uuid.UUID(int=number): 100 for number in range(1, 101)}
    for is_homogeneous in (True, False):
        random = Random(1)
        chosen = [frozenset(random.sample(sorted(topics), 50)) for _ in range(1000)]
        members = {
            f"m{number}": MemberSpec(None, frozenset(topics) if is_homogeneous else chosen[number], {})
            for number in range(1000)
        }
        group = GroupSpec(members, topics, is_homogeneous)
        for assign in ASSIGNORS.values():
            started = time.thread_time()
            assigned = assign(group)
            assign(after(group, assigned))
            assert time.thread_time() - started < 1.0
