"""The assignor of share groups."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.group.share.simple_assignor import assign

A, B = UUID(int=1), UUID(int=2)


def test_each_member_has_its_share_of_many_partitions():
    found = assign({"one": [A], "two": [A], "three": [A]}, {A: range(7)}, {})
    assert sorted(len(each[A]) for each in found.values()) == [2, 2, 3]
    assert frozenset().union(*(each[A] for each in found.values())) == frozenset(range(7))


def test_more_members_than_partitions_share_them_evenly():
    found = assign({str(each): [A] for each in range(10)}, {A: range(3)}, {})
    holders = [sum(index in each[A] for each in found.values()) for index in range(3)]
    assert sorted(holders) == [3, 3, 4]
    assert all(len(each[A]) == 1 for each in found.values())


def test_a_member_keeps_what_it_has():
    before = assign({"one": [A], "two": [A]}, {A: range(4)}, {})
    after = assign({"one": [A], "two": [A], "three": [A]}, {A: range(4)}, before)
    assert before["one"][A] == after["one"][A] and before["two"][A] >= after["two"].get(A, frozenset())
    assert assign({"one": [A], "two": [A]}, {A: range(4)}, before) == before


def test_a_member_has_only_topics_that_it_reads():
    found = assign({"one": [A], "two": [B], "three": []}, {A: range(2), B: range(2)}, {"two": {A: frozenset({0})}})
    assert found == {"one": {A: {0, 1}}, "two": {B: {0, 1}}, "three": {}}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.frozensets(st.integers(1, 4)), min_size=1),
    st.dictionaries(st.integers(1, 4), st.integers(1, 5)),
    st.dictionaries(st.sampled_from("abcdefgh"), st.dictionaries(st.integers(1, 4), st.frozensets(st.integers(0, 4)))),
)
def test_nobody_goes_without(topics_of, counts, current):
    subscriptions = {member: {UUID(int=each) for each in topics} for member, topics in topics_of.items()}
    assignable = {UUID(int=topic): range(count) for topic, count in counts.items()}
    had = {member: {UUID(int=each): indexes for each, indexes in some.items()} for member, some in current.items()}
    found = assign(subscriptions, assignable, had)
    assert found.keys() == subscriptions.keys()
    for member, partitions in found.items():
        assert partitions.keys() <= subscriptions[member]
        assert all(indexes <= set(assignable[topic]) for topic, indexes in partitions.items())
        assert partitions or not subscriptions[member] & assignable.keys()
    for topic, indexes in assignable.items():
        if any(topic in topics for topics in subscriptions.values()):
            assert set(indexes) == set().union(*(each.get(topic, ()) for each in found.values()))
