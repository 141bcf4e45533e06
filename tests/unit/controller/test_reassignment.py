"""Reassignments: as values, and as histories of requests, deaths, and replicas that catch up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.controller.election import Brokers, LeaderAndIsr, elect
from kafkalite.controller.reassignment import (
    Assignment,
    Finished,
    assignment_of,
    begin,
    cancel,
    finish,
    keeps_the_records,
    with_assignments,
    without_dropped,
)
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.zk.znodes.znode_data import TopicNode

AT = 100
LIVE = Brokers({broker: broker for broker in range(1, 7)})


def led(leader: int, *isr: int, epoch: int = 5) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, isr)


def without(*gone: int) -> Brokers:
    return Brokers({broker: epoch for broker, epoch in LIVE.live.items() if broker not in gone})


def test_it_begins_with_all_and_knows_where_it_comes_from_and_goes() -> None:
    moving = begin(Assignment((1, 2, 3)), (3, 4))
    assert moving == Assignment((3, 4, 1, 2), (4,), (1, 2))
    assert (moving.target, moving.origin) == ((3, 4), (3, 1, 2))
    assert begin(Assignment((1, 2)), (1, 2)) == Assignment((1, 2))
    assert begin(Assignment((1, 2)), (2, 1)) == Assignment((2, 1))  # another order needs no copy


def test_it_ends_when_all_of_the_target_are_in_sync() -> None:
    moving = begin(Assignment((1, 2)), (3, 2))
    assert finish(moving, led(1, 1, 2), AT, LIVE) is None
    assert finish(moving, led(1, 1, 2, 3), AT, without(3)) is None
    assert finish(moving, led(1, 1, 2, 3), AT, LIVE._replace(stopping={3})) is None
    assert finish(moving, led(1, 1, 2, 3), AT, LIVE) == Finished(Assignment((3, 2)), led(3, 2, 3, epoch=6))
    assert finish(moving, led(2, 1, 2, 3), AT, LIVE) == Finished(Assignment((3, 2)), led(2, 2, 3))
    assert finish(Assignment((1, 2)), led(1, 1, 2), AT, LIVE) is None


def test_fewer_replicas_are_there_at_once() -> None:
    moving = begin(Assignment((1, 2, 3)), (2,))
    assert moving == Assignment((2, 1, 3), (), (1, 3))
    assert finish(moving, led(1, 1, 2, 3), AT, LIVE) == Finished(Assignment((2,)), led(2, 2, epoch=6))


def test_another_target_drops_what_the_first_one_added() -> None:
    moving = begin(Assignment((1, 2)), (3, 4))
    other = begin(moving, (1, 5))
    assert other == Assignment((1, 5, 2), (5,), (2,))
    state = led(3, 3, 1, 2)
    assert keeps_the_records(other, state, AT, LIVE)
    assert without_dropped(other, state, AT, LIVE, 1) == led(1, 1, 2, epoch=6)
    assert without_dropped(other, led(1, 1, 2), AT, LIVE, 1) == led(1, 1, 2)


def test_a_cancellation_needs_somebody_who_has_the_records() -> None:
    moving = begin(Assignment((1, 2)), (3, 4))
    back = cancel(moving)
    assert back == Assignment((1, 2)) and not back.is_being_reassigned
    assert keeps_the_records(back, led(1, 1, 2, 3), AT, LIVE)
    assert not keeps_the_records(back, led(3, 3), AT, LIVE)
    assert not keeps_the_records(back, led(1, 1, 3), AT, without(1))
    assert not keeps_the_records(back, led(1, 1, 3), AT, Brokers({**LIVE.live, 1: AT + 1}))
    assert keeps_the_records(back, led(1, 1, 3), AT, LIVE._replace(stopping={1}))


def test_the_topics_node_tells_of_reassigned_partitions_only() -> None:
    topic = TopicNode({0: (1, 2), 1: (2,)}, None, {1: (2,)}, {})
    moving = begin(assignment_of(topic, 0), (3, 2))
    node = with_assignments(topic, {0: moving})
    assert node == TopicNode({0: (3, 2, 1), 1: (2,)}, None, {0: (3,), 1: (2,)}, {0: (1,)})
    assert assignment_of(node, 0) == moving
    assert with_assignments(node, {0: cancel(moving)}) == topic._replace(partitions={0: (2, 1), 1: (2,)})
    assert with_assignments(node, {0: Assignment(moving.target)}).removing == {}


broker_ids = st.integers(1, 6)
replica_lists = st.lists(broker_ids, min_size=1, max_size=4, unique=True).map(tuple)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("reassign"), replica_lists),
        st.tuples(st.sampled_from(["cancel", "finish", "elect"]), st.none()),
        st.tuples(st.sampled_from(["catches up", "falls behind", "goes", "comes"]), broker_ids),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(first=replica_lists, moves=moves)
def test_whatever_is_asked_for_somebody_who_has_the_records_stays(
    first: tuple[int, ...], moves: list[tuple[str, object]]
) -> None:
    transaction = AT
    registered = dict.fromkeys(range(1, 7), 1)
    brokers = Brokers(registered)
    assignment, state, written_by = Assignment(first), led(first[0], *first, epoch=0), AT
    for move, what in moves:
        transaction += 1
        after, wanted = state, assignment
        if move == "reassign":
            assert isinstance(what, tuple)
            wanted = begin(assignment, what)
            assert wanted.target == what and set(wanted.origin) == set(assignment.origin)
        elif move == "cancel":
            wanted = cancel(assignment)
            assert set(wanted.replicas) == set(assignment.origin)
        elif move == "finish":
            ended = finish(assignment, state, written_by, brokers)
            if ended is not None:
                assignment, after = ended
                wanted = assignment
                assert set(after.isr) == set(assignment.replicas) and after.leader in assignment.replicas
        elif move == "elect":
            decision = elect(assignment.replicas, state, written_by, brokers, 2)
            after = state if decision is None else decision
        elif move == "goes" and isinstance(what, int):
            registered.pop(what, None)
        elif move == "comes" and isinstance(what, int):
            registered.setdefault(what, transaction)
        elif isinstance(what, int) and state.leader in registered and what != state.leader:
            isr = tuple(one for one in state.isr if one != what)
            if move == "catches up" and what in assignment.replicas and what in registered:
                isr += (what,)
            after = state._replace(isr=isr, elr=tuple(one for one in state.elr if one not in isr))
        if wanted != assignment and keeps_the_records(wanted, state, written_by, brokers):
            assignment, after = wanted, without_dropped(wanted, state, written_by, brokers, 2)
        check(assignment, after, state)
        if after is not state:
            transaction += 1
            state, written_by = after, transaction


def check(assignment: Assignment, after: LeaderAndIsr, before: LeaderAndIsr) -> None:
    replicas, adding, removing = (set(one) for one in assignment)
    assert len(replicas) == len(assignment.replicas) and adding | removing <= replicas and not adding & removing
    assert assignment.target and assignment.origin
    assert after.isr and {*after.isr, *after.elr} <= replicas, "somebody is in sync who is no replica"
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.leader_epoch >= before.leader_epoch
    assert after.leader == before.leader or after.leader_epoch == before.leader_epoch + 1
