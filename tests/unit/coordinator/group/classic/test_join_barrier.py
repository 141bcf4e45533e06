"""How long a group waits for its members to join, as deadlines."""

import pytest

from kafkalite.coordinator.group.classic.members import Member, Members
from kafkalite.coordinator.group.classic.rebalance import JoinBarrier

NOW_MS, DELAY_MS = 1_000, 3_000


@pytest.fixture
def barrier():
    return JoinBarrier(DELAY_MS)


def members(*ids, rebalance_ms=10_000, static=()):
    found = Members()
    for each in ids:
        instance_id = f"i-{each}" if each in static else None
        found.add(Member(each, instance_id, "c", "/h", rebalance_ms, 10_000, (("range", b""),)))
    return found


def test_the_initial_delay_is_repeated_while_members_are_added_until_the_rebalance_timeout(barrier):
    group = members("a")
    barrier.waiters["a"] = "a waits"
    assert barrier.begin(group, was_empty=True, now_ms=NOW_MS) == NOW_MS + DELAY_MS
    assert not barrier.is_complete(group)  # although all have joined
    deadlines = []
    for _ in range(4):
        barrier.new_member_added = True
        deadlines.append(barrier.extend(NOW_MS))
    assert deadlines == [NOW_MS + 3_000, NOW_MS + 3_000, NOW_MS + 1_000, None]  # 3 + 3 + 3 + 1 of 10 seconds


def test_the_initial_delay_is_not_repeated_when_no_member_was_added(barrier):
    assert barrier.begin(members("a"), was_empty=True, now_ms=NOW_MS) == NOW_MS + DELAY_MS
    assert barrier.extend(NOW_MS) is None


def test_without_an_initial_delay_an_empty_group_waits_for_nobody():
    assert JoinBarrier(0).begin(members("a"), was_empty=True, now_ms=NOW_MS) is None


def test_a_group_with_members_waits_for_all_of_them_and_for_pending_ids(barrier):
    group = members("a", "b")
    assert barrier.begin(group, was_empty=False, now_ms=NOW_MS) == NOW_MS + 10_000
    barrier.waiters["a"] = "a waits"
    group.pending["c"] = NOW_MS
    barrier.waiters["b"] = "b waits"
    assert not barrier.is_complete(group)
    group.remove("c")
    assert barrier.is_complete(group)
    assert barrier.begin(group, was_empty=False, now_ms=NOW_MS) is None


def test_members_that_have_not_joined_are_dropped_and_static_ones_stay(barrier):
    group = members("a", "b", "c", static=["c"])
    barrier.begin(group, was_empty=False, now_ms=NOW_MS)
    barrier.waiters["a"] = "a waits"
    assert barrier.extend(NOW_MS) is None  # the rebalance timeout is not extended
    assert [member.member_id for member in barrier.end(group)] == ["b"]
