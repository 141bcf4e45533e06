"""The machine's clock is set: nobody is expelled for it, and nobody who is gone stays."""

import pytest

from kafkalite.common.errors import ErrorCode

HOUR_MS = 3_600_000

pytestmark = pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])


def test_a_silent_member_goes_and_a_beating_one_stays(world, step_ms):
    (silent, beating), generation = world.stable("silent", "beating")
    world.clock.step_wall(step_ms)
    world.passes(9_999)
    assert world.heartbeat(beating, generation) == ErrorCode.NONE
    assert world.state() == "Stable"
    world.passes(1)
    assert world.heartbeat(silent, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(beating, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_timer_that_is_set_after_the_step_is_right_too(world, step_ms):
    (a,), generation = world.stable("a")
    world.passes(5_000)
    world.clock.step_wall(step_ms)
    assert world.heartbeat(a, generation) == ErrorCode.NONE
    world.passes(9_999)
    assert world.state() == "Stable"
    world.passes(1)
    assert world.state() == "Empty"


def test_an_id_that_was_given_out_is_forgotten_in_time(world, step_ms):
    given = world.join().answer.member_id
    world.clock.step_wall(step_ms)
    world.passes(10_000)
    assert world.join(given).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_as_long_as_it_said(new_world, step_ms):
    world = new_world(group_initial_rebalance_delay_ms=3_000)
    first = world.join(version=3)
    world.clock.step_wall(step_ms)
    world.passes(3_000)
    leader = first.answer.member_id
    world.clock.step_wall(step_ms)
    world.passes(9_000)
    world.heartbeat(leader, 1)
    world.sync(leader, 1, {leader: b""})

    second = world.join(version=3)
    world.clock.step_wall(step_ms)
    for _ in range(59):  # the leader lives, and takes its time to join again
        world.passes(1_000)
        assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits
    world.passes(1_000)
    assert second.answer.leader == second.answer.member_id


def test_a_member_that_never_asks_for_its_assignment_is_dropped_in_time(world, step_ms):
    a = world.join(version=3, rebalance_ms=20_000).answer.member_id
    world.clock.step_wall(step_ms)
    for _ in range(19):
        world.passes(1_000)
        assert world.heartbeat(a, 1) == ErrorCode.NONE
    world.passes(1_000)
    assert world.heartbeat(a, 1) == ErrorCode.UNKNOWN_MEMBER_ID
