"""Groups coming together, as scripts: who joins, syncs, leaves, falls silent, and what everybody hears."""

from kafkalite.common.errors import ErrorCode

JOIN_DELAY_MS = 3_000


def test_two_members_share_the_work(world):
    asked = world.join(client="a")
    assert asked.error == ErrorCode.MEMBER_ID_REQUIRED
    a = asked.answer.member_id
    assert a == "a-u1"
    assert asked.answer.generation_id == -1
    joined = world.join(a, client="a").answer
    assert (joined.error_code, joined.generation_id, joined.leader, joined.protocol_name) == (0, 1, a, "range")
    assert [each.member_id for each in joined.members] == [a]

    b = world.join(client="b").answer.member_id
    b_joins = world.join(b, client="b")
    assert b_joins.waits  # until a, whose partitions will shrink, has joined again
    assert world.heartbeat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    a_joins = world.join(a, client="a")
    assert [a_joins.answer.generation_id, b_joins.answer.generation_id] == [2, 2]
    assert [each.member_id for each in a_joins.answer.members] == [a, b]
    assert b_joins.answer.members == []  # only the leader learns who is there

    b_syncs = world.sync(b, 2)
    assert b_syncs.waits
    assert world.heartbeat(b, 2) == ErrorCode.NONE
    assert world.state() == "CompletingRebalance"
    a_syncs = world.sync(a, 2, {a: b"left half", b: b"right half"})
    assert a_syncs.answer.assignment == b"left half"
    assert b_syncs.answer.assignment == b"right half"
    assert world.state() == "Stable"
    assert world.sync(b, 2).answer.assignment == b"right half"  # asked again: the same at once
    shown = world.describe()
    assert [(each.client_id, each.client_host, each.member_assignment) for each in shown.members] == [
        ("a", "/10.0.0.1", b"left half"),
        ("b", "/10.0.0.1", b"right half"),
    ]
    assert (shown.protocol_type, shown.protocol_data) == ("consumer", "range")


def test_members_who_were_given_nothing_get_empty_bytes(world):
    (a, b), generation = world.stable("a", "b")
    again = [world.join(b, client="b"), world.join(a, client="a")]
    assert again[0].answer.generation_id == generation  # a follower with nothing new hears of the present generation
    assert again[1].waits  # but the leader asks for a rebalance by joining
    world.join(b, client="b")
    assert again[1].answer.generation_id == generation + 1
    world.sync(a, generation + 1, {a: b"all"})
    assert world.sync(b, generation + 1).answer.assignment == b""


def test_the_first_round_waits_for_late_comers_up_to_the_rebalance_timeout(new_world):
    world = new_world(group_initial_rebalance_delay_ms=JOIN_DELAY_MS)
    first = world.join(version=3, rebalance_ms=8_000)
    world.passes(2_999)
    assert first.waits
    second = world.join(version=3, rebalance_ms=8_000)
    world.passes(2_999)  # 5998: somebody came in the first three seconds, so three more began
    third = world.join(version=3, rebalance_ms=8_000)
    world.passes(2_001)  # 7999
    assert first.waits
    world.passes(1)
    assert {call.answer.generation_id for call in (first, second, third)} == {1}
    assert len(first.answer.members) == 3


def test_the_first_round_ends_after_one_delay_when_nobody_else_comes(new_world):
    world = new_world(group_initial_rebalance_delay_ms=JOIN_DELAY_MS)
    alone = world.join(version=3)
    world.passes(JOIN_DELAY_MS)
    assert alone.answer.generation_id == 1


def test_who_does_not_join_in_time_is_out_and_the_lead_moves_on(world):
    (a, b), generation = world.stable("a", "b", session_ms=30_000, rebalance_ms=20_000)
    changed = world.join(b, protocols=[("range", b"other topics")], session_ms=30_000, rebalance_ms=20_000)
    assert changed.waits
    for _ in range(3):
        world.passes(6_000)
        assert world.heartbeat(a, generation) == ErrorCode.REBALANCE_IN_PROGRESS  # alive, but does not join
    world.passes(2_000)
    assert (changed.answer.generation_id, changed.answer.leader) == (generation + 1, b)
    assert world.heartbeat(a, generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_dropped_after_its_session_and_the_rest_rebalance(world):
    (a, b), generation = world.stable("a", "b")
    for _ in range(3):
        world.passes(3_000)
        assert world.heartbeat(a, generation) == ErrorCode.NONE
    world.passes(1_000)  # b has said nothing for 10 s
    assert world.heartbeat(a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(b, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(a).answer.generation_id == generation + 1


def test_the_last_to_go_leaves_an_empty_group_on_disk(world):
    (a,), generation = world.stable("a")
    world.passes(10_000)
    assert world.state() == "Empty"
    assert world.heartbeat(a, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    world.restart()
    assert world.state() == "Empty"
    again = world.join(version=3).answer
    assert again.generation_id == generation + 2  # one for the empty generation, one for this


def test_a_parked_member_cannot_lose_its_session(world):
    (a, b), _ = world.stable("a", "b", rebalance_ms=60_000)
    waiting = world.join(a, rebalance_ms=60_000)
    world.passes(9_000)
    world.heartbeat(b, 2)
    world.passes(9_000)
    world.heartbeat(b, 2)
    world.passes(9_000)
    assert waiting.waits
    world.join(b)
    assert waiting.answer.generation_id == 3
    world.passes(9_999)
    assert world.heartbeat(a, 3) == ErrorCode.NONE  # its session began anew with the answer


def test_a_new_member_that_waits_too_long_is_let_go_after_five_minutes(world):
    (a,), generation = world.stable("a", session_ms=1_000_000, rebalance_ms=1_000_000)
    new = world.join(version=3, session_ms=1_000_000)
    world.passes(5 * 60_000 - 1)
    assert new.waits
    world.passes(1)
    assert new.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert new.answer.member_id == ""
    assert world.join(a).answer.generation_id == generation + 1


def test_members_that_do_not_ask_for_their_assignment_are_dropped(world):
    (a, b), _ = world.stable("a", "b", session_ms=100_000)
    joins = [world.join(a), world.join(b)]
    generation = joins[0].answer.generation_id
    world.sync(a, generation, {a: b"x", b: b"y"})
    assert world.state() == "Stable"
    for _ in range(20):
        world.passes(3_000)
        world.heartbeat(a, generation)
        last = world.heartbeat(b, generation)  # lives, but never syncs
    assert last == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(world.join(a).answer.members) == 1


def test_a_leader_that_never_syncs_takes_nobody_with_it(world):
    (a, b), _ = world.stable("a", "b", session_ms=1_000_000)
    world.join(a, session_ms=1_000_000)
    generation = world.join(b, session_ms=1_000_000).answer.generation_id
    b_syncs = world.sync(b, generation)
    world.passes(60_000)
    assert b_syncs.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(b).answer.leader == b


def test_a_pending_id_holds_up_the_group_no_longer_than_its_session(world):
    (a,), generation = world.stable("a")
    pending = world.join(client="late", session_ms=6_000).answer.member_id
    a_joins = world.join(a)
    assert a_joins.waits  # for the one who was told to come
    world.passes(6_000)
    assert a_joins.answer.generation_id == generation + 1
    assert world.join(pending).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_may_leave(world):
    (a,), generation = world.stable("a")
    pending = world.join(client="late").answer.member_id
    a_joins = world.join(a)
    assert [each.error_code for each in world.leave(pending).members] == [0]
    assert a_joins.answer.generation_id == generation + 1


def test_the_protocol_is_what_most_members_like_best_of_what_all_know(world):
    world.join(version=3, protocols=[("sticky", b"s"), ("range", b"r"), ("odd", b"o")])
    world.join(version=3, protocols=[("range", b"r"), ("sticky", b"s")])
    third = world.join(version=3, protocols=[("range", b"r"), ("sticky", b"s")])
    assert third.waits
    first = world.describe().members[0].member_id
    joined = world.join(first, version=3, protocols=[("sticky", b"s"), ("range", b"r"), ("odd", b"o")])
    # the second member has to come back as well: it was parked all along
    assert joined.answer.protocol_name == "range"
    assert [each.metadata for each in joined.answer.members] == [b"r", b"r", b"r"]
    assert world.join(version=3, protocols=[("odd", b"o")]).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_refuses_and_the_last_to_rejoin_must_go(new_world):
    world = new_world(group_max_size=2)
    (a, b), generation = world.stable("a", "b")
    assert world.join(version=3).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join(version=5).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.leave(b)
    b_again = world.join(version=3)
    a_again = world.join(a, version=3)
    assert a_again.answer.generation_id == b_again.answer.generation_id == generation + 1


def test_a_group_that_outgrew_a_smaller_limit_sends_the_last_away_after_a_restart(world):
    (a, b, c), generation = world.stable("a", "b", "c")
    world.config.group_max_size = 2
    world.restart()
    assert world.heartbeat(a, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.commit({("orders", 1): 7}, c, generation) == [ErrorCode.NONE]  # a chance to save its work
    a_joins, b_joins = world.join(a), world.join(b)
    assert world.join(c).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a_joins.answer.generation_id == b_joins.answer.generation_id == generation + 1


def test_leaving_versions_0_to_2_and_lists(world):
    (a, b, c), _ = world.stable("a", "b", "c")
    assert world.leave(a, version=2).error_code == ErrorCode.NONE
    assert world.leave(a, version=0).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = world.leave(b, "nobody", (c, "not-static"))
    assert answer.error_code == ErrorCode.NONE
    assert [(each.member_id, each.error_code) for each in answer.members] == [
        (b, ErrorCode.NONE),
        ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (c, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert world.join(c).answer.leader == c
    assert world.leave(c, group="other").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_parked_client_that_is_gone_is_counted_until_its_session_ends(world):
    (a, b), generation = world.stable("a", "b")
    parked = world.join(a)
    parked.give_up()
    assert world.join(b).answer.generation_id == generation + 1  # answering nobody is no error
    parked = world.sync(b, generation + 1)
    parked.give_up()
    world.sync(a, generation + 1, {a: b"1", b: b"2"})
    assert world.state() == "Stable"
    world.passes(10_000)
    assert world.state() == "Empty"


def test_a_member_that_joins_twice_waits_once(world):
    (a, b), generation = world.stable("a", "b")
    lost, second = world.join(a), world.join(a)
    assert lost.error == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(b)
    assert second.answer.generation_id == generation + 1
    lost, kept = world.sync(b, generation + 1), world.sync(b, generation + 1)
    assert lost.error == ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(a, generation + 1, {b: b"2"})
    assert kept.answer.assignment == b"2"


def test_an_assignment_counts_when_it_is_on_disk(world):
    world.dawdles = True
    a = world.join(version=3).answer.member_id
    a_syncs = world.sync(a, 1, {a: b"x"})
    assert a_syncs.waits
    assert world.state() == "CompletingRebalance"
    world.log_answers()
    assert a_syncs.answer.assignment == b"x"
    assert world.state() == "Stable"


def test_an_assignment_that_the_disk_refuses_is_nobodys(world):
    for refusal, heard in (
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        group = refusal.name
        a = world.join(version=3, group=group).answer.member_id
        world.refuses = refusal
        assert world.sync(a, 1, {a: b"x"}, group=group).error == heard
        world.refuses = ErrorCode.NONE
        assert world.state(group) == "PreparingRebalance"
        assert world.join(a, group=group).answer.generation_id == 2


def test_an_assignment_of_a_generation_gone_by_changes_nothing(world):
    world.dawdles = True
    a = world.join(version=3).answer.member_id
    a_syncs = world.sync(a, 1, {a: b"old"})
    b_joins = world.join(version=3)  # while the log is at work
    assert a_syncs.error == ErrorCode.REBALANCE_IN_PROGRESS
    world.log_answers()
    assert world.state() == "PreparingRebalance"
    world.join(a, version=3)
    assert b_joins.answer.generation_id == 2


def test_unloading_and_closing_send_everybody_away_at_once(world):
    (a, _), _ = world.stable("a", "b")
    waiting = world.join(a)
    world.store.unload(world.store.partition_for("g"))
    assert waiting.error == ErrorCode.NOT_COORDINATOR
    assert world.join(a).error == ErrorCode.NOT_COORDINATOR
    assert world.groups() == {}

    world.restart()
    assert world.state() == "Stable"
    waiting = world.join(a)
    other = world.join(group="h", version=3).answer.member_id
    world.dawdles = True
    waiting_too = world.sync(other, 1, {other: b"x"}, group="h")
    for _ in range(2):  # the second time does nothing
        world.coordinator.close()
        assert waiting.error == waiting_too.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.join(a).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log_answers()
    assert waiting_too.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
