"""The steps of reassignments, as values."""

from __future__ import annotations

from kafkalite.common.names import random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.controller import reassignment_steps
from kafkalite.controller.election import Brokers
from kafkalite.controller.pending_changes import ElectionContext
from kafkalite.controller.reassignment import Assignment
from kafkalite.controller.reassignment_steps import Move
from kafkalite.metadata.cluster_metadata import Reassignment
from kafkalite.zk.client.operations import Node, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.znodes import znode_data, znode_paths
from kafkalite.zk.znodes.znode_data import StateNode, TopicNode

LIVE = Brokers({1: 50, 2: 50, 3: 50})
CONTEXT = ElectionContext(LIVE, BrokerConfig(), 3)
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
    (move,), refused = reassignment_steps.beginnings(view, "orders", {0: (3, 2), 1: (2,)}, CONTEXT)
    assert not refused and move.assignments == {0: Assignment((3, 2, 1), (3,), (1,))}
    topic, version, states = written(move)
    assert (version, states) == (3, {})
    assert topic == TopicNode({0: (3, 2, 1), 1: (2,)}, TOPIC_ID, {0: (3,)}, {0: (1,)})


def test_what_drops_replicas_writes_the_state_in_any_case() -> None:
    moving = TopicNode({0: (3, 1)}, adding={0: (3,)}, removing={0: (1,)})
    path = znode_paths.state("orders", 0)
    for isr in ((1,), (1, 3)):
        view = view_of(moving, {0: StateNode(1, 5, isr, 2)})
        (move,), refused = reassignment_steps.beginnings(view, "orders", {0: None}, CONTEXT)
        topic, _, states = written(move)
        assert not refused and topic == TopicNode({0: (1,)}, TOPIC_ID)
        assert states == {path: (StateNode(1, 5, (1,), 3), 7)}
    view = view_of(moving, {0: StateNode(3, 5, (3,), 2)})
    assert reassignment_steps.beginnings(view, "orders", {0: (3,)}, CONTEXT) == ([], {})  # as it is already
    moves, refused = reassignment_steps.beginnings(view, "orders", {0: None}, CONTEXT)
    assert not moves and refused[0].code == 39
    moves, refused = reassignment_steps.beginnings(view_of(moving, {}), "orders", {0: None}, CONTEXT)
    assert not refused and written(moves[0])[0].partitions == {0: (1,)}  # there are no records yet


def test_an_end_writes_topic_and_states_together() -> None:
    moving = TopicNode({0: (3, 1), 1: (2, 1), 2: (1,)}, adding={0: (3,), 1: (2,)}, removing={0: (1,)})
    states = {0: StateNode(1, 5, (1, 3), 2), 1: StateNode(1, 5, (1,), 2), 2: StateNode(1, 5, (1,), 2)}
    view = view_of(moving, states)
    assert reassignment_steps.under_way(view) == {
        ("orders", 0): Reassignment((3, 1), (3,), (1,)),
        ("orders", 1): Reassignment((2, 1), (2,), ()),
    }
    assert reassignment_steps.is_moving(view, ("orders", 1)) and not reassignment_steps.is_moving(view, ("orders", 2))
    (move,) = reassignment_steps.endings(view, "orders", CONTEXT)
    topic, version, changed = written(move)
    assert topic == TopicNode({0: (3,), 1: (2, 1), 2: (1,)}, TOPIC_ID, {1: (2,)}) and version == 3
    assert changed == {znode_paths.state("orders", 0): (StateNode(3, 6, (3,), 3), 7)}
    gone = CONTEXT._replace(brokers=Brokers({1: 50}))
    assert reassignment_steps.endings(view, "orders", gone) == []
    assert reassignment_steps.endings(view, "another", CONTEXT) == []


def test_states_go_in_pieces_and_beginnings_without_any_together() -> None:
    count = 450
    states = {number: StateNode(1, 5, (1, 2), 2) for number in range(count)}
    view = view_of(TopicNode(dict.fromkeys(range(count), (1, 2))), states)
    (move,), _ = reassignment_steps.beginnings(view, "orders", dict.fromkeys(range(count), (3,)), CONTEXT)
    assert len(move.assignments) == count and len(move.step.operations) == 1
    moving = TopicNode(dict.fromkeys(range(count), (2, 1)), removing=dict.fromkeys(range(count), (1,)))
    view = view_of(moving, states)
    moves = reassignment_steps.endings(view, "orders", CONTEXT)
    assert [len(move.assignments) for move in moves] == [200, 200, 50]
    assert [written(move)[1] for move in moves] == [3, 4, 5], "each replaces what the one before it writes"
    assert not written(moves[-1])[0].is_being_reassigned
    assert reassignment_steps.endings(view_of(TopicNode({0: (1,)}), {}), "orders", CONTEXT) == []


def test_a_topic_that_would_outgrow_its_node_is_not_reassigned_at_once() -> None:
    count = 30_000
    view = view_of(TopicNode(dict.fromkeys(range(count), (1,))), {})
    moves, refused = reassignment_steps.beginnings(view, "orders", dict.fromkeys(range(count), (2,)), CONTEXT)
    assert not moves and len(refused) == count and refused[7].code == 39
    assert "reassign fewer partitions at a time" in refused[7].message
    (move,), refused = reassignment_steps.beginnings(view, "orders", dict.fromkeys(range(1000), (2,)), CONTEXT)
    assert not refused and len(move.assignments) == 1000
