"""Both sets of rules in the form of state nodes."""

from __future__ import annotations

import pytest

from kafkalite.controller.elections import IN_SYNC_REPLICAS, ONE_REPLICA, Brokers, chosen
from kafkalite.controller.leader_election import RECOVERED, RECOVERING, LeaderAndIsr
from kafkalite.metadata import replica_assignment

AT = 100  # the transaction that wrote the state
LIVE = Brokers({1: 50, 2: 60, 3: 70})
REPLICAS = (1, 2, 3)


@pytest.mark.parametrize("replicates", [False, True])
def test_the_switch_chooses(monkeypatch: pytest.MonkeyPatch, replicates: bool) -> None:
    monkeypatch.setattr(replica_assignment, "REPLICATES", replicates)
    assert chosen() is (IN_SYNC_REPLICAS if replicates else ONE_REPLICA)
    assert chosen().moves_replicas is replicates
    assert (replica_assignment.replication_factor_max() > 1) is replicates


def test_members_keep_their_places_and_eligible_ones_are_written() -> None:
    before = LeaderAndIsr(1, 5, (3, 1, 2), RECOVERING)
    assert IN_SYNC_REPLICAS.next(REPLICAS, before, AT, Brokers({2: 50, 3: 60}), False, 2) == LeaderAndIsr(
        2, 6, (3, 2), RECOVERING
    )
    after = IN_SYNC_REPLICAS.next(REPLICAS, before, AT, Brokers({2: 50, 3: 60}), False, 9)
    assert after == LeaderAndIsr(2, 6, (3, 2), RECOVERING, (1,))
    assert IN_SYNC_REPLICAS.next(REPLICAS, after, AT, Brokers({1: 50}), False, 9) == LeaderAndIsr(
        1, 7, (1,), RECOVERING, (3, 2)
    )


def test_only_who_was_on_neither_list_has_to_recover() -> None:
    alone = LeaderAndIsr(1, 5, (1,))
    assert IN_SYNC_REPLICAS.next(REPLICAS, alone, AT, Brokers({3: 60}), True, 1) == LeaderAndIsr(3, 6, (3,), RECOVERING)
    assert IN_SYNC_REPLICAS.next(REPLICAS, alone, AT, Brokers({3: 60}), False, 1) == LeaderAndIsr(-1, 6, (1,))
    assert IN_SYNC_REPLICAS.next(REPLICAS, alone, AT, LIVE, True, 1) is None


def test_the_preferred_replica_leads_and_nothing_else_changes() -> None:
    assert IN_SYNC_REPLICAS.preferred((2, 1), LeaderAndIsr(1, 5, (1, 2)), AT, LIVE, 1) == LeaderAndIsr(2, 6, (1, 2))
    for replicas, before in (((1, 2), (1, 2)), ((3, 1, 2), (1, 2)), ((3, 1, 2), (1, 2, 9))):
        assert IN_SYNC_REPLICAS.preferred(replicas, LeaderAndIsr(1, 5, before), AT, LIVE, 1) is None


def test_a_new_partition_is_in_sync_where_it_can_be() -> None:
    assert IN_SYNC_REPLICAS.initial((3, 9, 1), LIVE, 2) == LeaderAndIsr(3, 2, (3, 1), RECOVERED)
    assert ONE_REPLICA.initial((3, 9, 1), LIVE, 2) == LeaderAndIsr(3, 2, (3,))
    assert IN_SYNC_REPLICAS.initial((9,), LIVE, 2) is None


def test_with_one_replica_the_leader_is_in_sync_alone() -> None:
    before = LeaderAndIsr(1, 5, (3, 1, 2), RECOVERING, (4,))
    assert ONE_REPLICA.next(REPLICAS, before, AT, Brokers({2: 50, 3: 60}), False, 3) == LeaderAndIsr(2, 6, (2,))
    assert ONE_REPLICA.preferred((2, 1), LeaderAndIsr(1, 5, (1, 2)), AT, LIVE, 1) == LeaderAndIsr(2, 6, (2,))


def test_brokers_that_stop_or_vouch_count_as_such() -> None:
    before = LeaderAndIsr(1, 5, (1, 2))
    stopping = LIVE._replace(stopping=frozenset({1}))
    assert IN_SYNC_REPLICAS.next(REPLICAS, before, AT, stopping, False, 2) == LeaderAndIsr(2, 6, (2,), elr=(1,))
    assert IN_SYNC_REPLICAS.initial(REPLICAS, stopping, 0) == LeaderAndIsr(2, 0, (2, 3))
    assert IN_SYNC_REPLICAS.preferred((1, 2), LeaderAndIsr(2, 5, (2, 1)), AT, stopping, 1) is None
    returned = Brokers({2: 120})
    assert IN_SYNC_REPLICAS.next(REPLICAS, before, AT, returned, False, 1) == LeaderAndIsr(-1, 6, (1,))
    vouching = returned._replace(intact=frozenset({2}))
    assert IN_SYNC_REPLICAS.next(REPLICAS, before, AT, vouching, False, 1) == LeaderAndIsr(2, 6, (2,))
    assert ONE_REPLICA.next(REPLICAS, LeaderAndIsr(1, 5, (1,)), AT, stopping, False, 1) is None
