"""Replicas besides the ISR that may be elected, and a broker that has lost the end of its log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import DISCONNECTED, ENTERED_FROM, FENCED, MEMBER, RegistrationState
from kafkalite.metadata.partition_state import (
    IsrState,
    effective_min_isr,
    leave_with_lost_tail,
    target_elr,
)


def state(leader: int, isr: set[int], elr: set[int] = frozenset()) -> IsrState:  # type: ignore[assignment]
    return IsrState(leader, 7, frozenset(isr), frozenset(elr), 3)


def test_one_replica_needs_no_other():
    assert effective_min_isr(2, 1) == 1
    assert effective_min_isr(2, 3) == 2


def test_members_that_leave_below_min_isr_stay_eligible():
    assert target_elr({1, 2, 3}, {1, 2}, 2) == frozenset()
    assert target_elr({1, 2, 3}, {1}, 2) == {2, 3}
    assert target_elr({1, 2, 3}, {1, 2}, 3) == {3}
    assert target_elr({1, 2, 3}, {1, 2}, 2) == frozenset()
    assert target_elr({1, 2, 3}, {3}, 2, lost=[1]) == {2}


def test_the_only_member_of_the_isr_leaves_it_to_the_eligible_ones():
    left = leave_with_lost_tail(1, state(1, {1}, {2, 3}), 2)
    assert left == IsrState(NO_LEADER, 8, frozenset({2, 3}), frozenset(), 3)


def test_a_follower_leaves_without_a_new_epoch():
    left = leave_with_lost_tail(2, state(1, {1, 2}), 2)
    assert left == IsrState(1, 7, frozenset({1}), frozenset(), 3)


def test_the_last_one_stays_under_another_epoch():
    assert leave_with_lost_tail(1, state(1, {1}), 2) == IsrState(NO_LEADER, 8, frozenset({1}), frozenset(), 3)
    assert leave_with_lost_tail(1, state(NO_LEADER, {1}), 2) is None


def test_a_replica_that_was_not_in_sync_has_nothing_to_write():
    assert leave_with_lost_tail(3, state(1, {1, 2}), 2) is None


@given(
    st.sets(st.integers(0, 4), min_size=1), st.sets(st.integers(0, 4)), st.integers(0, 4), st.integers(1, 3), st.data()
)
def test_an_isr_is_never_empty(isr, elr, leaving, min_isr, data):
    """KAFKA-15353; and no broker is in both lists, whatever leaves."""
    leader = data.draw(st.sampled_from([NO_LEADER, *isr]))
    left = leave_with_lost_tail(leaving, state(leader, isr, elr - isr), min_isr)
    if left is not None:
        assert left.isr
        assert not left.isr & left.elr
        assert left.leader in {NO_LEADER, *left.isr}
        assert left.isr | left.elr <= isr | elr
        assert leaving not in left.isr | left.elr or isr | elr == {leaving}


def test_every_state_can_be_entered_from_another_one() -> None:
    assert ENTERED_FROM.keys() == set(RegistrationState)
    for state, sources in ENTERED_FROM.items():
        assert sources and state not in sources


def test_only_a_member_loses_its_connection_and_only_a_new_registration_ends_a_fence() -> None:
    assert ENTERED_FROM[DISCONNECTED] == {MEMBER}
    assert {state for state, sources in ENTERED_FROM.items() if FENCED in sources} == {
        MEMBER, RegistrationState.UNREGISTERED,
    }  # fmt: skip
