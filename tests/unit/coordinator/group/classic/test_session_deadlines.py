"""One timer for the sessions of all members."""

import pytest

from kafkalite.coordinator.group.classic.group_state import GroupTimer
from kafkalite.coordinator.group.classic.members import Member, Members
from kafkalite.coordinator.group.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, SessionDeadlines
from kafkalite.coordinator.runtime.effects import SetTimer


@pytest.fixture
def sessions():
    return SessionDeadlines()


def member(member_id, session_ms):
    return Member(member_id, None, "c", "/h", 60_000, session_ms, (("range", b""),))


def timer_at(deadline_ms):
    return (SetTimer(GroupTimer.SESSION, deadline_ms),)


def test_the_timer_is_set_when_a_deadline_is_earlier_than_the_one_it_is_set_to(sessions):
    slow, fast = member("slow", 9_000), member("fast", 6_000)
    assert sessions.renew(slow, 0) == timer_at(9_000)
    assert sessions.renew(fast, 0) == timer_at(6_000)
    assert sessions.renew(fast, 1_000) == ()
    assert (slow.session_deadline_ms, fast.session_deadline_ms) == (9_000, 7_000)


def test_a_new_member_has_five_minutes_for_its_first_join(sessions):
    new = member("new", 6_000)
    new.is_new = True
    assert sessions.renew(new, 0) == timer_at(NEW_MEMBER_JOIN_TIMEOUT_MS)


def test_pending_ids_expire_before_members_and_the_timer_is_set_to_the_next_deadline(sessions):
    group = Members()
    for each in (member("a", 6_000), member("b", 6_000), member("c", 9_000)):
        group.add(each)
        sessions.renew(each, 0)
    group.pending["p"] = 5_000
    group.pending["q"] = 8_000
    expired = []
    for each in sessions.expired(group, 6_000):
        expired.append(each)
        group.remove(each)
        group.remove("b")  # goes with the first, and is not told again
    assert expired == ["p", "a"]
    assert sessions.watch_earliest(group) == timer_at(8_000)


def test_without_members_there_is_no_timer_and_a_closed_group_sets_none(sessions):
    assert sessions.watch_earliest(Members()) == ()
    sessions.close()
    assert sessions.renew(member("a", 6_000), 0) == ()
