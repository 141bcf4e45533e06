"""Heartbeats of a group of Kafka Streams, step by step as Kafka 4.3 answers them."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.group import GroupSummary, Identity
from kafkalite.coordinator.group.streams.configured_topology import Status
from kafkalite.coordinator.group.streams.streams_member import Endpoint, StreamsMemberState
from kafkalite.coordinator.group.streams.topology import InternalTopic, Subtopology, Topology
from tests.support.consumer_group_world import Topics
from tests.support.streams_group_world import (
    DELAY_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    STATEFUL,
    STATELESS,
    StreamsWorld,
)


@pytest.fixture
def world():
    return StreamsWorld(Topics(foo=2)).load()


def seen(answer):
    """(epoch, active tasks or None) of an answer without an error."""
    assert answer.error == ErrorCode.NONE, answer
    active = None if answer.tasks is None else {key: sorted(some) for key, some in answer.tasks.active.items()}
    return answer.member_epoch, active


def statuses(answer):
    return [each.status for each in answer.statuses]


# --- members and tasks


def test_two_members_share_tasks_without_two_owners(world):
    assert seen(world.join("m1")) == (2, {"0": [0, 1]})
    assert seen(world.join("m2")) == (3, {})
    epoch, kept = seen(world.beat("m1", 2))
    assert epoch == 2 and len(kept["0"]) == 1
    assert seen(world.beat("m1", 2)) == (2, None)  # a sign of life is no revocation
    assert seen(world.beat("m2", 3)) == (3, None)
    assert world.group().state_name == "Reconciling"
    assert seen(world.beat("m1", 2, owns=kept)) == (3, None)
    epoch, gained = seen(world.beat("m2", 3))
    assert epoch == 3 and sorted(kept["0"] + gained["0"]) == [0, 1]
    assert world.group().state_name == "Stable"


def test_a_join_writes_the_records_of_kafka_in_their_order(world):
    world.join("m1")
    assert world.kinds() == [19, 23, 17, 21, 20, 22]
    since = len(world.log)
    world.leave("m1")
    assert world.kinds(since) == [-22, -21, -19, 17]
    assert world.group().state_name == "Empty"


def test_a_heartbeat_without_news_writes_nothing(world):
    world.join("m1")
    since = len(world.log)
    answer = world.beat("m1", 2)
    assert seen(answer) == (2, None) and answer.heartbeat_interval_ms == HEARTBEAT_MS and answer.member_id == "m1"
    assert seen(world.beat("m1", 2, owns={"0": [0, 1]})) == (2, None)
    assert world.kinds(since) == []


def test_a_member_that_waits_is_to_ask_again_soon(world):
    world.join("m1")
    assert world.join("m2").heartbeat_interval_ms == HEARTBEAT_MS // 10
    assert world.beat("m2", 3).heartbeat_interval_ms == HEARTBEAT_MS // 10
    told = world.beat("m1", 2)
    assert told.heartbeat_interval_ms == HEARTBEAT_MS
    world.beat("m1", 2, owns=seen(told)[1])
    assert world.beat("m2", 3).heartbeat_interval_ms == world.beat("m2", 3).heartbeat_interval_ms == HEARTBEAT_MS
    world.topics.delete("foo")  # a client fails that sees its topic missing for two intervals
    assert world.join("m3").heartbeat_interval_ms == HEARTBEAT_MS


def test_tasks_are_sent_again_to_a_member_that_has_not_heard(world):
    """Kafka 4.3 does not, and the member stays without them until the next assignment."""
    world.join("m1")
    world.join("m2")
    _, kept = seen(world.beat("m1", 2))
    world.beat("m1", 2, owns=kept)
    gained = seen(world.beat("m2", 3))  # the answer that gets lost
    assert gained[1] is not None
    assert seen(world.beat("m2", 3)) == (3, None)
    assert seen(world.beat("m2", 3, owns={})) == gained
    assert seen(world.beat("m2", 3, owns=gained[1])) == (3, None)


def test_a_member_may_begin_anew(world):
    world.join("m1")
    assert seen(world.join("m1")) == (2, {"0": [0, 1]})
    assert world.kinds()[6:] == []


def test_the_first_assignment_waits_for_more_members(world):
    world.streams_config = world.streams_config._replace(initial_rebalance_delay_ms=DELAY_MS)
    first = world.join("m1")
    assert seen(first) == (1, {})
    assert first.statuses == (
        (Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."),
    )
    assert world.group().state_name == "Assigning"
    world.clock.advance(DELAY_MS - 1)
    assert statuses(world.join("m2")) == [Status.ASSIGNMENT_DELAYED]
    world.clock.advance(1)
    assert world.kinds()[-3:] == [21, 21, 20]
    gained = [seen(world.beat(each, 1))[1] for each in ("m1", "m2")]
    assert sorted(some for each in gained for some in each["0"]) == [0, 1]
    assert world.group().state_name == "Stable"


def test_the_end_of_the_delay_finds_an_empty_group(world):
    world.streams_config = world.streams_config._replace(initial_rebalance_delay_ms=DELAY_MS)
    world.join("m1")
    world.leave("m1")
    since = len(world.log)
    world.clock.advance(DELAY_MS)
    assert world.kinds(since) == []
    assert statuses(world.join("m2")) == [Status.ASSIGNMENT_DELAYED]  # it begins again


def test_an_assignment_follows_another_after_the_interval(world):
    world.streams_config = world.streams_config._replace(assignment_interval_ms=1_000)
    world.join("m1")
    late = world.join("m2")
    assert late.statuses == (
        (Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."),
    )
    assert seen(late) == (2, {})
    world.clock.advance(1_000)
    assert seen(world.beat("m1", 2))[1] is not None
    assert world.group().tables.target_epoch == 3
    world.clock.step_wall(-1_800_000)  # the last one was made by a coordinator with another clock
    assert not any(status is Status.ASSIGNMENT_DELAYED for status, _ in world.join("m3").statuses)


def test_a_process_has_a_task_once(world):
    """Its standby copy becomes active only when it is given up."""
    world = StreamsWorld(Topics(foo=1, **{"foo-changelog": 1}), STATEFUL, num_standby_replicas=1).load()
    world.join("m1")
    joined = world.join("m2")
    assert joined.tasks.standby == {"0": frozenset({0})} and joined.tasks.active == {}
    world.leave("m1")
    answer = world.beat("m2", 3)  # the task is to be active here
    assert answer.tasks.is_empty and answer.member_epoch == 3
    assert world.member("m2").current.state is StreamsMemberState.UNREVOKED
    assert seen(world.beat("m2", 3, owns={})) == (4, None)
    assert world.member("m2").current.state is StreamsMemberState.UNRELEASED
    assert seen(world.beat("m2", 4)) == (4, {"0": [0]})


def test_settings_of_the_assignment_lead_to_another(world):
    world = StreamsWorld(Topics(foo=1, **{"foo-changelog": 1}), STATEFUL).load()
    world.join("m1")
    world.join("m2")
    world.streams_config = world.streams_config._replace(num_standby_replicas=1)
    answer = world.beat("m2", 3)
    assert answer.tasks.standby == {"0": frozenset({0})}
    assert world.group().tables.metadata.assignment_configs == (("num.standby.replicas", "1"),)


# --- topics


def test_missing_source_topics_leave_the_group_without_tasks():
    world = StreamsWorld(Topics(other=1)).load()
    answer = world.join("m1")
    assert seen(answer) == (2, {})
    assert answer.statuses == ((Status.MISSING_SOURCE_TOPICS, "Source topics foo are missing."),)
    assert world.group().state_name == "NotReady"
    assert world.coordinator.list_groups({"notready"})[1] == []  # as in Kafka
    assert world.coordinator.list_groups({"not_ready"})[1] == [GroupSummary.of(world.group())]
    world.topics.create("foo", 2)
    assert seen(world.beat("m1", 2)) == (3, {"0": [0, 1]})
    assert world.group().state_name == "Stable"


def test_missing_internal_topics_are_named_until_they_are_there():
    world = StreamsWorld(Topics(foo=2), STATEFUL).load()
    answer = world.join("m1")
    assert seen(answer) == (2, {})
    assert answer.statuses == ((Status.MISSING_INTERNAL_TOPICS, "Internal topics are missing: foo-changelog"),)
    assert answer.missing_topics == (InternalTopic("foo-changelog", 2),)
    assert statuses(world.beat("m1", 2)) == [Status.MISSING_INTERNAL_TOPICS]
    world.topics.create("foo-changelog", 2)
    answer = world.beat("m1", 2)
    assert seen(answer) == (3, {"0": [0, 1]}) and not answer.statuses and not answer.missing_topics


def test_a_topic_that_goes_takes_the_tasks_along(world):
    world.join("m1")
    world.topics.delete("foo")
    assert seen(world.beat("m1", 2)) == (2, {})
    assert world.group().state_name == "NotReady"
    assert seen(world.beat("m1", 2, owns={})) == (3, None)


def test_a_topic_that_grows_brings_tasks(world):
    world.join("m1")
    world.topics.grow("foo", 3)
    assert seen(world.beat("m1", 2)) == (3, {"0": [0, 1, 2]})


def test_a_changed_topic_of_others_is_no_news(world):
    world.join("m1")
    since = len(world.log)
    world.topics.create("other", 3)
    assert seen(world.beat("m1", 2)) == (2, None)
    assert world.kinds(since) == []


def test_an_invalid_topology_is_refused():
    topology = Topology(0, (Subtopology("0", ("foo",), repartition_source_topics=(InternalTopic("r"),)),))
    world = StreamsWorld(Topics(foo=2), topology).load()
    assert world.join("m1").error == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert world.group() is None and not world.log


def test_another_topology_waits_for_its_group_to_go(world):
    world.join("m1")
    other = Topology(1, (Subtopology("0", ("bar",)),))
    answer = world.join("m2", topology=other)
    assert (answer.error, answer.message) == (ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    assert list(world.group().tables.members) == ["m1"]


def test_a_stale_topology_is_said():
    world = StreamsWorld(Topics(foo=2), STATELESS._replace(epoch=3)).load()
    world.join("m1")
    answer = world.join("m2", topology=Topology(1, (Subtopology("0", ("bar",)),)))
    detail = "The member's topology epoch 1 is behind the group's topology epoch 3."
    assert answer.statuses == ((Status.STALE_TOPOLOGY, detail),)
    assert statuses(world.beat("m2", 3)) == [Status.STALE_TOPOLOGY]


# --- fences


def test_epochs_are_checked(world):
    world.join("m1")
    world.join("m2")
    _, kept = seen(world.beat("m1", 2))
    assert seen(world.beat("m1", 2, owns=kept)) == (3, None)
    end = "than the one known by the group coordinator (3). The member must abandon all its partitions and rejoin."
    greater = world.beat("m1", 4)
    assert greater.error == ErrorCode.FENCED_MEMBER_EPOCH
    assert greater.message == f"The streams group member has a greater member epoch (4) {end}"
    smaller = world.beat("m1", 2, owns={"0": [0, 1]})
    assert smaller.error == ErrorCode.FENCED_MEMBER_EPOCH
    assert smaller.message == f"The streams group member has a smaller member epoch (2) {end}"
    assert world.beat("m1", 2).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert seen(world.beat("m1", 2, owns=kept)) == (3, None)  # the answer got lost
    unknown = world.beat("m3", 3)
    assert (unknown.error, unknown.message) == (ErrorCode.UNKNOWN_MEMBER_ID, "Member m3 is not a member of group g.")


def test_tasks_that_do_not_exist_are_refused(world):
    world.join("m1")
    assert world.beat("m1", 2, owns={"7": [0]}).message == "Subtopology 7 does not exist in the topology."
    answer = world.beat("m1", 2, owns={"0": [2]})
    assert answer.error == ErrorCode.INVALID_REQUEST
    assert answer.message == "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"


def test_a_full_group_takes_no_member_back_either(world):
    world.streams_config = world.streams_config._replace(max_size=1)
    world.join("m1")
    for member in ("m1", "m2"):
        answer = world.join(member)
        assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert answer.message == "The streams group has reached its maximum capacity of 1 members."
    assert seen(world.beat("m1", 2)) == (2, None)


JOIN = {"rebalance_timeout_ms": 1, "topology": STATELESS, "owns": {}}
REFUSALS = [
    ({"member": "", "epoch": 0}, "MemberId can't be empty."),
    ({"member": "m", "epoch": 0, "group": " "}, "GroupId can't be empty."),
    ({"member": "m", "epoch": 0, "rack_id": ""}, "RackId can't be empty."),
    ({"member": "m", "epoch": 0}, "RebalanceTimeoutMs must be provided in first request."),
    ({"member": "m", "epoch": 0, "rebalance_timeout_ms": 1}, "ActiveTasks must be empty when (re-)joining."),
    (
        {"member": "m", "epoch": 0, "rebalance_timeout_ms": 1, "owns": {"0": [1]}},
        "ActiveTasks must be empty when (re-)joining.",
    ),
    (
        {"member": "m", "epoch": 0, "rebalance_timeout_ms": 1, "owns": ({}, {"0": [1]}, {})},
        "StandbyTasks must be empty when (re-)joining.",
    ),
    (
        {"member": "m", "epoch": 0, "rebalance_timeout_ms": 1, "owns": {}},
        "Topology must be non-null when (re-)joining.",
    ),
    ({"member": "m", "epoch": -2}, "InstanceId can't be null."),
    ({"member": "m", "epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
    ({"member": "m", "epoch": 1, "active": {}}, "If one task-type is non-null, all must be non-null."),
    ({"member": "m", "epoch": 1, "topology": STATELESS}, "Topology can only be provided when (re-)joining."),
    ({"member": "", "epoch": 0, "instance_id": "i"}, "Static membership is not yet supported."),
    ({"member": "m", "epoch": 1, "has_offsets": True}, "TaskOffsets are not supported yet."),
    ({"member": "m", "epoch": 1, "has_end_offsets": True}, "TaskEndOffsets are not supported yet."),
    ({"member": "m", "epoch": 1, "warmup": {"0": frozenset({1})}}, "WarmupTasks are not supported yet."),
]


@pytest.mark.parametrize(("request_", "message"), REFUSALS)
def test_requests_that_no_group_accepts(world, request_, message):
    fields = dict(request_)
    answer = world.beat(fields.pop("member"), fields.pop("epoch"), **fields)
    assert (answer.error, answer.message) == (ErrorCode.INVALID_REQUEST, message)


def test_topologies_that_no_group_accepts(world):
    regex = Topology(0, (Subtopology("0", (), ("fo.*",)),))
    answer = world.join("m1", topology=regex)
    assert answer.error == ErrorCode.INVALID_REQUEST
    assert answer.message == "Regular expressions for source topics are not supported yet."
    changelog = Topology(0, (Subtopology("0", ("foo",), changelog_topics=(InternalTopic("c", 3),)),))
    answer = world.join("m1", topology=changelog)
    assert answer.error == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert answer.message == "Changelog topic c must have an undefined partition count, but it is set to 3."


# --- members that are gone


def test_leaving_bumps_the_epoch_and_the_next_heartbeat_assigns(world):
    world.join("m1")
    world.join("m2")
    left = world.leave("m2")
    assert (left.error, left.member_id, left.member_epoch, left.heartbeat_interval_ms) == (ErrorCode.NONE, "m2", -1, 0)
    assert left.tasks is None and left.statuses == ()
    assert world.group().tables.group_epoch == 4 and world.group().tables.target_epoch == 3
    assert seen(world.beat("m1", 2)) == (4, None)
    assert world.assigned("m1") == {"0": [0, 1]}
    assert world.leave("m2").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_fenced(world):
    world.join("m1")
    world.clock.advance(SESSION_MS - 1)
    assert seen(world.beat("m1", 2)) == (2, None)
    world.clock.advance(SESSION_MS - 1)
    assert list(world.group().tables.members) == ["m1"]
    world.clock.advance(1)
    assert world.group().state_name == "Empty"
    assert world.beat("m1", 2).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_up_nothing_is_fenced(world):
    world.join("m1", rebalance_timeout_ms=10_000)
    world.join("m2")
    world.beat("m1", 2)
    world.clock.advance(9_999)
    assert "m1" in world.group().tables.members
    world.clock.advance(1)
    assert list(world.group().tables.members) == ["m2"]
    assert seen(world.beat("m2", 3)) == (4, {"0": [0, 1]})


def test_the_application_ends_for_all(world):
    world.join("m1")
    world.join("m2")
    world.beat("m1", 2, shutdown_application=True)
    detail = "Streams group member m1 encountered a fatal error and requested a shutdown for the entire application."
    assert world.beat("m2", 3).statuses == ((Status.SHUTDOWN_APPLICATION, detail),)
    world.leave("m1")
    assert world.beat("m2", 3).statuses == ((Status.SHUTDOWN_APPLICATION, detail),)
    world.leave("m2")
    assert world.join("m3").statuses == ()


def test_an_application_still_ends_if_the_log_refuses_to_let_its_last_member_go(world):
    world.join("m1")
    world.beat("m1", 2, shutdown_application=True)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.leave("m1")
    world.refuses = ErrorCode.NONE
    assert statuses(world.beat("m1", 2)) == [Status.SHUTDOWN_APPLICATION]
    world.leave("m1")
    assert world.join("m2").statuses == ()


def test_a_leaving_member_may_end_the_application(world):
    world.join("m1")
    world.join("m2")
    world.leave("m1", shutdown_application=True)
    assert statuses(world.beat("m2", 3)) == [Status.SHUTDOWN_APPLICATION]


# --- endpoints


def test_endpoints_are_sent_to_those_that_know_others(world):
    one, two = Endpoint("one", 1), Endpoint("two", 2)
    first = world.join("m1", user_endpoint=one)
    assert first.endpoint_epoch == 0 and first.endpoints == [(one, [("foo", [0, 1])], [])]
    assert world.beat("m1", 2).endpoints is None
    second = world.join("m2", user_endpoint=two)
    assert second.endpoint_epoch == 1
    assert second.endpoints == [(one, [("foo", [0, 1])], []), (two, [], [])]
    answer = world.beat("m1", 2)
    assert answer.endpoint_epoch == 2 and [len(each.active[0][1]) for each in answer.endpoints[:1]] == [1]
    assert world.beat("m1", 2, knows=2).endpoints is None


def test_members_without_endpoints_change_no_map(world):
    world.join("m1")
    assert world.join("m2").endpoints is None
    assert world.beat("m1", 2, knows=5).endpoints == []


# --- the log


def test_a_refused_append_is_undone(world):
    world.join("m1")
    before = world.group().tables.metadata
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.join("m2").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group().tables.metadata == before and list(world.group().tables.members) == ["m1"]
    world.refuses = ErrorCode.NONE
    assert seen(world.join("m2")) == (3, {})


def test_a_group_that_could_not_be_stored_is_none(world):
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.join("m1").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group() is None
    world.refuses = ErrorCode.NONE
    assert seen(world.join("m1")) == (2, {"0": [0, 1]})


def test_an_expired_member_stays_until_the_log_takes_its_removal(world):
    world.join("m1")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(SESSION_MS)
    assert list(world.group().tables.members) == ["m1"]
    world.refuses = ErrorCode.NONE
    world.clock.advance(1_000)
    assert world.group().state_name == "Empty"


def test_a_member_whose_leaving_the_log_refuses_is_expelled_after_its_session(world):
    world.join("m1")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.leave("m1").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.refuses = ErrorCode.NONE
    world.clock.advance(SESSION_MS - 1)
    assert list(world.group().tables.members) == ["m1"]
    world.clock.advance(1)
    assert world.group().state_name == "Empty"


def test_members_that_expire_together_stay_together_if_the_log_refuses(world):
    for member in ("m1", "m2", "m3"):
        world.join(member)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(SESSION_MS)
    assert world.group().tables.members.keys() == {"m1", "m2", "m3"}
    world.refuses = ErrorCode.NONE
    world.clock.advance(500)
    assert world.group().state_name == "Empty"
    world.restart()
    assert world.group().state_name == "Empty"


def test_answers_wait_for_the_log(world):
    world.join("m1")
    world.dawdles = True
    joined, beat = world.send("m2", 0, **world.joining("m2")), world.send("m1", 2)
    assert joined.result is None and beat.result is None
    world.catch_up()
    assert seen(joined.result) == (3, {})
    assert seen(beat.result)[0] == 2


def test_a_restart_keeps_the_group(world):
    world.join("m1", user_endpoint=Endpoint("one", 1), client_tags=(("a", "b"),))
    world.join("m2")
    world.beat("m1", 2)
    members = dict(world.group().tables.members)
    world.restart(compacted=True)
    tables = world.group().tables
    assert tables.members == members and tables.topology == STATELESS and tables.group_epoch == 3
    assert world.group().state_name == "Reconciling"
    kept = world.assigned("m1")
    assert seen(world.beat("m1", 2, owns=kept)) == (3, None)
    world.clock.advance(SESSION_MS)
    assert world.group().state_name == "Empty"


# --- other kinds of groups


def test_an_empty_classic_group_becomes_one_of_streams(world):
    joined = world.classic_join("", known=False)
    world.clock.advance(1)
    member = joined.result.member_id
    assert world.join("m1").error == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.join("m1").message == "Group g is not a streams group."
    world.classic_leave(member)
    since = len(world.log)
    assert seen(world.join("m1")) == (2, {"0": [0, 1]})
    assert world.kinds(since) == [-2, 19, 23, 17, 21, 20, 22]
    world.restart()
    assert world.group().kind == "streams"


def test_an_empty_group_becomes_classic_at_a_join(world):
    world.join("m1")
    busy = world.classic_join("")
    assert busy.result.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and busy.result.member_id == ""
    world.leave("m1")
    since = len(world.log)
    world.classic_join("")
    assert world.group().kind == "classic"
    assert world.kinds(since)[:3] == [-20, -17, -23]


def test_other_requests_of_classic_members_find_no_member(world):
    world.join("m1")
    assert world.classic_sync("m1", 2).result.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.classic_beat("m1", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.classic_leave("m1") == (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID])


def test_groups_that_are_not_there(world):
    gone = world.beat("m1", 1)
    assert (gone.error, gone.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found.")
    assert world.leave("m1").message == "Group g not found."


# --- offsets


def test_commits_are_checked_by_epoch_and_task(world):
    world.join("m1")
    world.join("m2")
    _, kept = seen(world.beat("m1", 2))
    [mine] = kept["0"]
    [other] = {0, 1} - {mine}
    world.beat("m1", 2, owns=kept)

    def commit(epoch, index=mine, member="m1", topic="foo", knows=True):
        return world.group().validate_commit(Identity(member, None, epoch, knows), [(topic, index)], 0)[0]

    assert commit(3) == commit(3, other) == ErrorCode.NONE  # of its epoch: unchecked
    assert commit(2) == ErrorCode.NONE  # it has had the task since epoch 2
    assert commit(2, other) == commit(1) == commit(4) == commit(2, topic="bar") == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(3, member="m3") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(3, knows=False) == ErrorCode.UNSUPPORTED_VERSION
    in_transaction = world.group().validate_transactional_commit
    assert in_transaction(Identity("", None, -1), [("foo", 0)]) == ErrorCode.NONE
    assert in_transaction(Identity("m1", None, 3), [("foo", 0)]) == ErrorCode.NONE
    assert in_transaction(Identity("m1", None, 4), [("foo", 0)]) == ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(Identity("m3", None, 3), [("foo", 0)]) == ErrorCode.UNKNOWN_MEMBER_ID
    fetch = world.group().validate_fetch
    assert fetch(None, -1) == fetch("m1", 3) == ErrorCode.NONE
    assert fetch("m1", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("m3", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_commits_while_the_group_is_empty(world):
    admin = Identity("", None, -1)
    world.join("m1")
    assert world.group().validate_commit(admin, [("foo", 0)], 0)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group().is_subscribed_to_topic("foo") and not world.group().is_subscribed_to_topic("bar")
    assert world.group().offset_expiration_condition().subscribed_topics == {"foo"}
    world.leave("m1")
    assert world.group().validate_commit(admin, [("foo", 0)], 0)[0] == ErrorCode.NONE
    assert not world.group().is_subscribed_to_topic("foo")
    assert world.group().offset_expiration_condition().subscribed_topics == frozenset()


def test_a_group_is_deleted_when_it_is_empty(world):
    world.join("m1")
    assert asyncio.run(world.coordinator.delete_groups(["g"])) == {"g": ErrorCode.NON_EMPTY_GROUP}
    world.leave("m1")
    since = len(world.log)
    assert asyncio.run(world.coordinator.delete_groups(["g"])) == {"g": ErrorCode.NONE}
    assert world.kinds(since) == [-20, -17, -23] and world.group() is None
    world.restart()
    assert world.group() is None


def test_an_empty_group_without_offsets_expires(world):
    world.join("m1")
    world.coordinator.offsets.expire()
    assert world.group() is not None
    world.leave("m1")
    world.coordinator.offsets.expire()
    assert world.group() is None


def test_rebalances_are_counted(world):
    totals = world.coordinator.store._environment.totals
    world.join("m1")
    world.join("m2")
    world.leave("m2")
    assert (totals.streams_rebalances, totals.rebalances) == (2, 0)
