"""Elections in the form of state nodes."""

from __future__ import annotations

from kafkalite.controller.elections import initial_leader, next_leader, preferred_leader
from kafkalite.controller.leader_and_isr import Brokers, LeaderAndIsr
from kafkalite.zk.znodes.znode_data import RECOVERED, RECOVERING

AT = 100  # the transaction that wrote the state
LIVE = Brokers({1: 50, 2: 60, 3: 70})
REPLICAS = (1, 2, 3)


def test_members_keep_their_places_and_eligible_ones_are_written() -> None:
    before = LeaderAndIsr(1, 5, (3, 1, 2), RECOVERING)
    assert next_leader(REPLICAS, before, AT, Brokers({2: 50, 3: 60}), False, 2) == LeaderAndIsr(
        2, 6, (3, 2), RECOVERING
    )
    after = next_leader(REPLICAS, before, AT, Brokers({2: 50, 3: 60}), False, 9)
    assert after == LeaderAndIsr(2, 6, (3, 2), RECOVERING, (1,))
    assert next_leader(REPLICAS, after, AT, Brokers({1: 50}), False, 9) == LeaderAndIsr(1, 7, (1,), RECOVERING, (3, 2))


def test_only_who_was_on_neither_list_has_to_recover() -> None:
    alone = LeaderAndIsr(1, 5, (1,))
    assert next_leader(REPLICAS, alone, AT, Brokers({3: 60}), True, 1) == LeaderAndIsr(3, 6, (3,), RECOVERING)
    assert next_leader(REPLICAS, alone, AT, Brokers({3: 60}), False, 1) == LeaderAndIsr(-1, 6, (1,))
    assert next_leader(REPLICAS, alone, AT, LIVE, True, 1) is None


def test_the_preferred_replica_leads_and_nothing_else_changes() -> None:
    assert preferred_leader((2, 1), LeaderAndIsr(1, 5, (1, 2)), AT, LIVE, 1) == LeaderAndIsr(2, 6, (1, 2))
    for replicas, before in (((1, 2), (1, 2)), ((3, 1, 2), (1, 2)), ((3, 1, 2), (1, 2, 9))):
        assert preferred_leader(replicas, LeaderAndIsr(1, 5, before), AT, LIVE, 1) is None


def test_a_new_partition_is_in_sync_where_it_can_be() -> None:
    assert initial_leader((3, 9, 1), LIVE, 2) == LeaderAndIsr(3, 2, (3, 1), RECOVERED)
    assert initial_leader((9,), LIVE, 2) is None


def test_brokers_that_stop_or_vouch_count_as_such() -> None:
    before = LeaderAndIsr(1, 5, (1, 2))
    stopping = LIVE._replace(stopping=frozenset({1}))
    assert next_leader(REPLICAS, before, AT, stopping, False, 2) == LeaderAndIsr(2, 6, (2,), elr=(1,))
    assert initial_leader(REPLICAS, stopping, 0) == LeaderAndIsr(2, 0, (2, 3))
    assert preferred_leader((1, 2), LeaderAndIsr(2, 5, (2, 1)), AT, stopping, 1) is None
    returned = Brokers({2: 120})
    assert next_leader(REPLICAS, before, AT, returned, False, 1) == LeaderAndIsr(-1, 6, (1,))
    vouching = returned._replace(intact=frozenset({2}))
    assert next_leader(REPLICAS, before, AT, vouching, False, 1) == LeaderAndIsr(2, 6, (2,))
