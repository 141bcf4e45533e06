"""Elections: as values, and as histories of brokers that copy records from each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.zk.controller.election import Brokers, LeaderAndIsr, Members, elect, initial_state, members
from kafkalite.zk.controller.pending_changes import imbalanced
from kafkalite.zk.znodes.znode_data import RECOVERED, RECOVERING
from tests.support.replicated_partition import Cluster

AT = 100  # the transaction that wrote the state
LIVE = {1: 50, 2: 60, 3: 70}
ALL = Brokers(LIVE)
REPLICAS = (1, 2, 3)


def next_leader(
    replicas: Sequence[int],
    state: LeaderAndIsr,
    at: int,
    live: Mapping[int, int],
    unclean: bool = False,
    stopping: Collection[int] = (),
    intact: Collection[int] = (),
) -> LeaderAndIsr | None:
    """Without eligible replicas: min.insync.replicas is 0."""
    return elect(replicas, state, at, Brokers(live, stopping, intact), 0, Election.UNCLEAN if unclean else None)


def preferred_leader(
    replicas: Sequence[int], state: LeaderAndIsr, at: int, live: Mapping[int, int], stopping: Collection[int] = ()
) -> LeaderAndIsr | None:
    return elect(replicas, state, at, Brokers(live, stopping), 0, Election.PREFERRED)


def written(leader: int, *isr: int, recovery: int = RECOVERED) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 5, isr, recovery)


def without(*gone: int, **returned: int) -> dict[int, int]:
    """The live brokers; `b2=120` registered anew."""
    anew = {int(name[1:]): epoch for name, epoch in returned.items()}
    return {broker: epoch for broker, epoch in LIVE.items() if broker not in gone} | anew


def test_all_live_replicas_of_a_new_partition_are_in_sync() -> None:
    assert initial_state((3, 1, 2), Brokers({1: 10, 2: 20}), 0) == LeaderAndIsr(1, 0, (1, 2))
    assert initial_state((3, 1, 2), Brokers(LIVE, {3}), 4) == LeaderAndIsr(1, 4, (1, 2))
    assert initial_state((3,), Brokers({1: 10}), 0) is None


def test_a_state_that_fits_stays() -> None:
    assert next_leader(REPLICAS, written(2, 2, 1, 3), AT, LIVE) is None
    assert next_leader(REPLICAS, written(2, 2), AT, without(1, 3)) is None
    assert next_leader(REPLICAS, written(NO_LEADER, 2), AT, without(2)) is None


def test_who_is_gone_leaves_the_isr_and_the_leader_keeps_its_epoch() -> None:
    assert next_leader(REPLICAS, written(2, 2, 1, 3), AT, without(3)) == LeaderAndIsr(2, 5, (2, 1))
    assert next_leader(REPLICAS, written(2, 2, 1, 3), AT, without(b3=120)) == LeaderAndIsr(2, 5, (2, 1))
    recovering = written(2, 2, 3, recovery=RECOVERING)
    assert next_leader(REPLICAS, recovering, AT, without(3)) == LeaderAndIsr(2, 5, (2,), RECOVERING)


def test_the_first_of_the_assignment_that_is_in_sync_takes_over() -> None:
    assert next_leader((3, 2, 1), written(3, 3, 1, 2), AT, without(3)) == LeaderAndIsr(2, 6, (1, 2))
    assert next_leader((3, 2, 1), written(3, 3, 1), AT, without(3)) == LeaderAndIsr(1, 6, (1,))


def test_a_leader_that_was_away_gives_way_to_one_that_was_not() -> None:
    assert next_leader(REPLICAS, written(1, 1, 2, 3), AT, without(b1=120)) == LeaderAndIsr(2, 6, (2, 3))
    assert next_leader(REPLICAS, written(1, 1), AT, without(b1=120)) == LeaderAndIsr(1, 6, (1,))


def test_the_last_members_stay_in_the_isr_until_one_returns() -> None:
    nobody = next_leader(REPLICAS, written(2, 1, 2), AT, without(1, 2))
    assert nobody == LeaderAndIsr(NO_LEADER, 6, (2, 1))
    assert next_leader(REPLICAS, nobody, AT + 1, without(2, b1=120)) is None  # what it lost 2 may have
    assert next_leader(REPLICAS, written(1, 1, 2), AT, without(2, b1=120)) == LeaderAndIsr(NO_LEADER, 6, (2,))
    assert next_leader(REPLICAS, nobody, AT + 1, without(2, b1=120), True) == LeaderAndIsr(1, 7, (1,))
    assert next_leader(REPLICAS, nobody, AT + 1, without(b1=120, b2=121)) == LeaderAndIsr(2, 7, (2,))
    assert next_leader(REPLICAS, written(2, 1, 2), AT, without(b1=120, b2=121)) == LeaderAndIsr(2, 6, (2,))


def test_a_member_that_vouches_for_its_log_need_not_wait_for_others() -> None:
    nobody = written(NO_LEADER, 2, 1, 3)
    assert next_leader(REPLICAS, nobody, AT, without(2, 3, b1=120), intact={1}) == LeaderAndIsr(1, 6, (1,))
    assert next_leader((3, 1, 2), nobody, AT, without(2, b1=120, b3=121), intact={1, 3}) == LeaderAndIsr(3, 6, (1, 3))
    assert next_leader(REPLICAS, nobody, AT, without(2, b1=120, b3=121), intact={3}) == LeaderAndIsr(3, 6, (3,))
    assert next_leader(REPLICAS, written(1, 1, 2), AT, without(b1=120), intact={1}) == LeaderAndIsr(2, 6, (2,))
    both = {"live": without(2, b1=120, b3=121), "intact": {1, 3}}
    assert next_leader(REPLICAS, nobody, AT, **both, stopping={3}) == LeaderAndIsr(1, 6, (1,))
    assert next_leader(REPLICAS, nobody, AT, **both, stopping={1, 3}) == LeaderAndIsr(1, 6, (1,))


def test_an_unclean_election_is_allowed_and_marked() -> None:
    assert next_leader(REPLICAS, written(1, 1), AT, without(1)) == LeaderAndIsr(NO_LEADER, 6, (1,))
    assert next_leader(REPLICAS, written(1, 1), AT, without(1), True) == LeaderAndIsr(2, 6, (2,), RECOVERING)
    assert next_leader(REPLICAS, written(1, 1), AT, without(1), True, {2}) == LeaderAndIsr(3, 6, (3,), RECOVERING)
    assert next_leader(REPLICAS, written(1, 1, 3), AT, without(1), True) == LeaderAndIsr(3, 6, (3,))
    assert next_leader(REPLICAS, written(1, 1), AT, {}, True) == LeaderAndIsr(NO_LEADER, 6, (1,))


def test_a_broker_that_is_about_to_stop_hands_over() -> None:
    assert next_leader(REPLICAS, written(1, 1, 2, 3), AT, LIVE, stopping={1}) == LeaderAndIsr(2, 6, (2, 3))
    assert next_leader(REPLICAS, written(1, 1, 2, 3), AT, LIVE, stopping={1, 2}) == LeaderAndIsr(3, 6, (3,))
    assert next_leader(REPLICAS, written(1, 1, 2, 3), AT, LIVE, stopping={2}) == LeaderAndIsr(1, 5, (1, 3))


def test_a_broker_that_is_about_to_stop_leads_while_nobody_else_can() -> None:
    assert next_leader(REPLICAS, written(1, 1), AT, LIVE, stopping={1}) is None
    assert next_leader(REPLICAS, written(1, 1, 2), AT, LIVE, stopping={1, 2}) == LeaderAndIsr(1, 5, (1,))
    assert next_leader(REPLICAS, written(1, 1, 2), AT, without(1), stopping={2}) == LeaderAndIsr(2, 6, (2,))
    assert next_leader(REPLICAS, written(1, 1, 2, 3), AT, without(1), stopping={2, 3}) == LeaderAndIsr(2, 6, (2,))
    returned = next_leader(REPLICAS, written(1, 1, 2, 3), AT, without(1, b3=120), stopping={2})
    assert returned == LeaderAndIsr(2, 6, (2,))  # has all of it, and 3 perhaps not
    assert next_leader(REPLICAS, written(1, 1), AT, without(b1=120), stopping={1}) == LeaderAndIsr(1, 6, (1,))


def test_the_preferred_replica_leads_if_it_is_in_sync_and_was_not_away() -> None:
    assert preferred_leader(REPLICAS, written(2, 2, 1), AT, LIVE) == LeaderAndIsr(1, 6, (2, 1))
    assert preferred_leader(REPLICAS, written(2, 2, 1, 3), AT, without(3)) == LeaderAndIsr(1, 6, (2, 1))
    for state, live in (
        (written(1, 1, 2), LIVE),
        (written(2, 2), LIVE),
        (written(2, 2, 1), without(1)),
        (written(2, 2, 1), without(b1=120)),
    ):
        assert preferred_leader(REPLICAS, state, AT, live) is None
    assert preferred_leader(REPLICAS, written(2, 2, 1), AT, LIVE, {1}) is None
    assert preferred_leader((), written(2, 2), AT, LIVE) is None


@pytest.mark.parametrize(("percentage", "brokers"), [(0, {1, 2}), (10, {1, 2}), (33, {1}), (50, set()), (100, set())])
def test_leadership_goes_back_when_too_much_of_a_broker_is_elsewhere(percentage: int, brokers: set[int]) -> None:
    leaders = {("t", number): ((1, 2), 1 if number % 2 else 2) for number in range(6)}
    leaders |= {("u", number): ((2, 1), 1 if number == 0 else 2) for number in range(4)}
    leaders |= {("v", 0): ((9, 1), 1)}  # a dead broker gets nothing
    found = list(imbalanced(leaders, LIVE, percentage))
    wanted = {key for key, (replicas, leader) in leaders.items() if replicas[0] in brokers and leader != replicas[0]}
    assert set(found) == wanted and len(found) == len(wanted)


ALONE = ["produce", "copy", "shrink", "expand", "goes", "exits", "comes", "bounces", "stops", "look", "decide"]
OFTEN = ["replicate", "goes", "comes", "bounces", "act", "act"]
MOVES = st.lists(st.tuples(st.sampled_from(ALONE + OFTEN * 2), st.sampled_from([1, 2, 3])), max_size=40)


# one of them is back, and what it lost the others may have
ALL_GO = [("replicate", 1), ("replicate", 1), ("goes", 1), ("goes", 2), ("goes", 3), ("comes", 2), ("act", 1)]
# the only member loses what it had committed, and is elected again
ALONE_WITH_LESS = [
    ("shrink", 3), ("bounces", 1), ("act", 1), ("produce", 1), ("bounces", 2), ("act", 1), ("copy", 1), ("expand", 1),
    ("goes", 2), ("act", 1),
]  # fmt: skip


@settings(max_examples=300)
@example(moves=ALONE_WITH_LESS, unclean=False, order=[1, 2, 3])
@example(moves=ALL_GO, unclean=False, order=[1, 2, 3])
@given(moves=MOVES, unclean=st.booleans(), order=st.permutations([1, 2, 3]))
def test_no_history_loses_what_was_committed(moves: list[tuple[str, int]], unclean: bool, order: list[int]) -> None:
    """A broker that goes loses some of the end of its log, as with the power; the controller may look late."""
    cluster = Cluster(tuple(order), unclean=unclean)
    for move, broker in moves:
        before = cluster.state
        getattr(cluster, move)(broker)
        after = cluster.state
        assert after.isr and len(set(after.isr)) == len(after.isr) and set(after.isr) <= set(order)
        assert after.leader == NO_LEADER or after.leader in after.isr
        assert after.leader_epoch >= before.leader_epoch
        if after.leader != before.leader:
            assert after.leader_epoch == before.leader_epoch + 1
            if after.recovery == RECOVERED and after.leader != NO_LEADER:
                assert after.leader in before.isr
            assert cluster.elected_with_all_that_was_committed
        elif after.leader_epoch == before.leader_epoch and len(after.isr) < len(before.isr):
            assert after.leader != NO_LEADER


@example(moves=[("goes", 1), ("stops", 2), ("stops", 3)], order=[1, 2, 3])
@given(moves=MOVES, order=st.permutations([1, 2, 3]))
def test_every_decision_is_made_once(moves: list[tuple[str, int]], order: list[int]) -> None:
    cluster = Cluster(tuple(order), unclean=True)
    for move, broker in moves:
        getattr(cluster, move)(broker)
    cluster.look(1)
    cluster.decide(1)
    cluster.look(1)
    known = cluster.seen
    decided = next_leader(known.replicas, known.state, known.written_by, known.live, True, known.stopping, known.intact)
    assert decided is None
    if known.state.leader == NO_LEADER:
        assert not set(known.replicas) & known.live.keys() - known.stopping


def test_without_the_check_of_registrations_a_late_controller_loses_records() -> None:
    """KIP-380, KIP-903: a member bounces between the controller's look and its write, which then hides the bounce."""
    losses = []
    for checks in (True, False):
        cluster = Cluster((1, 2, 3), checks=checks)
        for move, broker in (
            ("produce", 1), ("copy", 2), ("copy", 3),
            ("goes", 3), ("look", 0), ("bounces", 2), ("decide", 0),  # writes (1, 2), though 2 has been away since
            ("goes", 1), ("look", 0), ("decide", 0), ("look", 0), ("decide", 0),
        ):  # fmt: skip
            getattr(cluster, move)(broker)
        losses.append((cluster.state.leader, cluster.elected_with_all_that_was_committed))
    assert losses == [(NO_LEADER, True), (2, False)]


def test_who_is_no_replica_any_more_is_no_member() -> None:
    assert members((1, 2), (1, 2, 3), AT, ALL) == Members((1, 2), (), (), ())


# -- eligible replicas behind the ISR


def state(leader: int, isr: set[int], elr: tuple[int, ...] = (), epoch: int = 5) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, tuple(sorted(isr)), elr=elr)


def elected(
    known: LeaderAndIsr,
    live: dict[int, int],
    election: Election | None = None,
    *,
    stopping: Collection[int] = (),
    intact: Collection[int] = (),
) -> LeaderAndIsr | None:
    return elect(REPLICAS, known, AT, Brokers(live, stopping, intact), 2, election)


def test_a_state_with_eligible_replicas_that_fits_stays() -> None:
    assert elected(state(1, {1, 2}), {1: 10, 2: 20}) is None
    assert elected(state(1, {1}, (2, 3)), {1: 10}) is None
    assert elected(state(NO_LEADER, {1}, (2,)), {3: 30}) is None


def test_who_leaves_below_min_isr_stays_eligible() -> None:
    assert elected(state(1, {1, 2, 3}), {1: 10}) == state(1, {1}, (2, 3))
    assert elected(state(1, {1, 2, 3}), {1: 10, 2: 20}) == state(1, {1, 2})


def test_the_isr_comes_first() -> None:
    assert elected(state(3, {3, 2}, (1,)), {1: 10, 2: 20}) == state(2, {2}, (3, 1), epoch=6)


def test_an_eligible_replica_leads_when_the_isr_cannot() -> None:
    assert elected(state(1, {1}, (2, 3)), {3: 30}) == state(3, {3}, (1, 2), epoch=6)
    assert elected(state(NO_LEADER, {1}, (2, 3)), {2: 20, 3: 30}) == state(2, {2}, (1, 3), epoch=6)
    assert elected(state(1, {1}, (2, 3)), {2: 20, 3: 30}, stopping={2}) == state(3, {3}, (1, 2), epoch=6)


def test_it_may_have_returned_meanwhile() -> None:
    assert elected(state(1, {1}, (3,)), {3: 130}, intact={3}) == state(3, {3}, (1,), epoch=6)


def test_without_anybody_the_partition_waits() -> None:
    assert elected(state(1, {1}, (2,)), {3: 30}) == state(NO_LEADER, {1}, (2,), epoch=6)


def test_an_unclean_leader_is_the_last_resort() -> None:
    assert elected(state(1, {1}, (2,)), {2: 20, 3: 30}, Election.UNCLEAN) == state(2, {2}, (1,), epoch=6)
    won = elected(state(1, {1}, (2,)), {3: 30}, Election.UNCLEAN)
    assert won is not None
    assert (won.leader, won.isr) == (3, (3,))


@pytest.mark.parametrize(("live", "leader"), [({1: 10, 2: 20}, 1), ({2: 20}, None)])
def test_the_preferred_replica_of_several_leads_if_it_is_in_sync(live: dict[int, int], leader: int | None) -> None:
    won = elected(state(2, {1, 2}), live, Election.PREFERRED)
    assert (None if won is None else won.leader) == leader


# -- with all of it


def test_members_keep_their_places_and_eligible_ones_are_written() -> None:
    before = LeaderAndIsr(1, 5, (3, 1, 2), RECOVERING)
    assert elect(REPLICAS, before, AT, Brokers({2: 50, 3: 60}), 2) == LeaderAndIsr(2, 6, (3, 2), RECOVERING)
    after = elect(REPLICAS, before, AT, Brokers({2: 50, 3: 60}), 9)
    assert after == LeaderAndIsr(2, 6, (3, 2), RECOVERING, (1,))
    assert elect(REPLICAS, after, AT, Brokers({1: 50}), 9) == LeaderAndIsr(1, 7, (1,), RECOVERING, (3, 2))


def test_only_who_was_on_neither_list_has_to_recover() -> None:
    alone = LeaderAndIsr(1, 5, (1,))
    assert elect(REPLICAS, alone, AT, Brokers({3: 60}), 1, Election.UNCLEAN) == LeaderAndIsr(3, 6, (3,), RECOVERING)
    assert elect(REPLICAS, alone, AT, Brokers({3: 60}), 1) == LeaderAndIsr(-1, 6, (1,))
    assert elect(REPLICAS, alone, AT, ALL, 1, Election.UNCLEAN) is None


def test_the_preferred_replica_leads_and_nothing_else_changes() -> None:
    assert elect((2, 1), LeaderAndIsr(1, 5, (1, 2)), AT, ALL, 1, Election.PREFERRED) == LeaderAndIsr(2, 6, (1, 2))
    for replicas, before in (((1, 2), (1, 2)), ((3, 1, 2), (1, 2)), ((3, 1, 2), (1, 2, 9))):
        assert elect(replicas, LeaderAndIsr(1, 5, before), AT, ALL, 1, Election.PREFERRED) is None


def test_a_new_partition_is_in_sync_where_it_can_be() -> None:
    assert initial_state((3, 9, 1), ALL, 2) == LeaderAndIsr(3, 2, (3, 1), RECOVERED)
    assert initial_state((9,), ALL, 2) is None


def test_brokers_that_stop_or_vouch_count_as_such() -> None:
    before = LeaderAndIsr(1, 5, (1, 2))
    stopping = ALL._replace(stopping=frozenset({1}))
    assert elect(REPLICAS, before, AT, stopping, 2) == LeaderAndIsr(2, 6, (2,), elr=(1,))
    assert initial_state(REPLICAS, stopping, 0) == LeaderAndIsr(2, 0, (2, 3))
    assert elect((1, 2), LeaderAndIsr(2, 5, (2, 1)), AT, stopping, 1, Election.PREFERRED) is None
    returned = Brokers({2: 120})
    assert elect(REPLICAS, before, AT, returned, 1) == LeaderAndIsr(-1, 6, (1,))
    vouching = returned._replace(intact=frozenset({2}))
    assert elect(REPLICAS, before, AT, vouching, 1) == LeaderAndIsr(2, 6, (2,))
