"""Sets of tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.group.streams.tasks import (
    AssignedTasks,
    TaskId,
    Tasks,
    TaskSet,
    contains,
    difference,
    epochs_of_rows,
    intersection,
    split,
    task_rows,
    task_set,
    union,
    with_epochs,
)

task_sets = st.dictionaries(st.sampled_from("abc"), st.frozensets(st.integers(0, 4), min_size=1))
epochs = st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.integers(0, 4), st.integers(0, 9), min_size=1))
Pairs = set[tuple[str, int]]


def pairs(tasks: TaskSet) -> Pairs:
    assert all(tasks.values()), "a subtopology without partitions"
    return {(key, each) for key, partitions in tasks.items() for each in partitions}


@given(task_sets, task_sets)
def test_sets_of_tasks_are_sets(one: TaskSet, other: TaskSet) -> None:
    assert pairs(union(one, other)) == pairs(one) | pairs(other)
    assert pairs(intersection(one, other)) == pairs(one) & pairs(other)
    assert pairs(difference(one, other)) == pairs(one) - pairs(other)
    assert task_set(task_rows(one)) == one
    assert all(contains(one, TaskId(*each)) for each in pairs(one)) and not contains(one, TaskId("a", 5))


@given(task_sets, task_sets, st.frozensets(st.tuples(st.sampled_from("abc"), st.integers(0, 4))))
def test_a_split_leads_from_the_current_tasks_to_the_target(current: TaskSet, target: TaskSet, busy: Pairs) -> None:
    found = split(current, target, lambda *task: task in busy)
    assert pairs(found.kept) == pairs(current) & pairs(target)
    assert pairs(found.given_up) == pairs(current) - pairs(target)
    assert pairs(found.added) == pairs(target) - pairs(current) - busy
    assert found.waits == bool((pairs(target) - pairs(current)) & busy)


@given(epochs, epochs, task_sets, task_sets)
def test_tasks_of_two_kinds_do_not_mix(one, other, standby, owned) -> None:
    mine, theirs = AssignedTasks(one, standby), AssignedTasks(other)
    merged = mine.merge(theirs)
    for key, partitions in merged.active.items():
        for each, epoch in partitions.items():
            assert epoch == other.get(key, {}).get(each, one.get(key, {}).get(each))
    assert merged.without_epochs() == Tasks(
        union(mine.without_epochs().active, theirs.without_epochs().active), standby
    )
    assert mine.are_owned(Tasks(owned)) == bool(pairs(owned) & pairs(mine.without_epochs().active))
    assert mine.contain(Tasks(owned)) == (pairs(owned) <= pairs(mine.without_epochs().active))
    assert mine.are_owned(Tasks(standby=owned)) == bool(pairs(owned) & pairs(standby))
    assert mine.contain(Tasks({}, {}, owned)) == (not owned)


def test_a_task_keeps_its_epoch() -> None:
    tasks = {"a": frozenset({0, 1})}
    assert with_epochs(tasks, {"a": {1: 5, 2: 6}}, 9) == {"a": {0: 9, 1: 5}}


def test_a_record_without_epochs_has_that_of_the_member() -> None:
    rows = [("a", [0, 1], [3, 4]), ("b", [0], None), ("c", [0, 1], [7]), ("d", [], None)]
    assert epochs_of_rows(rows, 9) == {"a": {0: 3, 1: 4}, "b": {0: 9}, "c": {0: 9, 1: 9}}


def test_no_tasks_are_empty() -> None:
    assert Tasks().is_empty and AssignedTasks().is_empty
    assert not Tasks(warmup={"a": frozenset({0})}).is_empty
    assert not AssignedTasks({"a": {0: 1}}).is_empty
