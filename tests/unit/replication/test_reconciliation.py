"""Which steps follow from the metadata of a topic, and from what this broker has of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import PartitionRecord, TopicRecord
from kafkalite.replication.reconciliation import (
    BecomeFollower,
    BecomeLeader,
    ChangeReplication,
    Configure,
    DropReplica,
    Followed,
    LocalTopic,
    RaiseLeaderEpoch,
    RemoveTopic,
    Resign,
    Role,
    StopFollowing,
    WriteLeaderEpoch,
    decide,
)

ME, OTHER = 1, 2
ID = uuid.uuid4()
MEMBER = Role(ME, may_lead=True)
FENCED = MEMBER._replace(may_lead=False)


def record(*leaders: int, epoch: int = 5, topic_id: uuid.UUID = ID, **config: str) -> TopicRecord:
    """A topic whose partitions are led by these."""
    states = {index: PartitionRecord((ME,), leader, epoch, (ME,), 0) for index, leader in enumerate(leaders)}
    return TopicRecord("t", topic_id, states, config)


def local(leader_epochs: Mapping[int, int], topic_id: uuid.UUID = ID, **overrides: str) -> LocalTopic:
    return LocalTopic(topic_id, overrides, leader_epochs)


def test_nothing_follows_from_what_is_so_already() -> None:
    assert decide(record(ME, OTHER), local({0: 5}), MEMBER) == []
    assert decide(None, None, MEMBER) == []


def test_a_broker_leads_the_partitions_that_it_was_elected_for() -> None:
    assert decide(record(ME, OTHER, ME), None, MEMBER) == [BecomeLeader(0, 5), BecomeLeader(2, 5)]
    assert decide(record(ME, ME), local({1: 5}), MEMBER) == [BecomeLeader(0, 5)]


def test_it_resigns_before_it_leads_another() -> None:
    assert decide(record(OTHER, NO_LEADER, ME), local({0: 5, 1: 5}), MEMBER) == [
        Resign(0),
        Resign(1),
        BecomeLeader(2, 5),
    ]


def test_a_partition_that_is_no_more_is_led_by_nobody() -> None:
    assert decide(record(ME), local({0: 5, 1: 5}), MEMBER) == [Resign(1)]


def test_a_fenced_broker_leads_nothing() -> None:
    assert decide(record(ME, ME), local({0: 5}), FENCED) == [Resign(0)]


def test_a_broker_keeps_the_partitions_of_which_it_is_a_replica() -> None:
    assert MEMBER.keeps(record(ME).partitions[0]) and not Role(OTHER, True).keeps(record(ME).partitions[0])


@pytest.mark.parametrize(("here", "effect"), [(4, RaiseLeaderEpoch(0, 5)), (6, WriteLeaderEpoch(0, 6))])
def test_an_epoch_never_goes_back_on_either_side(here: int, effect: object) -> None:
    assert decide(record(ME), local({0: here}), MEMBER) == [effect]


def test_an_epoch_is_written_after_all_that_holds_at_once() -> None:
    assert decide(record(ME, ME, OTHER), local({0: 6, 2: 5}), MEMBER) == [
        Resign(2),
        BecomeLeader(1, 5),
        WriteLeaderEpoch(0, 6),
    ]


def test_settings_hold_before_another_log_is_opened() -> None:
    assert decide(record(ME, ME, retention="1"), local({0: 5}, retention="2"), MEMBER) == [
        Configure({"retention": "1"}),
        BecomeLeader(1, 5),
    ]


@pytest.mark.parametrize("is_ordered", [True, False])
def test_only_the_logs_of_a_topic_whose_deletion_was_ordered_are_deleted(is_ordered: bool) -> None:
    assert decide(None, local({0: 5}), MEMBER, is_deletion_ordered=is_ordered) == [
        RemoveTopic(keeps_logs=not is_ordered)
    ]


def test_a_topic_of_the_same_name_is_another_one() -> None:
    assert decide(record(ME, topic_id=uuid.uuid4()), local({0: 9}, a="b"), MEMBER) == [
        RemoveTopic(keeps_logs=False),
        BecomeLeader(0, 5),
    ]


# Several replicas

REPLICATING = MEMBER._replace(replicates=True)


def replicated(*leaders: int, epoch: int = 5, replicas: tuple[int, ...] = (ME, OTHER, 3)) -> TopicRecord:
    states = {index: PartitionRecord(replicas, leader, epoch, replicas, 0) for index, leader in enumerate(leaders)}
    return TopicRecord("t", ID, states, {})


def led(*indexes: int, epoch: int = 5) -> LocalTopic:
    return LocalTopic(ID, {}, dict.fromkeys(indexes, epoch), indexes, {}, indexes)


def following(*indexes: int, epoch: int = 5, leader: int = OTHER) -> LocalTopic:
    return LocalTopic(ID, {}, {}, (), dict.fromkeys(indexes, Followed(epoch, leader)), indexes)


def test_a_broker_follows_the_leaders_of_its_other_replicas() -> None:
    assert decide(replicated(ME, OTHER, NO_LEADER), None, REPLICATING) == [
        BecomeLeader(0, 5),
        BecomeFollower(1, 5, OTHER),
    ]
    assert decide(replicated(OTHER), following(0), REPLICATING) == []
    assert decide(replicated(OTHER, replicas=(OTHER, 3)), None, REPLICATING) == []  # no replica here
    assert decide(replicated(OTHER), None, MEMBER) == []


@pytest.mark.parametrize(("leader", "epoch"), [(3, 6), (OTHER, 6)])
def test_a_follower_begins_anew_with_another_leader_or_epoch(leader: int, epoch: int) -> None:
    assert decide(replicated(leader, epoch=epoch), following(0), REPLICATING) == [
        StopFollowing(0),
        BecomeFollower(0, epoch, leader),
    ]


def test_a_follower_that_is_elected_leads_and_a_leader_that_is_not_follows() -> None:
    assert decide(replicated(ME, epoch=6), following(0), REPLICATING) == [StopFollowing(0), BecomeLeader(0, 6)]
    assert decide(replicated(OTHER, epoch=6), led(0), REPLICATING) == [Resign(0), BecomeFollower(0, 6, OTHER)]


def test_a_leader_of_several_replicas_begins_anew_under_another_epoch() -> None:
    assert decide(replicated(ME, epoch=6), led(0), REPLICATING) == [Resign(0), BecomeLeader(0, 6)]


def test_without_a_leader_or_a_registration_nobody_follows() -> None:
    assert decide(replicated(NO_LEADER), following(0), REPLICATING) == [StopFollowing(0)]
    assert decide(replicated(OTHER), following(0), REPLICATING._replace(may_lead=False)) == [StopFollowing(0)]


def test_a_new_life_takes_a_new_epoch_before_it_leads() -> None:
    role = REPLICATING._replace(former_epochs={("t", 0): 5})
    assert decide(replicated(ME), None, role) == [WriteLeaderEpoch(0, 6)]
    assert decide(replicated(ME, epoch=6), None, role) == [BecomeLeader(0, 6)]
    assert decide(record(ME), None, role) == [BecomeLeader(0, 5)]  # nobody else has records of a single replica


def test_a_reassigned_replica_is_deleted_when_it_has_no_role_any_more() -> None:
    elsewhere = replicated(OTHER, epoch=6, replicas=(OTHER, 3))
    assert decide(elsewhere, following(0), REPLICATING) == [StopFollowing(0), DropReplica(0)]
    assert decide(elsewhere, led(0), REPLICATING) == [Resign(0), DropReplica(0)]
    assert decide(elsewhere, following(0), MEMBER) == [StopFollowing(0)]


def test_a_reassignment_adds_replicas_to_a_single_one_and_ends_with_one() -> None:
    single = LocalTopic(ID, {}, {0: 5}, (), {}, (0,))
    assert decide(replicated(ME), single, REPLICATING) == [ChangeReplication(0)]
    assert decide(record(ME), led(0), REPLICATING) == [ChangeReplication(0)]
    shrinking = PartitionRecord((ME,), ME, 5, (ME, OTHER), 0)  # the other one may be in sync still
    assert decide(TopicRecord("t", ID, {0: shrinking}, {}), led(0), REPLICATING) == []
