"""Heartbeats of a consumer group, step by step as Kafka 4.3 answers them."""

import asyncio

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.consumer.member import MemberState
from tests.support.consumer_group_world import REBALANCE_MS, SESSION_MS, Topics, World, named


@pytest.fixture
def world():
    return World(Topics(foo=2)).load()


def seen(answer):
    """(epoch, assignment by name or None) of an answer without an error."""
    assert answer.error == ErrorCode.NONE, answer
    return answer.member_epoch, None if answer.assignment is None else named(answer.assignment)


def test_two_members_share_partitions_without_two_owners(world):
    assert seen(world.join("m1", "foo")) == (2, {"foo": [0, 1]})
    assert seen(world.join("m2", "foo")) == (3, {})
    epoch, kept = seen(world.beat("m1", 2))
    assert epoch == 2 and len(kept["foo"]) == 1
    assert seen(world.beat("m1", 2)) == (2, None)  # a sign of life is no revocation
    assert seen(world.beat("m2", 3)) == (3, None)
    assert seen(world.beat("m1", 2, owns=kept)) == (3, None)
    epoch, gained = seen(world.beat("m2", 3))
    assert epoch == 3 and sorted(kept["foo"] + gained["foo"]) == [0, 1]
    assert world.group().state_name == "Stable"


def test_a_join_writes_the_records_of_kafka_in_their_order(world):
    world.join("m1", "foo")
    assert world.kinds() == [5, 3, 7, 6, 8]
    since = len(world.log)
    world.leave("m1")
    assert world.kinds(since) == [-8, -7, -5, 3]
    assert world.group().state_name == "Empty"


def test_a_heartbeat_with_nothing_to_tell_writes_nothing(world):
    world.join("m1", "foo")
    since = len(world.log)
    answer = world.beat("m1", 2)
    assert seen(answer) == (2, None) and answer.heartbeat_interval_ms == 5_000 and answer.member_id == "m1"
    assert world.kinds(since) == []


def interval_ms(answer):
    assert answer.error == ErrorCode.NONE, answer
    return answer.heartbeat_interval_ms


def test_a_member_that_waits_for_others_is_to_ask_again_soon(world):
    assert interval_ms(world.join("m1", "foo")) == 5_000
    assert interval_ms(world.join("m2", "foo")) == 500
    assert interval_ms(world.beat("m2", 3)) == 500
    told = world.beat("m1", 2)
    assert interval_ms(told) == 5_000  # its next heartbeat follows when it has given up
    assert [interval_ms(world.beat(member, epoch)) for member, epoch in (("m1", 2), ("m2", 3))] == [5_000, 500]
    assert interval_ms(world.beat("m1", 2, owns=named(told.assignment))) == 5_000
    gained = world.beat("m2", 3)
    assert gained.assignment and interval_ms(gained) == 5_000
    assert interval_ms(world.beat("m2", 3)) == 5_000


def test_a_waiting_member_without_news_is_answered_by_the_fast_path(world):
    world.join("m1", "foo")
    world.join("m2", "foo")

    def is_kept_alive():
        client = "c", "/10.0.0.1"
        return world.group().keep_alive("m2", 3, None, client, world.clock) == 500

    assert is_kept_alive()  # nobody has moved since it joined
    kept = named(world.beat("m1", 2).assignment)
    assert not is_kept_alive()  # another has, so it is decided
    assert seen(world.beat("m2", 3)) == (3, None)
    assert is_kept_alive()
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.beat("m1", 2, owns=kept).error
    world.refuses = ErrorCode.NONE
    assert not is_kept_alive() and seen(world.beat("m2", 3)) == (3, None)
    world.beat("m1", 2, owns=kept)
    assert not is_kept_alive() and seen(world.beat("m2", 3))[1]


def test_a_member_is_to_ask_soon_for_a_target_that_may_not_be_made_yet():
    world = World(Topics(foo=2), assignment_interval_ms=1_000).load()
    world.join("m1", "foo")
    assert interval_ms(world.join("m2", "foo")) == interval_ms(world.beat("m1", 2)) == 1_000
    world.clock.advance(900)
    assert interval_ms(world.beat("m1", 2)) == 500
    world.clock.advance(100)
    assert interval_ms(world.beat("m1", 2)) == 5_000
    assert interval_ms(world.beat("m2", 2)) == 500  # now it waits for the other
    world.leave("m2")
    assert interval_ms(world.beat("m1", 2)) == 5_000  # it has to give up, whatever the next target is


def test_a_target_of_a_time_to_come_delays_no_other():
    """Its coordinator had another clock. Kafka waits for that time."""
    world = World(Topics(foo=2), assignment_interval_ms=1_000).load()
    world.join("m1", "foo")
    world.clock.step_wall(-1_800_000)
    assert interval_ms(world.join("m2", "foo")) == 500  # until the other gives up
    assert world.group().tables.target_epoch == 3
    assert interval_ms(world.join("m3", "foo")) == 1_000


def test_a_member_is_to_ask_soon_for_the_topics_of_a_new_expression(world):
    joined = world.join("m1", topics=None, regex="f.*")
    assert interval_ms(joined) == 500
    world.resolve()
    told = world.beat("m1", joined.member_epoch)
    assert told.assignment and interval_ms(told) == 5_000
    world.clock.advance(10_001)  # else the next run would be too soon
    assert interval_ms(world.join("m2", topics=None, regex="nothing")) == 500
    world.resolve()
    assert interval_ms(world.beat("m2", world.member("m2").current.epoch)) == 5_000
    world.clock.step_wall(-1_800_000)  # the last run was of a coordinator with another clock
    world.join("m3", topics=None, regex="b.*")
    assert world.resolving
    world.resolve()


@pytest.mark.parametrize(("usual_ms", "short_ms"), ((5, 5), (50, 20), (1_000, 100)))
def test_a_short_interval_is_twenty_milliseconds_or_a_tenth(usual_ms, short_ms):
    world = World(Topics(foo=2), heartbeat_interval_ms=usual_ms).load()
    world.join("m1", "foo")
    assert interval_ms(world.join("m2", "foo")) == short_ms


def test_a_full_heartbeat_is_told_its_assignment_again(world):
    world.join("m1", "foo")
    full = {"rebalance_timeout_ms": REBALANCE_MS, "topics": ["foo"], "owns": {}}
    assert seen(world.beat("m1", 2, **full)) == (2, {"foo": [0, 1]})
    assert seen(world.join("m1", "foo")) == (2, {"foo": [0, 1]})  # a known member may join again


REFUSALS = [
    ({"member": "", "epoch": 0, "version": 1}, 42, "MemberId can't be empty."),
    ({"member": "", "epoch": 1, "version": 0}, 42, "MemberId can't be empty."),
    ({"member": "m", "epoch": 0, "group": ""}, 42, "GroupId can't be empty."),
    ({"member": "m", "epoch": 0, "instance_id": " "}, 42, "InstanceId can't be empty."),
    ({"member": "m", "epoch": 0, "rack_id": ""}, 42, "RackId can't be empty."),
    ({"member": "m", "epoch": 0}, 42, "RebalanceTimeoutMs must be provided in first request."),
    ({"member": "m", "epoch": 0, "rebalance_timeout_ms": 1}, 42, "TopicPartitions must be empty when (re-)joining."),
    (
        {"member": "m", "epoch": 0, "rebalance_timeout_ms": 1, "owns": {"foo": [0]}},
        42,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        {"member": "m", "epoch": 0, "rebalance_timeout_ms": 1, "owns": {}},
        42,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    ({"member": "m", "epoch": -2}, 42, "InstanceId can't be null."),
    ({"member": "m", "epoch": -3}, 42, "MemberEpoch is invalid."),
    (
        {"member": "m", "epoch": 1, "server_assignor": "magic"},
        112,
        "ServerAssignor magic is not supported. Supported assignors: uniform, range.",
    ),
    ({"member": "m", "epoch": 1}, 69, "Consumer group g not found."),
    ({"member": "m", "epoch": -1}, 69, "Group g not found."),
]


@pytest.mark.parametrize(("request_", "code", "message"), REFUSALS)
def test_requests_are_refused_in_the_order_of_kafka(world, request_, code, message):
    answer = world.beat(request_.pop("member"), request_.pop("epoch"), **request_)
    assert (answer.error, answer.message, answer.member_id) == (code, message, None)
    assert world.coordinator.store.by_id == {} and world.log == []


def test_epochs_that_are_not_the_members_own_are_fenced(world):
    world.join("m1", "foo")
    world.join("m2", "foo")
    _, kept = seen(world.beat("m1", 2))
    world.beat("m1", 2, owns=kept)  # at epoch 3, and the answer is lost
    assert seen(world.beat("m1", 2, owns=kept)) == (3, None)
    for epoch, owns in ((2, None), (2, {"foo": [0, 1]}), (1, kept), (9, kept)):
        answer = world.beat("m1", epoch, owns=owns)
        assert answer.error == ErrorCode.FENCED_MEMBER_EPOCH
    assert "has a greater member epoch (9) than the one known by the group coordinator (3)" in answer.message
    assert world.beat("m3", 3).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_ends_frees_the_partitions_at_the_next_heartbeat(world):
    world.join("m1", "foo")
    world.join("m2", "foo")
    world.clock.advance(SESSION_MS - 1)
    assert seen(world.beat("m2", 3)) == (3, None)
    since = len(world.log)
    world.clock.advance(1)
    assert world.kinds(since) == [-8, -7, -5, 3]
    assert world.group().state_name == "Assigning"
    assert seen(world.beat("m2", 3)) == (4, {"foo": [0, 1]})
    assert world.beat("m1", 2).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_fenced(world):
    world.join("m1", "foo", rebalance_timeout_ms=10_000)
    world.join("m2", "foo")
    world.beat("m1", 2)
    world.clock.advance(9_999)
    assert "m1" in world.group().tables.members
    world.clock.advance(1)
    assert "m1" not in world.group().tables.members
    assert seen(world.beat("m2", 3)) == (4, {"foo": [0, 1]})


def test_a_static_member_that_returns_gets_its_partitions_back(world):
    world.join("m1", "foo", instance_id="i")
    assert world.join("m2", "foo", instance_id="i").error == ErrorCode.UNRELEASED_INSTANCE_ID
    since = len(world.log)
    answer = world.leave("m1", -2, instance_id="i")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m1", -2, 0)
    assert world.kinds(since) == [8]
    since = len(world.log)
    assert seen(world.join("m2", "foo", instance_id="i")) == (2, {"foo": [0, 1]})
    assert world.kinds(since) == [-8, -7, -5, 5, 7, 8, 8]
    assert world.group().tables.group_epoch == 2  # no rebalance
    assert world.beat("m1", 2, instance_id="i").error == ErrorCode.FENCED_INSTANCE_ID
    assert world.beat("m1", 2, instance_id="other").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_loses_its_place(world):
    world.join("m1", "foo", instance_id="i")
    world.leave("m1", -2, instance_id="i")
    world.clock.advance(SESSION_MS)
    assert world.group().state_name == "Empty"


def test_a_group_has_no_more_members_than_it_may(world):
    world.config = world.config._replace(max_size=1)
    world.join("m1", "foo")
    answer = world.join("m2", "foo")
    assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answer.message == "The consumer group has reached its maximum capacity of 1 members."
    assert seen(world.beat("m1", 2)) == (2, None)


def test_topics_that_change_make_a_rebalance(world):
    world.join("m1", "foo", "bar")
    world.topics.create("other", 1)
    since = len(world.log)
    assert seen(world.beat("m1", 2)) == (2, None)
    assert world.kinds(since) == []
    world.topics.grow("foo", 3)
    assert seen(world.beat("m1", 2)) == (3, {"foo": [0, 1, 2]})
    world.topics.create("bar", 1)
    assert seen(world.beat("m1", 3)) == (4, {"foo": [0, 1, 2], "bar": [0]})
    world.topics.delete("bar")
    assert seen(world.beat("m1", 4))[0] == 4  # its client has to give the partition up
    assert seen(world.beat("m1", 4, owns={"foo": [0, 1, 2]})) == (5, None)


def test_unsubscribed_topics_are_given_up_before_the_next_target(world):
    world.config = world.config._replace(assignment_interval_ms=1_000)
    world.topics.create("bar", 1)
    world.join("m1", "foo", "bar")
    assert seen(world.beat("m1", 2, topics=["foo"])) == (2, {"foo": [0, 1]})
    assert world.member("m1").current.state is MemberState.UNREVOKED
    assert world.group().state_name == "Assigning"
    world.clock.advance(1_000)
    assert seen(world.beat("m1", 2, owns={"foo": [0, 1]})) == (3, None)


def test_targets_are_computed_no_more_often_than_the_interval(world):
    world.config = world.config._replace(assignment_interval_ms=1_000)
    assert seen(world.join("m1", "foo")) == (2, {"foo": [0, 1]})
    assert seen(world.join("m2", "foo")) == (2, {})  # the target of the group is still that of epoch 2
    assert world.group().state_name == "Assigning"
    assert seen(world.beat("m1", 2)) == (2, None)
    world.clock.advance(1_000)
    epoch, kept = seen(world.beat("m1", 2))
    assert epoch == 2 and len(kept["foo"]) == 1


def test_a_regular_expression_is_resolved_after_the_first_heartbeat(world):
    may_describe = lambda name: name != "foo-2"  # noqa: E731
    for name in ("foo-1", "foo-2"):
        world.topics.create(name, 1)
    answer = world.join("m1", topics=None, regex="foo.*", may_describe=may_describe)
    assert seen(answer) == (1, {})
    assert world.kinds() == [5, 8]
    since = len(world.log)
    world.resolve()
    assert world.kinds(since) == [16, 3]
    assert seen(world.beat("m1", 1)) == (2, {"foo": [0, 1], "foo-1": [0]})
    assert world.join("m2", topics=None, regex="(").error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.group().is_subscribed_to_topic("foo-1")


def test_partitions_go_to_another_when_an_expression_matches_them_no_more(world):
    def beat_often():
        for _ in range(6):
            world.clock.advance(10_000)
            for member in ("a", "b"):
                world.beat(member, world.member(member).current.epoch, owns=world.assigned(member))
            world.resolve()

    world.topics.create("bar", 2)
    world.join("a", regex=".*")
    world.join("b", regex="ba.")
    beat_often()
    assert "bar" in world.assigned("b")
    world.beat("b", world.member("b").current.epoch, regex="nothing", owns={})
    beat_often()
    assert world.assigned("a")["bar"] == [0, 1] and world.assigned("b") == {}


def test_a_regular_expression_finds_new_topics(world):
    world.join("m1", topics=None, regex="fo+.*")
    world.resolve()
    world.beat("m1", 1)
    world.topics.create("foo-1", 1)
    assert seen(world.beat("m1", 2)) == (2, None)
    assert world.resolving == []  # the last run was less than 10 s ago
    world.clock.advance(10_001)
    world.beat("m1", 2)
    world.resolve()
    assert seen(world.beat("m1", 2)) == (3, {"foo": [0, 1], "foo-1": [0]})
    since = len(world.log)
    assert seen(world.beat("m1", 3, regex="", topics=["foo"]))[0] == 3
    assert world.kinds(since)[:3] == [5, -16, 3]


def test_commits_are_checked_by_epoch(world):
    world.topics.create("bar", 1)
    world.join("m1", "foo")
    world.join("m2", "foo")
    _, kept = seen(world.beat("m1", 2))
    world.beat("m1", 2, owns=kept)
    group = world.group()
    [index] = kept["foo"]

    def commit(member, epoch, topic="foo", partition=index, version=9):
        from kafkalite.coordinator.group.group import Identity

        return group.validate_commit(Identity(member, None, epoch, version >= 9), [(topic, partition)], 0)[0]

    assert commit("m1", 3) == 0
    assert commit("m1", 2) == 0  # it has had the partition since epoch 2
    assert commit("m1", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m1", 2, partition=1 - index) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m1", 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m1", 3, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit("m9", 3) == commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_fetch("m1", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.validate_fetch("m1", 3) == group.validate_fetch(None, -1) == ErrorCode.NONE
    assert group.validate_fetch("m9", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    world.leave("m1")
    world.leave("m2")
    assert commit("", -1) == 0


def test_answers_wait_for_the_log(world):
    world.dawdles = True
    first = world.send("m1", 0, rebalance_timeout_ms=1, topics=["foo"], owns={})
    second = world.send("m1", 2)  # has nothing to write, and depends on the first
    assert first.result is None and second.result is None
    world.catch_up()
    assert seen(first.result) == (2, {"foo": [0, 1]}) and seen(second.result) == (2, None)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_change_that_the_log_refuses_is_undone(world, error, shown):
    world.refuses = error
    assert world.join("m1", "foo").error == shown
    assert world.group() is None
    world.refuses = ErrorCode.NONE
    world.join("m1", "foo")
    world.refuses = error
    assert world.join("m2", "foo").error == world.leave("m1").error == shown
    world.refuses = ErrorCode.NONE
    assert seen(world.beat("m1", 2)) == (2, None)
    assert list(world.group().tables.members) == ["m1"]
    assert world.group().tables.group_epoch == 2


def test_a_removal_that_the_log_refuses_is_tried_again(world):
    world.join("m1", "foo")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(SESSION_MS)
    assert "m1" in world.group().tables.members
    world.refuses = ErrorCode.NONE
    world.clock.advance(500)
    assert world.group().state_name == "Empty"


def test_a_member_whose_leaving_the_log_refuses_is_expelled_after_its_session(world):
    """It has left by its own word, and gives no sign of life."""
    world.join("m1", "foo")
    world.join("m2", "foo")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(SESSION_MS - 1_000)
    world.beat("m2", world.member("m2").current.epoch)
    assert world.leave("m1").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.refuses = ErrorCode.NONE
    world.clock.advance(999)
    assert world.group().tables.members.keys() == {"m1", "m2"}
    world.clock.advance(1)
    assert list(world.group().tables.members) == ["m2"]


def test_members_that_expire_together_stay_together_if_the_log_refuses(world):
    for member in ("m1", "m2", "m3"):
        world.join(member, "foo")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(SESSION_MS)
    assert world.group().tables.members.keys() == {"m1", "m2", "m3"}
    assert world.group().tables.group_epoch == 4
    world.refuses = ErrorCode.NONE
    world.clock.advance(500)
    assert world.group().state_name == "Empty" and world.group().tables.group_epoch == 7
    world.restart()
    assert world.group().state_name == "Empty" and world.group().tables.group_epoch == 7


def test_a_member_that_was_not_let_go_of_its_partitions_is_waited_for_again(world):
    """It has given them up, but the log has refused that."""
    world.join("m1", "foo")
    world.join("m2", "foo")
    world.beat("m1", world.member("m1").current.epoch)
    epoch = world.member("m1").current.epoch
    assert world.member("m1").current.state is MemberState.UNREVOKED
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    kept = world.assigned("m1")
    assert world.beat("m1", epoch, owns=kept).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.refuses = ErrorCode.NONE
    for _ in range(4):
        world.clock.advance(REBALANCE_MS // 4 - 1)
        assert world.beat("m1", epoch).error == ErrorCode.NONE
        world.beat("m2", world.member("m2").current.epoch)
    world.clock.advance(4)
    assert world.group().tables.members.keys() == {"m2"}


def test_a_change_that_is_late_in_the_log_stays(world):
    world.dawdles = True
    waiter = world.send("m1", 0, rebalance_timeout_ms=1, topics=["foo"], owns={})
    world.catch_up(ErrorCode.REQUEST_TIMED_OUT)
    assert waiter.result.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.dawdles = False
    assert seen(world.join("m1", "foo")) == (2, {"foo": [0, 1]})


@pytest.mark.parametrize("compacted", [False, True])
def test_a_group_is_read_from_its_log(world, compacted):
    world.join("m1", "foo", instance_id="i")
    world.join("m2", "foo")
    world.join("m3", topics=None, regex="fo.*")
    world.resolve()
    world.beat("m1", 2, instance_id="i")
    world.leave("m2")
    before = world.group().tables
    world.restart(compacted=compacted)
    after = world.group().tables
    for name in ("members", "group_epoch", "metadata_hash", "target_epoch", "target_timestamp_ms", "regexes"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.targets.by_member == before.targets.by_member
    assert after.targets.member_of == before.targets.member_of
    assert after.partition_epochs._epochs == before.partition_epochs._epochs
    world.clock.advance(SESSION_MS)
    assert world.group().state_name == "Empty"


def test_a_group_that_is_deleted_leaves_only_tombstones(world):
    world.join("m1", topics=None, regex="foo")
    world.resolve()
    assert asyncio.run(world.coordinator.delete_groups(["g"])) == {"g": ErrorCode.NON_EMPTY_GROUP}
    world.leave("m1")
    since = len(world.log)
    assert asyncio.run(world.coordinator.delete_groups(["g"])) == {"g": ErrorCode.NONE}
    assert world.kinds(since) == [-6, -4, -3]
    world.restart()
    assert world.group() is None


def test_a_description_shows_epochs_and_both_assignments(world):
    world.join("m1", "foo")
    world.join("m2", "foo")
    world.beat("m1", 2)
    group = world.coordinator.consumer_groups.describe("g")
    assert (group.state, group.group_epoch, group.target_epoch, group.assignor) == ("Reconciling", 3, 3, "uniform")
    first = group.members[0]
    assert [(row.topic_name, row.partitions) for row in first.assignment] == [("foo", [0, 1])]  # also what it gives up
    assert [len(row.partitions) for row in first.target] == [1]


def test_members_that_give_up_nothing_for_long_are_reported_once(world, caplog):
    caplog.set_level("INFO")
    world.join("m1", "foo")
    world.join("m2", "foo")
    assert world.group().waiting(world.clock.monotonic_ms()) is None, "it does not know of it"
    kept = seen(world.beat("m1", 2))[1]
    world.clock.advance(4_000)
    waiting = world.group().waiting(world.clock.monotonic_ms())
    assert (waiting.phase, waiting.member_ids, waiting.left_ms) == ("revoke", ("m1",), REBALANCE_MS - 4_000)
    assert world.clock.wall_ms() - waiting.since_ms == 4_000
    assert "has waited" not in caplog.text
    world.beat("m2", 3)
    world.clock.advance(1_000)
    sentence = "group g has waited 5 s for c at 10.0.0.1 to give up partitions, for 55 s more at most"
    assert sentence in caplog.text
    world.clock.advance(10_000)
    assert caplog.text.count("has waited") == 1
    world.beat("m1", 2, owns=kept)
    assert world.group().waiting(world.clock.monotonic_ms()) is None


def test_a_later_rebalance_is_reported_by_its_own_time(world, caplog):
    caplog.set_level("INFO")
    world.join("m1", "foo")
    world.join("m2", "foo")
    kept = seen(world.beat("m1", 2))[1]
    world.beat("m1", 2, owns=kept)
    world.clock.advance(3_000)
    world.leave("m2")
    world.beat("m1", 3)
    world.join("m3", "foo")
    world.beat("m1", 4)
    world.clock.advance(2_000)
    assert world.group().waiting(world.clock.monotonic_ms()) is not None and "has waited" not in caplog.text
    world.clock.advance(3_000)
    assert "group g has waited 5 s" in caplog.text


def test_every_member_gives_up_everything_and_is_assigned_anew(world):
    world.join("m1", "foo")
    groups, group = world.coordinator.consumer_groups, world.group()
    groups.unassign(group)
    assert group.state_name == "Reconciling"
    assert seen(world.beat("m1", 2)) == (2, {})
    assert seen(world.beat("m1", 2)) == (2, None)
    assert seen(world.beat("m1", 2, owns={})) == (3, None)
    assert group.state_name == "Stable" and world.assigned("m1") == {}
    groups.rebalance(group)
    assert seen(world.beat("m1", 3)) == (4, {"foo": [0, 1]})
    world.restart()
    assert world.assigned("m1") == {"foo": [0, 1]}
