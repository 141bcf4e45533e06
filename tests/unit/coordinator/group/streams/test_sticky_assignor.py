"""The assignor of tasks: even, sticky, and the same assignments as Kafka 4.3's own class."""

from __future__ import annotations

import json
import time
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.group.streams.configured_topology import ConfiguredSubtopology
from kafkalite.coordinator.group.streams.sticky_assignor import MemberSpec, assign
from kafkalite.coordinator.group.streams.tasks import Tasks
from kafkalite.coordinator.group.streams.topology import InternalTopic
from tests.support.drawn_streams import assigned_as_json, drawn_streams_group, streams_group_of_json
from tests.support.places import ROOT

CASES: list[dict[str, Any]] = [
    case
    for case in json.loads((ROOT / "tests" / "golden" / "groups" / "streams.json").read_text())
    if case["kind"] == "assignment"
]
randoms = st.randoms(use_true_random=False)


def subtopology(task_count: int, *, is_stateful: bool = True) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        task_count, ("source",), changelog_topics=(InternalTopic("changelog", task_count),) if is_stateful else ()
    )


def pairs(tasks: Any) -> list[tuple[str, int]]:
    return [(key, each) for key, partitions in tasks.items() for each in partitions]


@pytest.mark.parametrize("case", CASES)
def test_assignments_are_those_of_kafka(case: dict[str, Any]) -> None:
    assert assigned_as_json(assign(*streams_group_of_json(case))) == case["answer"]


@given(randoms)
def test_every_task_is_active_once(random: Random) -> None:
    members, subtopologies, replicas = drawn_streams_group(random)
    assigned = assign(members, subtopologies, replicas)
    assert assigned.keys() == members.keys()
    tasks = [(key, each) for key, one in subtopologies.items() for each in range(one.task_count)]
    assert sorted(each for one in assigned.values() for each in pairs(one.active)) == sorted(tasks)
    assert not any(one.warmup for one in assigned.values())


@given(randoms)
def test_no_process_has_a_task_twice_and_replicas_are_placed_where_there_is_a_process(random: Random) -> None:
    members, subtopologies, replicas = drawn_streams_group(random)
    assigned = assign(members, subtopologies, replicas)
    held: Counter[Any] = Counter()
    for name, one in assigned.items():
        held.update((members[name].process_id, task) for task in (*pairs(one.active), *pairs(one.standby)))
    assert not held or max(held.values()) == 1
    processes = len({each.process_id for each in members.values()})
    standbys = Counter(task for one in assigned.values() for task in pairs(one.standby))
    for key, one in subtopologies.items():
        for each in range(one.task_count):
            assert standbys[(key, each)] == (min(replicas, processes - 1) if one.is_stateful else 0)


@given(randoms)
def test_a_second_assignment_moves_no_active_task(random: Random) -> None:
    members, subtopologies, _ = drawn_streams_group(random)
    first = assign({name: MemberSpec(name) for name in members}, subtopologies)
    assert assign({name: MemberSpec(name, tasks) for name, tasks in first.items()}, subtopologies) == first


def test_new_members_get_ranges() -> None:
    assigned = assign({"m1": MemberSpec("p1"), "m2": MemberSpec("p2")}, {"0": subtopology(2), "1": subtopology(2)})
    assert {name: one.active for name, one in assigned.items()} == {
        "m1": {"0": {0}, "1": {0}},
        "m2": {"0": {1}, "1": {1}},
    }


def test_a_member_that_left_leaves_its_tasks_to_its_standby() -> None:
    everything = {"0": frozenset(range(2))}
    members = {
        "stays": MemberSpec("p1", Tasks({"0": frozenset({0})})),
        "stood by": MemberSpec("p2", Tasks({}, {"0": frozenset({1})})),
    }
    assigned = assign(members, {"0": subtopology(2)})
    assert assigned == {"stays": Tasks({"0": frozenset({0})}), "stood by": Tasks({"0": frozenset({1})})}
    assert assign({}, {"0": subtopology(2)}) == {}
    assert assign({"alone": MemberSpec("p")}, {"0": subtopology(2)}, 1) == {"alone": Tasks(everything)}


def test_a_hundred_members_have_a_thousand_tasks_at_once() -> None:
    subtopologies = {str(number): subtopology(100) for number in range(10)}
    members = {f"member-{number}": MemberSpec(f"process-{number // 4}") for number in range(100)}
    for replicas in (0, 1):
        started = time.process_time()
        assigned = assign(members, subtopologies, replicas)
        again = assign(
            {name: members[name]._replace(target=tasks) for name, tasks in assigned.items()}, subtopologies, replicas
        )
        assert time.process_time() - started < 1  # about 0.02 s
        assert {sum(map(len, one.active.values())) for one in assigned.values()} == {10}
        assert len(again) == 100
