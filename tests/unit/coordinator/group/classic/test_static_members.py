"""Static members (KIP-345): an instance keeps its place while its processes come and go."""

import pytest

from kafkalite.common.errors import ErrorCode


def stable_static(world, **joining):
    """Instances i1 (leads) and i2 in a stable group."""
    one = world.join(instance="i1", **joining).answer.member_id
    two_joins = world.join(instance="i2", **joining)
    generation = world.join(one, instance="i1", **joining).answer.generation_id
    two = two_joins.answer.member_id
    world.sync(one, generation, {one: b"1", two: b"2"}, instance="i1")
    world.sync(two, generation, instance="i2")
    assert world.state() == "Stable"
    return one, two, generation


def test_static_members_are_admitted_at_once_under_their_instance_name(world):
    joined = world.join(instance="i1").answer
    assert (joined.error_code, joined.member_id) == (ErrorCode.NONE, "i1-u1")
    assert joined.members[0].group_instance_id == "i1"


def test_a_follower_comes_back_without_a_rebalance_and_its_old_self_is_fenced(world):
    _, old, generation = stable_static(world)
    back = world.join(instance="i2").answer
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, generation)
    assert back.member_id != old
    assert world.state() == "Stable"
    assert world.sync(back.member_id, generation, instance="i2").answer.assignment == b"2"
    assert world.heartbeat(old, generation, instance="i2") == ErrorCode.FENCED_INSTANCE_ID
    assert world.sync(old, generation, instance="i2").error == ErrorCode.FENCED_INSTANCE_ID
    assert world.join(old, instance="i2").error == ErrorCode.FENCED_INSTANCE_ID
    assert world.commit({("orders", 0): 1}, old, generation, instance="i2") == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.leave((old, "i2")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(old, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    world.restart()  # the new id was stored before anybody heard of it
    assert world.heartbeat(back.member_id, generation, instance="i2") == ErrorCode.NONE


def test_a_leader_comes_back_and_old_clients_do_not_take_themselves_for_it(world):
    old, _, generation = stable_static(world)
    back = world.join(instance="i1", version=8).answer
    assert (back.leader, back.members, back.skip_assignment) == (old, [], False)
    assert back.generation_id == generation
    newer = world.join(instance="i1", version=9).answer
    assert newer.leader == newer.member_id
    assert newer.skip_assignment
    assert len(newer.members) == 2
    follower = world.join(instance="i2", version=9).answer
    assert (follower.skip_assignment, follower.members) == (False, [])


def test_coming_back_with_a_decisive_other_protocol_starts_a_rebalance(world):
    both = (("range", b"m"), ("sticky", b"m"))
    stable_static(world, protocols=both)
    back = world.join(instance="i2", protocols=both[::-1])
    assert not back.waits  # one vote each: range, voted for first, stays
    assert world.state() == "Stable"
    back = world.join(instance="i1", protocols=both[::-1])
    assert back.waits
    assert world.state() == "PreparingRebalance"


def test_coming_back_while_partitions_are_assigned_starts_over(world):
    one, two, generation = stable_static(world)
    world.join(one, instance="i1")
    world.join(two, instance="i2")
    two_syncs = world.sync(two, generation + 1, instance="i2")
    back = world.join(instance="i2")
    assert two_syncs.error == ErrorCode.FENCED_INSTANCE_ID
    assert back.waits
    assert world.join(one, instance="i1").answer.generation_id == generation + 2
    assert back.answer.generation_id == generation + 2


def test_coming_back_while_the_old_self_still_waits_to_join(world):
    one, two, generation = stable_static(world)
    waiting = world.join(one, instance="i1")
    back = world.join(instance="i1")
    assert (waiting.error, waiting.answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, one)
    world.join(two, instance="i2")
    assert back.answer.generation_id == generation + 1
    assert back.answer.leader == back.answer.member_id  # the lead went along


def test_a_static_member_that_does_not_join_in_time_stays_until_its_session_ends(world):
    one, two, generation = stable_static(world, session_ms=100_000, rebalance_ms=20_000)
    world.leave(("", "nobody"))
    waiting = world.join(one, instance="i1", session_ms=100_000, rebalance_ms=20_000)
    world.passes(20_000)
    assert len(waiting.answer.members) == 2
    world.sync(one, generation + 1, {one: b"1", two: b"2"}, instance="i1")
    assert world.heartbeat(two, generation + 1, instance="i2") == ErrorCode.NONE
    world.passes(20_000)  # but whoever does not even ask for its assignment goes
    assert world.heartbeat(two, generation + 1, instance="i2") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_that_no_static_member_joins_is_waited_out(world):
    one, two, generation = stable_static(world, session_ms=1_000_000)
    new = world.join(client="new", version=3)
    new.give_up()
    world.leave(world.describe().members[-1].member_id)
    world.passes(60_000)
    assert world.state() == "PreparingRebalance"
    world.join(two, instance="i2")
    world.passes(60_000)
    assert world.state() == "CompletingRebalance"
    assert world.heartbeat(two, generation + 1, instance="i2") == ErrorCode.NONE
    assert world.heartbeat(one, generation + 1, instance="i1") == ErrorCode.NONE


def test_an_administrator_removes_by_instance_id(world):
    _, two, generation = stable_static(world)
    answer = world.leave(("", "i1"), ("", "i7"))
    assert [each.error_code for each in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.heartbeat(two, generation, instance="i2") == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(world.join(two, instance="i2").answer.members) == 1


@pytest.mark.parametrize("refusal", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_a_return_that_cannot_be_stored_did_not_happen(world, refusal):
    _, two, generation = stable_static(world)
    world.refuses = refusal
    back = world.join(instance="i2", protocols=[("range", b"new")])
    assert back.error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert back.answer.member_id == ""
    world.refuses = ErrorCode.NONE
    assert world.heartbeat(two, generation, instance="i2") == ErrorCode.NONE
    assert [each.member_metadata for each in world.describe().members] == [b"m", b"m"]


def test_a_return_that_is_still_being_stored_when_the_group_moves_on(world):
    one, _, generation = stable_static(world)
    world.dawdles = True
    back = world.join(instance="i2")
    assert back.waits
    one_joins = world.join(one, instance="i1")  # the leader asks for a rebalance
    assert one_joins.answer.generation_id == back.answer.generation_id == generation + 1
    world.log_answers()
    assert world.state() == "CompletingRebalance"


def test_who_comes_back_and_is_expelled_before_it_is_stored_is_answered(world):
    one = world.join(instance="i1").answer.member_id
    two_joins = world.join(instance="i2")
    generation = world.join(one, instance="i1").answer.generation_id
    world.sync(one, generation, {one: b"1", two_joins.answer.member_id: b"2"}, instance="i1")
    world.dawdles = True
    back = world.join(instance="i2")
    assert back.waits
    while back.waits and world.state() == "Stable":  # i2 never asked for its assignment
        world.passes(1_000)
        world.heartbeat(one, generation, instance="i1")
    assert back.error == ErrorCode.UNKNOWN_MEMBER_ID
    world.log_answers()
    assert world.state() == "PreparingRebalance"
