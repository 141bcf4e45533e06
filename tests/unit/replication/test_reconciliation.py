"""Which steps follow from the metadata of a topic, and from what this broker has of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from kafkalite.metadata.cluster_metadata import NO_LEADER, PartitionRecord, TopicRecord
from kafkalite.replication.reconciliation import (
    BecomeLeader,
    Configure,
    LocalTopic,
    RaiseLeaderEpoch,
    RemoveTopic,
    Resign,
    Role,
    WriteLeaderEpoch,
    decide,
)

ME, OTHER = 1, 2
ID = uuid.uuid4()
MEMBER = Role(ME, is_alone=False, may_lead=True)
FENCED = MEMBER._replace(may_lead=False)
ALONE = Role(ME, is_alone=True, may_lead=False)


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


def test_a_broker_by_itself_leads_everything_registered_or_not() -> None:
    assert decide(record(ME, OTHER), None, ALONE) == [BecomeLeader(0, 5), BecomeLeader(1, 5)]
    assert ALONE.keeps(record(ME).partitions[0]) and not Role(OTHER, False, True).keeps(record(ME).partitions[0])


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
