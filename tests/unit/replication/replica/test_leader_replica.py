"""A leader with followers 2 and 3: high watermark, ISR, acks=-1, what clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome
from kafkalite.replication.replica.effects import (
    AdvanceHighWatermark,
    AssignEpoch,
    IsrChanged,
    RaiseLowWatermark,
)
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, ReplicaLog
from kafkalite.replication.replica.leader_replica import FetchDecision, LeaderReplica, ReplicaFetch

EPOCH = 5
LAG_MS = 1000
LIVE = {1: 11, 2: 21, 3: 31}


class Epochs:
    """Epoch 4 from 0 on, 5 from 10 on."""

    def epoch_at(self, offset: int) -> int:
        return -1 if offset < 0 else 4 if offset < 10 else 5

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        return {4: (4, 10), 5: (5, end_offset)}.get(epoch, (-1, -1))


class World:
    """The leader 1, elected at offset 10 with the high watermark 8."""

    def __init__(self, isr: set[int], elr: set[int] | None = None, min_isr: int = 2) -> None:
        self.now = 0.0
        self.end = 10
        self.start = 0
        state = IsrState(1, EPOCH, frozenset(isr), frozenset(elr or ()), 3)
        self.leader = LeaderReplica(
            1, [1, 2, 3], state, self.log(8), LIVE, self.now, min_insync_replicas=min_isr, lag_time_max_ms=LAG_MS
        )

    def log(self, high_watermark: int = 0) -> ReplicaLog:
        return ReplicaLog(self.start, self.end, self.end, high_watermark, Epochs())

    def append(self, count: int = 1) -> list[Any]:
        self.end += count
        return self.leader.on_append(self.end, self.end, self.now)

    def decide(self, follower: int, offset: int, *, epoch: int = EPOCH, last: int | None = None) -> FetchDecision:
        last_epoch = self.log().epochs.epoch_at(offset - 1) if last is None else last
        fetch = ReplicaFetch(follower, LIVE.get(follower, 1), epoch, offset, last_epoch, self.start)
        return self.leader.on_fetch(fetch, self.log(), self.now)

    def fetch(self, follower: int, offset: int) -> list[Any]:
        decision = self.decide(follower, offset)
        assert decision.error == 0
        assert decision.diverging_epoch is None
        return decision.effects


@pytest.fixture
def world() -> World:
    return World({1, 2, 3})


def test_an_epoch_is_assigned_even_if_nothing_follows(world):
    assert world.leader.begin(0) == [AssignEpoch(EPOCH, 10)]


def test_alone_in_the_isr_it_commits_what_it_has():
    assert World({1}, min_isr=1).leader.begin(0) == [AssignEpoch(EPOCH, 10), AdvanceHighWatermark(10)]


def test_the_high_watermark_waits_for_every_member(world):
    world.fetch(2, 10)
    assert world.fetch(3, 9) == [AdvanceHighWatermark(9)]
    assert world.fetch(3, 10) == [AdvanceHighWatermark(10)]
    assert world.append() == []
    assert world.fetch(2, 11) == []
    assert world.fetch(3, 11) == [AdvanceHighWatermark(11)]


def test_it_never_goes_down(world):
    world.fetch(2, 10)
    world.fetch(3, 10)
    world.fetch(3, 9)
    assert world.leader.high_watermark == 10


def test_what_is_not_synced_is_not_committed(world):
    """flush.messages=1."""
    world.end = 11
    world.leader.on_append(11, 10, 0)
    world.fetch(2, 11)
    assert world.fetch(3, 11) == [AdvanceHighWatermark(10)]
    assert world.leader.on_append(11, 11, 0) == [AdvanceHighWatermark(11)]


def test_a_follower_that_lags_is_written_out_and_then_no_longer_waited_for(world):
    world.fetch(2, 10)
    world.fetch(3, 9)
    world.now = LAG_MS + 1
    world.fetch(2, 10)
    sent = WriteIsr(frozenset({1, 2}), frozenset(), 3, {})
    assert world.leader.shrink(world.now) == [sent]
    assert world.leader.high_watermark == 9
    assert world.leader.shrink(world.now) == []  # one change at a time
    # the high watermark follows from the answer alone (KAFKA-13091)
    assert world.leader.on_write(sent, WriteOutcome.WRITTEN, world.now) == [
        IsrChanged(frozenset({1, 2})),
        AdvanceHighWatermark(10),
    ]


def test_a_follower_with_all_records_is_never_out_of_sync(world):
    world.fetch(2, 10)
    world.fetch(3, 10)
    assert world.leader.shrink(100 * LAG_MS) == []


def test_a_follower_that_keeps_up_with_the_last_fetch_is_caught_up(world):
    for _ in range(10):
        world.now += LAG_MS / 2
        behind = world.end
        world.append()
        world.fetch(2, behind)
        world.fetch(3, behind)
    assert world.leader.shrink(world.now) == []


def test_a_follower_joins_when_it_has_what_was_there_at_the_election():
    """Its high watermark, 8, is not enough."""
    world = World({1, 2})
    assert world.fetch(3, 9) == []
    assert world.fetch(3, 10) == [WriteIsr(frozenset({1, 2, 3}), frozenset(), 3, {3: 31})]


@pytest.mark.parametrize("live", [{1: 11, 2: 21}, {1: 11, 2: 21, 3: 32}], ids=["gone or stopping", "registered anew"])
def test_only_the_broker_that_is_registered_joins(live):
    """KIP-841, KIP-903."""
    world = World({1, 2})
    world.leader.on_brokers(live, 0)
    assert world.fetch(3, 10) == []


def test_a_refused_registration_is_not_tried_again():
    world = World({1, 2})
    [sent] = world.fetch(3, 10)
    assert world.leader.on_write(sent, WriteOutcome.REFUSED, 0) == []
    assert world.fetch(3, 10) == []


def test_a_fetch_sent_before_a_restart_does_not_count(world):
    world.leader.followers[3].registration = 32
    assert world.decide(3, 10).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_member_that_another_has_removed_must_fetch_again(world):
    world.fetch(2, 10)
    world.fetch(3, 9)
    state = IsrState(1, EPOCH, frozenset({1, 2}), frozenset(), 4)
    assert world.leader.on_state(state, 0) == [IsrChanged(frozenset({1, 2})), AdvanceHighWatermark(10)]
    assert world.leader.followers[3].log_end_offset == -1


@pytest.mark.parametrize(("epoch", "error"), [(4, 74), (6, 75)])
def test_both_sides_compare_epochs(world, epoch, error):
    """KIP-320: a fetch from another epoch says nothing."""
    assert world.decide(2, 10, epoch=epoch) == FetchDecision(ErrorCode(error), None, [])
    assert world.leader.followers[2].log_end_offset == -1


def test_a_stranger_is_told_to_ask_again(world):
    assert world.decide(9, 10).error == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_diverging_log_says_nothing_of_its_end(world):
    decision = world.decide(2, 11, last=4)
    assert decision.diverging_epoch == EpochEndOffset(4, 10)
    assert world.leader.followers[2].log_end_offset == -1


@pytest.mark.parametrize(("offset", "last"), [(5, 3), (11, 5), (2, 4)])
def test_out_of_range(world, offset, last):
    world.start = 3
    decision = world.decide(2, offset, last=last)
    assert decision.error == ErrorCode.OFFSET_OUT_OF_RANGE or decision.diverging_epoch == (5, 10)


def test_acks_all_needs_enough_members_before_and_after():
    world = World({1, 2})
    assert world.leader.check_acks_all() == 0
    world.append()
    assert world.leader.acks_all_result(10) is None
    world.fetch(2, 11)
    assert world.leader.acks_all_result(10) == ErrorCode.NONE
    world.leader.on_state(IsrState(1, EPOCH, frozenset({1}), frozenset({2}), 4), 0)
    assert world.leader.check_acks_all() == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.leader.acks_all_result(10) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_below_min_isr_the_high_watermark_stands_still():
    """KAFKA-15583; and while others may be elected (KIP-966)."""
    assert World({1}, {2}).leader.begin(0) == [AssignEpoch(EPOCH, 10)]
    assert World({1}, {2}, min_isr=1).leader.begin(0) == [AssignEpoch(EPOCH, 10)]


def test_a_lower_min_isr_ends_the_elr_first():
    world = World({1}, {2})
    [sent] = world.leader.on_assignment([1, 2, 3], 1, 0)
    assert world.leader.shrink(0) == []  # it is under way
    assert sent == WriteIsr(frozenset({1}), frozenset(), 3, {})
    assert world.leader.on_write(sent, WriteOutcome.WRITTEN, 0) == [AdvanceHighWatermark(10)]


@pytest.mark.parametrize(("live", "high_watermark"), [(LIVE, 10), ({1: 11, 2: 21}, 11)], ids=["live", "stopping"])
def test_a_replica_about_to_join_is_waited_for_while_it_lives(live, high_watermark):
    """KAFKA-15021."""
    world = World({1, 2})
    [expansion] = world.fetch(3, 10)
    world.leader.on_write(expansion, WriteOutcome.REFUSED, 0)
    world.leader.followers[3].refused_registration = -1
    world.fetch(2, 10)
    world.leader.on_brokers(live, 0)
    world.append()
    world.fetch(2, 11)
    assert world.leader.high_watermark == high_watermark


def test_one_replica_is_enough_where_there_is_one():
    log = ReplicaLog(0, 10, 10, 10, Epochs())
    state = IsrState(1, EPOCH, frozenset({1}), frozenset(), 0)
    leader = LeaderReplica(1, [1], state, log, LIVE, 0, min_insync_replicas=2, lag_time_max_ms=LAG_MS)
    assert leader.check_acks_all() == 0


def test_the_latest_offset_is_unknown_until_the_log_of_the_election_is_committed(world):
    """KIP-207."""
    assert world.leader.latest_offset() == ErrorCode.OFFSET_NOT_AVAILABLE
    world.fetch(2, 10)
    world.fetch(3, 10)
    assert world.leader.latest_offset() == 10


def test_deletion_is_done_when_every_live_replica_has_deleted(world):
    world.fetch(2, 10)
    world.fetch(3, 10)
    world.start = 6
    assert world.leader.on_log_start(6) == []
    world.fetch(2, 10)
    assert world.leader.low_watermark == 0
    assert RaiseLowWatermark(6) in world.leader.on_brokers({1: 11, 2: 21}, 0)


def test_a_consumer_is_sent_to_its_own_rack(world):
    world.fetch(2, 10)
    world.fetch(3, 9)
    racks = {1: "a", 2: "b", 3: "b"}
    assert world.leader.preferred_read_replica("a", 5, racks) is None
    assert world.leader.preferred_read_replica("b", 5, racks) == 2
    assert world.leader.preferred_read_replica("b", 11, racks) is None
    assert world.leader.preferred_read_replica("c", 5, racks) is None


def test_an_assignment_changes_who_is_waited_for(world):
    world.fetch(2, 10)
    world.fetch(3, 10)
    world.leader.on_assignment([1, 2, 4], 2, 0)
    assert set(world.leader.followers) == {2, 3, 4}  # 3 is in the ISR still (KAFKA-9672)
    world.leader.on_state(IsrState(1, EPOCH, frozenset({1, 2}), frozenset(), 4), 0)
    world.leader.on_assignment([1, 2, 4], 2, 0)
    assert set(world.leader.followers) == {2, 4}


def test_an_empty_log_that_begins_later_lacks_nothing():
    world = World({1, 2, 3})
    world.start = world.end = 40
    assert world.leader.on_restart(40) == [AssignEpoch(EPOCH, 40), AdvanceHighWatermark(40)]
    assert world.leader.latest_offset() == 40
    world.fetch(2, 40)
    world.append()
    world.fetch(2, 41)
    assert AdvanceHighWatermark(41) in world.fetch(3, 41)
