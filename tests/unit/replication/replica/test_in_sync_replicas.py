"""The ISR on its leader: one change at a time, and both ISRs count until its outcome is known."""

from __future__ import annotations

import pytest

from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome
from kafkalite.replication.replica.effects import ReadIsr
from kafkalite.replication.replica.in_sync_replicas import (
    COMMITTED,
    PENDING_EXPAND,
    PENDING_SHRINK,
    InSyncReplicas,
)


def state(*isr: int, elr: tuple[int, ...] = (), version: int = 5, leader: int = 1, epoch: int = 3) -> IsrState:
    return IsrState(leader, epoch, frozenset(isr), frozenset(elr), version)


@pytest.fixture
def in_sync() -> InSyncReplicas:
    return InSyncReplicas(state(1, 2))


def test_an_expansion_counts_at_once_and_names_the_registration(in_sync):
    sent = in_sync.expand(3, 40, 2)
    assert sent == WriteIsr(frozenset({1, 2, 3}), frozenset(), 5, {3: 40})
    assert in_sync.phase is PENDING_EXPAND
    assert in_sync.isr == {1, 2}
    assert in_sync.maximal == {1, 2, 3}
    assert in_sync.on_write(sent, WriteOutcome.WRITTEN) == []
    assert (in_sync.phase, in_sync.committed) == (COMMITTED, state(1, 2, 3, version=6))


def test_a_shrink_counts_when_it_is_written(in_sync):
    sent = in_sync.shrink(frozenset({2}), 2)
    assert sent == WriteIsr(frozenset({1}), frozenset({2}), 5, {})
    assert (in_sync.phase, in_sync.maximal) == (PENDING_SHRINK, {1, 2})
    in_sync.on_write(sent, WriteOutcome.WRITTEN)
    assert in_sync.maximal == {1}
    assert in_sync.committed.elr == {2}


def test_an_unknown_outcome_stays_pending_and_is_sent_again_until_it_is_known(in_sync):
    sent = in_sync.expand(3, 40, 2)
    assert in_sync.on_write(sent, WriteOutcome.UNKNOWN) == [ReadIsr(sent)]
    assert in_sync.on_read(ReadIsr(sent), state(1, 2)) == [sent]
    assert in_sync.maximal == {1, 2, 3}
    assert in_sync.on_write(sent, WriteOutcome.BAD_VERSION) == [ReadIsr(sent)]  # the first one had arrived
    assert in_sync.on_read(ReadIsr(sent), state(1, 2, 3, version=6)) == []
    assert (in_sync.phase, in_sync.isr) == (COMMITTED, {1, 2, 3})


def test_a_refusal_is_final_only_if_no_earlier_copy_may_have_arrived(in_sync):
    sent = in_sync.expand(3, 40, 2)
    in_sync.on_write(sent, WriteOutcome.UNKNOWN)
    in_sync.on_read(ReadIsr(sent), state(1, 2))
    assert in_sync.on_write(sent, WriteOutcome.REFUSED) == [ReadIsr(sent)]
    assert in_sync.phase is PENDING_EXPAND
    in_sync.on_read(ReadIsr(sent), state(1, 2))
    assert (in_sync.phase, in_sync.isr) == (COMMITTED, {1, 2})


def test_a_refused_change_can_be_tried_again(in_sync):
    """KAFKA-14010."""
    sent = in_sync.expand(3, 40, 2)
    assert in_sync.on_write(sent, WriteOutcome.REFUSED) == []
    assert in_sync.phase is COMMITTED
    assert in_sync.expand(3, 41, 2).registrations == {3: 41}


def test_a_write_of_another_settles_the_pending_one(in_sync):
    """KAFKA-2729: whoever wrote it, the state is the one that was read."""
    sent = in_sync.shrink(frozenset({2}), 1)
    assert in_sync.on_write(sent, WriteOutcome.BAD_VERSION) == [ReadIsr(sent)]
    assert in_sync.on_read(ReadIsr(sent), state(1, 2, 3, version=6)) == []
    assert (in_sync.phase, in_sync.isr) == (COMMITTED, {1, 2, 3})


def test_the_own_write_may_be_seen_before_it_is_answered(in_sync):
    sent = in_sync.expand(3, 40, 2)
    assert in_sync.on_state(state(1, 2, 3, version=6))
    assert in_sync.phase is COMMITTED
    assert in_sync.on_write(sent, WriteOutcome.WRITTEN) == []
    assert in_sync.committed.partition_epoch == 6


def test_a_late_answer_says_nothing_of_the_change_that_followed(in_sync):
    """Found by the simulation: a shrink seen in the view, the next change sent, then the answer of the shrink."""
    first = in_sync.shrink(frozenset({2}), 1)
    in_sync.on_state(state(1, version=6))
    second = in_sync.expand(3, 40, 1)
    for outcome in WriteOutcome:
        assert in_sync.on_write(first, outcome) == []
    assert in_sync.on_read(ReadIsr(first), state(1, 2)) == []
    assert in_sync.pending == second
    assert in_sync.maximal == {1, 3}


def test_an_older_view_and_a_newer_leader_epoch_change_nothing(in_sync):
    assert not in_sync.on_state(state(1, version=5))
    assert not in_sync.on_state(state(2, version=9, leader=2, epoch=4))
    assert in_sync.isr == {1, 2}


def test_the_leader_is_never_shrunk_away(in_sync):
    """KAFKA-15353."""
    with pytest.raises(AssertionError):
        in_sync.shrink(frozenset({1, 2}), 2)
