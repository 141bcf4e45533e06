"""Reassignments: as values, and as histories of requests, deaths, and replicas that catch up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.names import NO_LEADER, random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import Reassignment
from kafkalite.zk.client.operations import Node, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.controller import reassignment
from kafkalite.zk.controller.election import Brokers, LeaderAndIsr, elect
from kafkalite.zk.controller.pending_changes import ElectionContext
from kafkalite.zk.controller.reassignment import (
    Assignment,
    Finished,
    Move,
    assignment_of,
    begin,
    cancel,
    finish,
    keeps_the_records,
    with_assignments,
    without_dropped,
)
from kafkalite.zk.znodes import znode_data, znode_paths
from kafkalite.zk.znodes.znode_data import StateNode, TopicNode

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


THREE = Brokers({1: 50, 2: 50, 3: 50})
CONTEXT = ElectionContext(THREE, BrokerConfig(), 3)
TOPIC_ID = random_uuid()


def node(data: bytes, version: int) -> Node:
    return Node(data, version, 100, 1, 0, 0)


def view_of(topic: TopicNode, states: dict[int, StateNode]) -> ClusterView:
    """One topic, `orders`, its node in version 3, and those of its states in version 7."""
    view = ClusterView()
    view.apply([(znode_paths.topic("orders"), node(znode_data.topic_json(topic._replace(topic_id=TOPIC_ID)), 3))])
    written = [(znode_paths.state("orders", n), node(znode_data.state_json(state), 7)) for n, state in states.items()]
    view.apply(written)
    return view


def written(move: Move) -> tuple[TopicNode, int, dict[str, tuple[StateNode, int]]]:
    """The topic's node, the version that it replaces, and the states by their paths, with theirs."""
    first, *others = move.step.operations
    assert isinstance(first, SetData) and first.path == znode_paths.topic(move.topic)
    states = {}
    for each in others:
        assert isinstance(each, SetData)
        states[each.path] = znode_data.parse_state(each.data), each.version
    return znode_data.parse_topic(first.data), first.version, states


def test_a_beginning_writes_the_topic_alone() -> None:
    view = view_of(TopicNode({0: (1, 2), 1: (2,)}), {0: StateNode(1, 5, (1, 2), 2), 1: StateNode(2, 5, (2,), 2)})
    (move,), refused = reassignment.beginnings(view, "orders", {0: (3, 2), 1: (2,)}, CONTEXT)
    assert not refused and move.assignments == {0: Assignment((3, 2, 1), (3,), (1,))}
    topic, version, states = written(move)
    assert (version, states) == (3, {})
    assert topic == TopicNode({0: (3, 2, 1), 1: (2,)}, TOPIC_ID, {0: (3,)}, {0: (1,)})


def test_what_drops_replicas_writes_the_state_in_any_case() -> None:
    moving = TopicNode({0: (3, 1)}, adding={0: (3,)}, removing={0: (1,)})
    path = znode_paths.state("orders", 0)
    for isr in ((1,), (1, 3)):
        view = view_of(moving, {0: StateNode(1, 5, isr, 2)})
        (move,), refused = reassignment.beginnings(view, "orders", {0: None}, CONTEXT)
        topic, _, states = written(move)
        assert not refused and topic == TopicNode({0: (1,)}, TOPIC_ID)
        assert states == {path: (StateNode(1, 5, (1,), 3), 7)}
    view = view_of(moving, {0: StateNode(3, 5, (3,), 2)})
    assert reassignment.beginnings(view, "orders", {0: (3,)}, CONTEXT) == ([], {})  # as it is already
    moves, refused = reassignment.beginnings(view, "orders", {0: None}, CONTEXT)
    assert not moves and refused[0].code == 39
    moves, refused = reassignment.beginnings(view_of(moving, {}), "orders", {0: None}, CONTEXT)
    assert not refused and written(moves[0])[0].partitions == {0: (1,)}  # there are no records yet


def test_an_end_writes_topic_and_states_together() -> None:
    moving = TopicNode({0: (3, 1), 1: (2, 1), 2: (1,)}, adding={0: (3,), 1: (2,)}, removing={0: (1,)})
    states = {0: StateNode(1, 5, (1, 3), 2), 1: StateNode(1, 5, (1,), 2), 2: StateNode(1, 5, (1,), 2)}
    view = view_of(moving, states)
    assert reassignment.in_progress(view) == {
        ("orders", 0): Reassignment((3, 1), (3,), (1,)),
        ("orders", 1): Reassignment((2, 1), (2,), ()),
    }
    assert reassignment.is_moving(view, ("orders", 1)) and not reassignment.is_moving(view, ("orders", 2))
    (move,) = reassignment.endings(view, "orders", CONTEXT)
    topic, version, changed = written(move)
    assert topic == TopicNode({0: (3,), 1: (2, 1), 2: (1,)}, TOPIC_ID, {1: (2,)}) and version == 3
    assert changed == {znode_paths.state("orders", 0): (StateNode(3, 6, (3,), 3), 7)}
    gone = CONTEXT._replace(brokers=Brokers({1: 50}))
    assert reassignment.endings(view, "orders", gone) == []
    assert reassignment.endings(view, "another", CONTEXT) == []


def test_states_go_in_pieces_and_beginnings_without_any_together() -> None:
    count = 450
    states = {number: StateNode(1, 5, (1, 2), 2) for number in range(count)}
    view = view_of(TopicNode(dict.fromkeys(range(count), (1, 2))), states)
    (move,), _ = reassignment.beginnings(view, "orders", dict.fromkeys(range(count), (3,)), CONTEXT)
    assert len(move.assignments) == count and len(move.step.operations) == 1
    moving = TopicNode(dict.fromkeys(range(count), (2, 1)), removing=dict.fromkeys(range(count), (1,)))
    view = view_of(moving, states)
    moves = reassignment.endings(view, "orders", CONTEXT)
    assert [len(move.assignments) for move in moves] == [200, 200, 50]
    assert [written(move)[1] for move in moves] == [3, 4, 5], "each replaces what the one before it writes"
    assert not written(moves[-1])[0].is_being_reassigned
    assert reassignment.endings(view_of(TopicNode({0: (1,)}), {}), "orders", CONTEXT) == []


def test_a_topic_that_would_outgrow_its_node_is_not_reassigned_at_once() -> None:
    count = 30_000
    view = view_of(TopicNode(dict.fromkeys(range(count), (1,))), {})
    moves, refused = reassignment.beginnings(view, "orders", dict.fromkeys(range(count), (2,)), CONTEXT)
    assert not moves and len(refused) == count and refused[7].code == 39
    assert "reassign fewer partitions at a time" in refused[7].message
    (move,), refused = reassignment.beginnings(view, "orders", dict.fromkeys(range(1000), (2,)), CONTEXT)
    assert not refused and len(move.assignments) == 1000
