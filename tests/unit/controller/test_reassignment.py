"""Reassignments: as values, and as histories of requests, deaths, and replicas that catch up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.controller.leader_election import LeaderAndIsr
from kafkalite.controller.reassignment import (
    Assignment,
    Finished,
    assignment_of,
    begin,
    cancel,
    finish,
    keeps_the_records,
    with_assignment,
    without_dropped,
)
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.zk.znodes.znode_data import TopicNode

AT = 100
LIVE = {broker: broker for broker in range(1, 7)}


def led(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 5, isr)


def test_it_begins_with_all_and_knows_where_it_comes_from_and_goes() -> None:
    moving = begin(Assignment((1, 2, 3)), (3, 4))
    assert moving == Assignment((3, 4, 1, 2), (4,), (1, 2))
    assert (moving.target, moving.origin) == ((3, 4), (3, 1, 2))
    assert begin(Assignment((1, 2)), (1, 2)) == Assignment((1, 2))
    assert begin(Assignment((1, 2)), (2, 1)) == Assignment((2, 1))  # another order needs no copy


def test_it_ends_when_all_of_the_target_are_in_sync() -> None:
    moving = begin(Assignment((1, 2)), (3, 2))
    assert finish(moving, led(1, 1, 2), AT, LIVE) is None
    assert finish(moving, led(1, 1, 2, 3), AT, {**LIVE, 3: AT + 1}) is None
    assert finish(moving, led(1, 1, 2, 3), AT, LIVE) == Finished(Assignment((3, 2)), LeaderAndIsr(3, 6, (2, 3)))
    assert finish(moving, led(2, 1, 2, 3), AT, LIVE) == Finished(Assignment((3, 2)), LeaderAndIsr(2, 5, (2, 3)))
    assert finish(Assignment((1, 2)), led(1, 1, 2), AT, LIVE) is None


def test_fewer_replicas_are_there_at_once() -> None:
    moving = begin(Assignment((1, 2, 3)), (2,))
    assert moving == Assignment((2, 1, 3), (), (1, 3))
    assert finish(moving, led(1, 1, 2, 3), AT, LIVE) == Finished(Assignment((2,)), LeaderAndIsr(2, 6, (2,)))


def test_another_target_drops_what_the_first_one_added() -> None:
    moving = begin(Assignment((1, 2)), (3, 4))
    other = begin(moving, (1, 5))
    assert other == Assignment((1, 5, 2), (5,), (2,))
    state = led(3, 3, 1, 2)
    assert keeps_the_records(other, state, AT, LIVE)
    assert without_dropped(other, state, AT, LIVE) == LeaderAndIsr(1, 6, (1, 2))
    assert without_dropped(other, led(1, 1, 2), AT, LIVE) == led(1, 1, 2)


def test_a_cancellation_needs_somebody_who_has_the_records() -> None:
    moving = begin(Assignment((1, 2)), (3, 4))
    back = cancel(moving)
    assert back == Assignment((1, 2)) and not back.is_being_reassigned
    assert keeps_the_records(back, led(1, 1, 2, 3), AT, LIVE)
    assert not keeps_the_records(back, led(3, 3), AT, LIVE)
    assert not keeps_the_records(back, led(1, 1, 3), AT, {**LIVE, 1: AT + 1})
    assert not keeps_the_records(back, led(1, 1, 3), AT, {3: 3})


def test_the_topics_node_tells_of_reassigned_partitions_only() -> None:
    topic = TopicNode({0: (1, 2), 1: (2,)}, None, {1: (2,)}, {})
    moving = begin(assignment_of(topic, 0), (3, 2))
    node = with_assignment(topic, 0, moving)
    assert node == TopicNode({0: (3, 2, 1), 1: (2,)}, None, {0: (3,), 1: (2,)}, {0: (1,)})
    assert assignment_of(node, 0) == moving
    assert with_assignment(node, 0, cancel(moving)) == topic._replace(partitions={0: (2, 1), 1: (2,)})
    assert with_assignment(node, 0, Assignment(moving.target)).removing == {}


brokers = st.integers(1, 6)
replica_lists = st.lists(brokers, min_size=1, max_size=4, unique=True).map(tuple)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("reassign"), replica_lists),
        st.tuples(st.sampled_from(["cancel", "finish", "elect"]), st.none()),
        st.tuples(st.sampled_from(["catches up", "falls behind", "goes", "comes"]), brokers),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(first=replica_lists, moves=moves)
def test_whatever_is_asked_for_somebody_who_has_the_records_stays(
    first: tuple[int, ...], moves: list[tuple[str, object]]
) -> None:
    transaction = AT
    live = dict.fromkeys(range(1, 7), 1)
    assignment, state, written_by = Assignment(first), LeaderAndIsr(first[0], 0, first), AT
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
            ended = finish(assignment, state, written_by, live)
            if ended is not None:
                assignment, after = ended
                wanted = assignment
                assert set(after.isr) == set(assignment.replicas) and after.leader in assignment.replicas
        elif move == "elect":
            after = without_dropped(assignment, state, written_by, live)
        elif move == "goes" and isinstance(what, int):
            live.pop(what, None)
        elif move == "comes" and isinstance(what, int):
            live.setdefault(what, transaction)
        elif isinstance(what, int) and state.leader in live and what != state.leader:
            isr = tuple(one for one in state.isr if one != what)
            if move == "catches up" and what in assignment.replicas and what in live:
                isr = (*isr, what)
            after = state._replace(isr=isr)
        if wanted != assignment and keeps_the_records(wanted, state, written_by, live):
            assignment, after = wanted, without_dropped(wanted, state, written_by, live)
        check(assignment, after, state)
        if after is not state:
            transaction += 1
            state, written_by = after, transaction


def check(assignment: Assignment, after: LeaderAndIsr, before: LeaderAndIsr) -> None:
    replicas, adding, removing = (set(one) for one in assignment)
    assert len(replicas) == len(assignment.replicas) and adding | removing <= replicas and not adding & removing
    assert assignment.target and assignment.origin
    assert after.isr and set(after.isr) <= replicas, "somebody is in sync who is no replica"
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.leader_epoch >= before.leader_epoch
    assert (after.leader == before.leader) or after.leader_epoch == before.leader_epoch + 1
