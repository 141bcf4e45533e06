"""The choice of leaders: as values, and as histories of brokers that come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.controller.leader_election import LeaderAndIsr, initial_leader, next_leader, preferred_leader
from kafkalite.metadata.cluster_metadata import NO_LEADER

AT = 100  # the transaction that wrote the state


def written(leader: int, isr: tuple[int, ...], leader_epoch: int = 5) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, isr)


def test_the_first_live_replica_leads_a_new_partition_alone() -> None:
    assert initial_leader((3, 1, 2), {1: 10, 2: 20}) == LeaderAndIsr(1, 0, (1,))


def test_a_new_partition_waits_for_the_first_of_its_replicas() -> None:
    assert initial_leader((3,), {1: 10, 2: 20}) is None


def test_a_leader_that_lives_stays() -> None:
    assert next_leader((1,), written(1, (1,)), AT, {1: 50}) is None


def test_nobody_leads_what_a_dead_broker_led() -> None:
    assert next_leader((1,), written(1, (1,)), AT, {2: 50}) == LeaderAndIsr(NO_LEADER, 6, (1,))


def test_an_offline_partition_is_left_alone_until_a_replica_returns() -> None:
    offline = written(NO_LEADER, (1,), 6)
    assert next_leader((1,), offline, AT, {2: 50}) is None
    assert next_leader((1,), offline, AT, {1: 200, 2: 50}) == LeaderAndIsr(1, 7, (1,))


def test_a_leader_that_registered_after_it_was_elected_has_been_away() -> None:
    assert next_leader((1,), written(1, (1,)), AT, {1: AT + 1}) == LeaderAndIsr(1, 6, (1,))


def test_another_replica_in_sync_takes_over_and_leads_alone() -> None:
    assert next_leader((1, 2, 3), written(1, (1, 3)), AT, {2: 50, 3: 60}) == LeaderAndIsr(3, 6, (3,))


def test_a_replica_that_is_behind_leads_only_if_that_was_allowed() -> None:
    assert next_leader((1, 2), written(1, (1,)), AT, {2: 50}) == LeaderAndIsr(NO_LEADER, 6, (1,))
    assert next_leader((1, 2), written(1, (1,)), AT, {2: 50}, unclean=True) == LeaderAndIsr(2, 6, (2,))
    assert next_leader((1, 2), written(1, (1,)), AT, {1: 120, 2: 50}, unclean=True) == LeaderAndIsr(1, 6, (1,))


def test_the_preferred_replica_leads_if_it_lives_and_is_in_sync() -> None:
    assert preferred_leader((1, 2), written(2, (1, 2)), {1: 50, 2: 60}) == LeaderAndIsr(1, 6, (1,))
    assert preferred_leader((1, 2), written(2, (2,)), {1: 50, 2: 60}) is None
    assert preferred_leader((1, 2), written(2, (1, 2)), {2: 60}) is None
    assert preferred_leader((1, 2), written(1, (1, 2)), {1: 50, 2: 60}) is None


@given(
    replicas=st.permutations([1, 2, 3]).flatmap(lambda order: st.integers(1, 3).map(lambda n: tuple(order[:n]))),
    unclean=st.booleans(),
    moves=st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from(["goes", "comes", "bounces"])), max_size=30),
)
def test_through_any_history_epochs_only_grow_and_there_is_one_leader_who_lives(
    replicas: tuple[int, ...], unclean: bool, moves: list[tuple[int, str]]
) -> None:
    clock = 0  # ZooKeeper's transaction ids
    live: dict[int, int] = {}
    state: LeaderAndIsr | None = None
    written_by = 0
    for broker, move in moves:
        clock += 1
        if move == "goes":
            live.pop(broker, None)
        elif move == "bounces" or broker not in live:
            live[broker] = clock
        if state is None:
            decided = initial_leader(replicas, live)
        else:
            decided = next_leader(replicas, state, written_by, live, unclean)
            if state.leader == broker and move == "bounces":
                assert decided is not None
        if decided is not None:
            if state is not None:
                assert decided.leader_epoch == state.leader_epoch + 1
                if not unclean and decided.leader != NO_LEADER:
                    assert decided.leader in state.isr
            assert decided.isr
            clock += 1
            state, written_by = decided, clock
            assert next_leader(replicas, state, written_by, live, unclean) is None  # decided once
        if state is not None:
            leader, _, isr = state[:3]
            assert leader == NO_LEADER or (leader in live and leader in replicas and isr == (leader,))
            if leader == NO_LEADER:
                assert not set(isr) & set(live)
