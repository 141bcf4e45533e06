"""The refusals of elections and reassignments, in Kafka's codes."""

from __future__ import annotations

import pytest

from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import Election, PartitionRecord
from kafkalite.zk.controller.admin_checks import election_refusal, no_candidate, reassignment_refusal

LIVE = {1: 10, 2: 20}


def led_by(leader: int, *replicas: int) -> PartitionRecord:
    return PartitionRecord(replicas, leader, 5, replicas, 7)


@pytest.mark.parametrize(
    ("partition", "preferred", "unclean"),
    [
        (None, 3, 3),
        (led_by(1, 1, 2), 84, 84),
        (led_by(2, 1, 2), None, 84),
        (led_by(NO_LEADER, 1, 2), None, None),
        (led_by(3, 3, 2), 84, None),  # the preferred leader is dead, but it is the preferred one
        (led_by(3, 1, 3), None, None),
    ],
)
def test_an_election_is_for_partitions_whose_leader_is_not_right(
    partition: PartitionRecord | None, preferred: int | None, unclean: int | None
) -> None:
    for election, code in ((Election.PREFERRED, preferred), (Election.UNCLEAN, unclean)):
        refusal = election_refusal(partition, election, LIVE)
        assert (None if refusal is None else refusal.code) == code
        if partition is not None:
            deleted = election_refusal(partition, election, LIVE, is_being_deleted=True)
            assert deleted is not None and deleted.code == 17
    assert no_candidate(("t", 0), Election.PREFERRED).code == 80
    assert no_candidate(("t", 0), Election.UNCLEAN).code == 83


@pytest.mark.parametrize(
    ("replicas", "target", "code"),
    [
        (None, (1,), 3),
        (None, None, 3),
        ((1,), None, 85),
        ((1,), (1,), None),
        ((1,), (2, 1), None),
        ((1,), (), 39),
        ((1,), (1, 1), 39),
        ((1,), (-1,), 39),
        ((1,), (1, 3), 39),
        ((3, 1), (1, 3), None),  # one that is there already may be away
    ],
)
def test_a_target_names_live_brokers_once_each(
    replicas: tuple[int, ...] | None, target: tuple[int, ...] | None, code: int | None
) -> None:
    refusal = reassignment_refusal(replicas, target, LIVE, is_reassigned=False)
    assert (None if refusal is None else refusal.code) == code


def test_what_is_under_way_can_be_cancelled() -> None:
    assert reassignment_refusal((1, 2), None, LIVE, is_reassigned=True) is None


def test_a_long_target_makes_no_long_message() -> None:
    refusal = reassignment_refusal((1,), range(5, 100_000), LIVE, is_reassigned=False)
    assert refusal is not None and len(str(refusal)) < 200
