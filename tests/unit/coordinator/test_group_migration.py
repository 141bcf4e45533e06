"""Groups that change between the classic and the consumer protocol while they work, and logs that refuse it."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.consumer.group_environment import MigrationPolicy
from kafkalite.coordinator.group.deadlines import RETRY_MS
from kafkalite.protocol.records import encode_assignment, read_assignment
from tests.support.consumer_group_world import REBALANCE_MS, SESSION_MS, Topics, World, named

WHOLE = encode_assignment([("foo", [0, 1])], 1)


@pytest.fixture
def world():
    return World(Topics(foo=2)).load()


def classic_group(world):
    """A stable classic group of one member, which has both partitions; returns its id."""
    member = world.classic_join().result.member_id
    assert world.classic_sync(member, 1, {member: WHOLE}).result.error == ErrorCode.NONE
    return member


def test_a_classic_group_is_upgraded_and_its_member_gives_up_half(world):
    old = classic_group(world)
    since = len(world.log)
    answer = world.join("zz", "foo", server_assignor="range")
    assert (answer.error, answer.member_epoch, named(answer.assignment)) == (0, 2, {})
    assert world.kinds(since) == [-2, 5, 3, 7, 6, 8, 5, 3, 7, 7, 6, 8]
    assert world.classic_beat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = world.classic_join(old, owned=[("foo", [0, 1])]).result
    assert (joined.generation_id, joined.leader_id, joined.members) == (1, "", ())
    half = read_assignment(world.classic_sync(old, 1).result.assignment).assigned_partitions
    assert [(row.topic, row.partitions) for row in half] == [("foo", [0])]
    assert world.classic_join(old, owned=[("foo", [0])]).result.generation_id == 2
    assert world.classic_sync(old, 2).result.error == ErrorCode.NONE
    assert world.classic_beat(old, 2) == ErrorCode.NONE
    assert named(world.beat("zz", 2).assignment) == {"foo": [1]}
    assert world.group().state_name == "Stable"


def test_no_member_gets_an_assignment_that_an_upgrade_overtakes(world):
    old = world.classic_join().result.member_id
    world.dawdles = True
    synced = world.classic_sync(old, 1, {old: WHOLE})
    joined = world.send("zz", 0, topics=["foo"], owns={}, rebalance_timeout_ms=60_000)
    world.catch_up()
    assert synced.result.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert joined.result.error == ErrorCode.NONE and named(joined.result.assignment) == {"foo": [1]}
    assert world.group().kind == "consumer" and world.assigned(old) == {}


def test_the_last_member_of_the_consumer_protocol_leaves_a_classic_group(world):
    old = classic_group(world)
    world.join("zz", "foo")
    since = len(world.log)
    world.leave("zz")
    assert world.group().kind == "classic"
    assert world.kinds(since)[-1] == 2 and set(world.kinds(since)[:-1]) <= {-8, -7, -6, -5, -4, -3}
    assert world.classic_beat(old, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.classic_join(old).result
    assert again.error == ErrorCode.NONE and again.leader_id == old
    world.restart()
    assert world.group().kind == "classic"


@pytest.mark.parametrize(("policy", "kind"), [("upgrade", "consumer"), ("bidirectional", "classic")])
def test_a_policy_may_keep_the_group(world, policy, kind):
    classic_group(world)
    world.config = world.config._replace(migration_policy=MigrationPolicy(policy))
    world.join("zz", "foo")
    world.clock.advance(SESSION_MS)  # both are gone
    world.restart()
    old = world.classic_join(group="h").result.member_id
    world.classic_sync(old, 1, {old: WHOLE}, group="h")
    world.join("zz", "foo", group="h")
    world.leave("zz", group="h")
    assert world.group("h").kind == kind


def test_expressions_that_are_resolved_after_a_conversion_are_not_written(world):
    classic_group(world)
    world.join("zz", regex="f.*")
    world.dawdles = True
    world.send("zz", -1)  # is answered when the log answers
    since = len(world.log)
    world.resolve()
    assert world.group().kind == "classic" and world.kinds(since) == []
    world.catch_up()
    world.restart()
    assert (world.group().kind, world.group().state_name) == ("classic", "Stable")


def test_an_upgrade_that_is_not_allowed_names_the_reason(world):
    classic_group(world)
    world.config = world.config._replace(migration_policy=MigrationPolicy.DISABLED)
    answer = world.join("zz", "foo")
    assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.message == "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    assert world.group().kind == "classic"


def test_conversions_that_the_log_refuses_are_undone(world):
    old = classic_group(world)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.join("zz", "foo").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group().kind == "classic" and world.classic_beat(old, 1) == ErrorCode.NONE
    world.refuses = ErrorCode.NONE
    world.join("zz", "foo")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.leave("zz").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group().kind == "consumer" and "zz" in world.group().tables.members
    world.refuses = ErrorCode.NONE
    assert world.beat("zz", 2).error == ErrorCode.NONE
    world.leave("zz")
    assert world.group().kind == "classic"


def test_a_conversion_by_an_ended_session_is_tried_again(world):
    old = classic_group(world)
    world.join("zz", "foo")
    for _ in range(8):
        world.clock.advance(5_000)
        world.classic_join(old, owned=[("foo", [0, 1])])
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(5_000)
    assert world.group().kind == "consumer"
    world.refuses = ErrorCode.NONE
    world.clock.advance(500)
    assert world.group().kind == "classic"


def test_empty_groups_change_freely_and_keep_their_offsets(world):
    world.config = world.config._replace(migration_policy=MigrationPolicy.DISABLED)
    world.join("m", "foo")
    world.leave("m")
    offsets = world.group().offsets
    assert world.classic_join("m").result.error == ErrorCode.UNKNOWN_MEMBER_ID
    member = world.classic_join().result.member_id
    assert world.group().kind == "classic" and world.group().offsets is offsets
    world.classic_leave(member)
    assert world.join("m", "foo").error == ErrorCode.NONE
    assert world.group().kind == "consumer" and world.group().offsets is offsets
    world.restart()
    assert world.group().kind == "consumer"


def test_records_that_a_refused_conversion_left_are_removed_by_the_next_group(world):
    world.join("aa", "foo")
    world.leave("aa")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.classic_join(known=True).result.error == ErrorCode.MEMBER_ID_REQUIRED
    world.refuses = ErrorCode.NONE
    assert world.group().kind == "classic"
    epoch = world.join("bb", "foo").member_epoch
    world.restart()
    group = world.group()
    assert (group.state_name, group.tables.group_epoch, set(group.tables.members)) == ("Stable", epoch, {"bb"})


def test_a_member_that_does_not_join_again_is_fenced(world):
    old = classic_group(world)
    world.join("zz", "foo")
    world.classic_beat(old, 1)
    for _ in range(7):
        world.clock.advance(9_000)
        world.classic_beat(old, 1)  # alive, but it never joins
        world.beat("zz", 2)
    assert old not in world.group().tables.members


def test_sessions_of_both_protocols_that_end_at_once(world):
    """As after a restart, when all sessions begin anew and no client comes back."""
    old = classic_group(world)
    world.join("zz", "foo")
    world.classic_join(old, owned=[("foo", [0])])
    world.restart()
    world.clock.advance(SESSION_MS)
    assert world.group().kind == "classic"  # the last member of the consumer protocol is gone
    world.clock.advance(SESSION_MS)
    assert world.group().state_name == "Empty"


def test_a_refused_conversion_of_several_ended_sessions_is_tried_again(world):
    old = classic_group(world)
    world.join("zz", "foo")
    world.classic_join(old, owned=[("foo", [0])])
    world.restart()
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(SESSION_MS)
    assert world.group().kind == "consumer"
    world.refuses = ErrorCode.NONE
    world.clock.advance(500)
    assert not {"zz", old} <= set(world.group().tables.members if world.group().kind == "consumer" else ())


def test_an_upgrade_in_a_rebalance_begins_another_one(world):
    classic_group(world)
    waiting = world.classic_join()  # for the first one, which does not join again
    assert waiting.result is None
    world.join("zz")  # a member without topics
    assert waiting.result.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group().tables.group_epoch == world.group().tables.target_epoch == 2
    targets = [each for member in world.group().tables.members for each in world.group().tables.targets.get(member)]
    assert targets, "the partitions have no owner to come"


def test_a_change_that_is_refused_leaves_the_conversion_before_it(world):
    classic_group(world)
    world.dawdles = True
    joining = world.send("zz", 0, rebalance_timeout_ms=1, topics=["foo"], owns={})
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.join("yy", "foo").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.refuses = ErrorCode.NONE
    assert world.group().kind == "consumer" and set(world.group().tables.members) >= {"zz"}
    world.catch_up()
    assert joining.result.error == ErrorCode.NONE
    before = dict(world.group().tables.members)
    world.restart()
    assert world.group().tables.members == before


def test_joins_that_an_unfinished_upgrade_keeps_waiting_are_answered_at_its_end(world):
    classic_group(world)
    waiting = world.classic_join()
    world.dawdles = True
    world.send("zz", 0, rebalance_timeout_ms=1, topics=["foo"], owns={})
    assert waiting.result is None
    world.coordinator.store.unload(0)
    assert waiting.result.error == ErrorCode.NOT_COORDINATOR


def test_an_assignment_that_an_upgrade_overtakes_is_not_given(world):
    """The consumer group assigns the partitions anew, so the members of the classic one must not read them."""
    old = world.classic_join().result.member_id
    world.dawdles = True
    syncing = world.classic_sync(old, 1, {old: WHOLE})
    joining = world.send("zz", 0, rebalance_timeout_ms=1, topics=["foo"], owns={})
    world.catch_up()
    assert syncing.result.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert joining.result.error == ErrorCode.NONE


def upgraded_and_back(world):
    """A classic group that becomes one of consumers, and classic again, while the log answers nothing. Returns the ids
    of its member and of the one that came and left."""
    old = classic_group(world)
    world.dawdles = True
    joined = world.send("zz", 0, topics=["foo"], owns={}, rebalance_timeout_ms=60_000)
    left = world.send("zz", -1)
    assert world.group().kind == "classic" and len(world.held) == 2
    return old, joined, left


def test_two_conversions_that_are_being_stored_at_once(world):
    old, joined, left = upgraded_and_back(world)
    world.catch_up()
    assert (joined.result.error, left.result.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert world.group().kind == "classic"
    assert world.classic_beat(old, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_two_conversions_that_the_log_loses_leave_the_group_as_it_was(world):
    old, joined, left = upgraded_and_back(world)
    world.catch_up(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (joined.result.error, left.result.error) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 2
    assert world.group().kind == "classic"
    assert world.classic_beat(old, 1) == ErrorCode.NONE


def test_of_two_conversions_the_log_loses_the_first_alone(world):
    old, _, left = upgraded_and_back(world)
    first, second = world.held
    world.held = []
    first(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.group().kind == "classic"
    second(ErrorCode.NONE)
    assert left.result.error == ErrorCode.NONE
    assert world.classic_beat(old, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_partition_that_is_lost_amid_two_conversions_leaves_nothing(world):
    _, joined, left = upgraded_and_back(world)
    world.coordinator.store.unload(0)
    world.catch_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.group() is None
    assert joined.result.error == left.result.error == ErrorCode.NOT_COORDINATOR
    count = len(world.log)
    world.clock.advance(2 * SESSION_MS)
    assert len(world.log) == count and world.coordinator.timer_count == 0


def test_a_group_that_was_classic_for_a_moment_writes_nothing_behind_its_successor(world):
    old, _, _ = upgraded_and_back(world)
    world.classic_leave(old)
    joined = world.send("yy", 0, topics=["foo"], owns={}, rebalance_timeout_ms=60_000)
    count = len(world.log)
    world.catch_up()
    assert joined.result.error == ErrorCode.NONE and len(world.log) == count
    world.restart()
    assert world.group().kind == "consumer" and set(world.group().tables.members) == {"yy"}


def test_a_session_that_ends_during_an_upgrade_ends_after_its_refusal(world):
    classic_group(world)
    world.dawdles = True
    world.send("zz", 0, topics=["foo"], owns={}, rebalance_timeout_ms=REBALANCE_MS)
    assert world.group().kind == "consumer"
    world.clock.advance(SESSION_MS)
    world.catch_up(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.group().kind == "classic" and world.group().has_members
    world.clock.advance(RETRY_MS)
    assert not world.group().has_members


def test_sessions_that_end_during_the_way_back_end_after_its_refusal(world):
    old = classic_group(world)
    world.join("zz", "foo")
    world.dawdles = True
    world.send("zz", -1)
    assert world.group().kind == "classic"
    world.clock.advance(SESSION_MS + REBALANCE_MS)
    world.catch_up(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.dawdles = False
    assert set(world.group().tables.members) == {"zz", old}
    world.clock.advance(2 * RETRY_MS)
    assert world.group().kind == "classic" or not world.group().has_members


def test_a_refused_upgrade_writes_nothing_later(world):
    classic_group(world)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.send("zz", 0, regex="f.*", owns={}, rebalance_timeout_ms=REBALANCE_MS)
    world.refuses = ErrorCode.NONE
    world.topics.grow("foo", 3)
    count = len(world.log)
    world.resolve()
    assert len(world.log) == count
    world.restart()
    assert (world.group().kind, world.group().state_name) == ("classic", "Stable")


def test_a_join_beside_a_way_back_that_is_lost_is_answered(world):
    member = classic_group(world)
    world.join("zz", "foo")
    world.classic_join()
    world.dawdles = True
    world.send("zz", -1)
    joining = world.classic_join(member, topics=("foo", "bar"))
    world.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.catch_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.coordinator.store.unload(0)
    assert joining.result.error == ErrorCode.NOT_COORDINATOR and world.coordinator.timer_count == 0


def test_a_member_whose_sync_an_upgrade_refuses_has_a_session_again(world):
    old = world.classic_join().result.member_id
    world.dawdles = True
    syncing = world.classic_sync(old, 1, {old: WHOLE})
    world.clock.advance(SESSION_MS)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.send("zz", 0, topics=["foo"], owns={}, rebalance_timeout_ms=REBALANCE_MS)
    world.refuses, world.dawdles = ErrorCode.NONE, False
    assert syncing.result.error == ErrorCode.REBALANCE_IN_PROGRESS
    world.catch_up()
    world.clock.advance(SESSION_MS)
    assert not world.group().has_members


def test_refused_joins_leave_no_timers(world):
    classic_group(world)
    count = world.coordinator.timer_count
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    for number in range(3):
        world.join(f"z{number}", "foo")
    assert world.coordinator.timer_count == count


def test_a_deletion_removes_the_records_of_a_former_kind_too(world):
    """The log refused to remove them when the group became classic."""
    world.join("zz", "foo")
    world.leave("zz")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    member = world.classic_join().result.member_id
    world.refuses = ErrorCode.NONE
    world.classic_sync(member, 1, {member: WHOLE})
    world.restart()
    assert (world.group().kind, world.group().state_name) == ("classic", "Stable")
    world.classic_leave(member)
    assert asyncio.run(world.coordinator.delete_groups(["g"])) == {"g": ErrorCode.NONE}
    world.restart()
    assert world.group() is None
