"""The pending changes of a cluster view, as values."""

from __future__ import annotations

import json

import pytest

from kafkalite.common.names import NO_LEADER, TRANSACTION_STATE_TOPIC, random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import BrokerRecord, Election
from kafkalite.zk.client.operations import Node, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.controller import pending_changes
from kafkalite.zk.controller.election import Brokers, LeaderAndIsr
from kafkalite.zk.controller.pending_changes import ElectionContext, StateChange
from kafkalite.zk.znodes import znode_data, znode_paths

TOPIC_ID = random_uuid()
ONE = ElectionContext(Brokers({1: 50}), BrokerConfig(), 3)
THREE = ElectionContext(Brokers({1: 50, 2: 50, 3: 50}), BrokerConfig(), 3)


def node(data: bytes, version: int = 0, mzxid: int = 100) -> Node:
    return Node(data, version, mzxid, 1, 0, 0)


def view_of(
    states: dict[int, tuple[znode_data.StateNode, int]], *replicas: tuple[int, ...], topic: str = "orders"
) -> ClusterView:
    """One topic; of the states those that are written, each with its version."""
    view = ClusterView()
    assignment = znode_data.TopicNode(dict(enumerate(replicas)), TOPIC_ID)
    view.apply([(znode_paths.topic(topic), node(znode_data.topic_json(assignment), 3))])
    view.apply(
        [
            (znode_paths.state(topic, n), node(znode_data.state_json(state), version))
            for n, (state, version) in states.items()
        ]
    )
    return view


def test_each_partition_gets_what_it_lacks() -> None:
    written = {0: (znode_data.StateNode(1, 5, (1,), 2), 7), 1: (znode_data.StateNode(2, 5, (2,), 2), 9)}
    view = view_of(written, (1,), (2,), (1,), (9,))
    fine, lost, new, nobody = pending_changes.state_changes(view, "orders", ONE)
    assert fine is None and nobody is None
    assert new == pending_changes.NewState("orders", 2, LeaderAndIsr(1, 0, (1,)))
    assert isinstance(lost, pending_changes.StateChange)
    (write,) = lost.step.operations
    assert isinstance(write, SetData)
    assert (write.path, write.version) == (znode_paths.state("orders", 1), 9)
    assert znode_data.parse_state(write.data) == znode_data.StateNode(-1, 6, (2,), 3)


AWAY = Brokers({2: 50})
RETURNED = Brokers({1: 120}, intact=frozenset({1}))
LOST = Brokers({1: 120})


@pytest.mark.parametrize(
    ("brokers", "first_epochs", "awaits", "leader"),
    [
        (AWAY, {2: 50}, True, None),  # it may be about to register
        (AWAY, {2: 50}, False, NO_LEADER),
        (AWAY, {1: 50, 2: 50}, True, NO_LEADER),  # it has left
        (RETURNED, {1: 120}, False, None),
        (RETURNED, {1: 50}, True, 1),
        (RETURNED, {}, True, 1),
        (LOST, {1: 120}, True, 1),
    ],
)
def test_a_new_controller_leaves_sole_replicas_as_they_are(
    brokers: Brokers, first_epochs: dict[int, int], awaits: bool, leader: int | None
) -> None:
    context = ElectionContext(brokers, BrokerConfig(), 3, first_epochs, awaits)
    view = view_of({0: (znode_data.StateNode(1, 5, (1,), 2), 7)}, (1,))
    (change,) = pending_changes.state_changes(view, "orders", context)
    if leader is None:
        assert change is None
    else:
        assert change is not None and change.state == LeaderAndIsr(leader, 6, (1,))


def test_a_new_controller_elects_among_several_replicas_and_transaction_coordinators() -> None:
    context = ElectionContext(RETURNED, BrokerConfig(), 3, {1: 120}, True)
    (change,) = pending_changes.state_changes(
        view_of({0: (znode_data.StateNode(1, 5, (1,), 2), 7)}, (1, 2)), "orders", context
    )
    assert change is not None and change.state == LeaderAndIsr(1, 6, (1,))
    view = view_of({0: (znode_data.StateNode(1, 5, (1,), 2), 7)}, (1,), topic=TRANSACTION_STATE_TOPIC)
    (change,) = pending_changes.state_changes(view, TRANSACTION_STATE_TOPIC, context)
    assert change is not None and change.state == LeaderAndIsr(1, 6, (1,))


def test_a_topic_that_nobody_knows_has_no_pending_changes() -> None:
    view = view_of({})
    assert list(pending_changes.state_changes(view, "another", ONE)) == []
    assert pending_changes.topic_id_step(view, "another", {1: 50}, True) is None
    assert pending_changes.requested_change(view, "another", 0, ONE, Election.PREFERRED) is None


def test_an_id_is_given_once_and_loses_nothing() -> None:
    assert pending_changes.topic_id_step(view_of({}, (1,)), "orders", {1: 50}, True) is None
    view = ClusterView()
    old = b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}'
    view.apply([(znode_paths.topic("orders"), node(old, 4))])
    step = pending_changes.topic_id_step(view, "orders", {}, False)
    assert step is not None
    (write,) = step.operations
    assert isinstance(write, SetData) and write.version == 4
    topic = znode_data.parse_topic(write.data)
    assert topic.topic_id is not None
    assert topic._replace(topic_id=None) == znode_data.parse_topic(old)


def test_a_topic_with_states_gets_another_id_only_when_all_who_have_it_live_and_had_their_time() -> None:
    view = ClusterView()
    old = b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
    state = znode_data.state_json(znode_data.StateNode(1, 5, (1,), 2))
    view.apply([(znode_paths.topic("orders"), node(old, 4)), (znode_paths.state("orders", 0), node(state, 0, 101))])
    assert pending_changes.topic_id_step(view, "orders", {1, 2}, False) is None
    assert pending_changes.topic_id_step(view, "orders", {1}, True) is None
    assert pending_changes.topic_id_step(view, "orders", {1, 2}, True) is not None


def test_an_id_that_a_tool_has_left_out_is_put_back() -> None:
    view = ClusterView()
    whole = b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"topic_id":"%s"}'
    view.apply([(znode_paths.topic("orders"), node(whole % b"WPIlPLbuTk-Kf52mzODHWw", 4))])
    before = view.topics["orders"].topic_id
    more = b'{"version":2,"partitions":{"0":[1],"1":[1]},"adding_replicas":{},"removing_replicas":{}}'
    view.apply([(znode_paths.topic("orders"), node(more, 5, 101))])
    step = pending_changes.topic_id_step(view, "orders", {}, False)
    assert step is not None
    (write,) = step.operations
    assert isinstance(write, SetData) and write.version == 5
    topic = znode_data.parse_topic(write.data)
    assert topic.topic_id == before and topic.partitions == {0: (1,), 1: (1,)}


def test_a_topic_is_deleted_when_all_who_have_it_see_it() -> None:
    view = view_of({}, (1,), (2, 3))
    assert pending_changes.is_deletable(view, "orders", {1, 2, 3, 4})
    assert not pending_changes.is_deletable(view, "orders", {1, 2})
    assert pending_changes.is_deletable(view, "another", set())


def test_replicas_of_topics_to_be_deleted_are_counted() -> None:
    view = view_of({}, (1,), (2, 3))
    assert pending_changes.pending_deletions(view, ["orders", "another"], {1, 2}) == (2, 1, 3, 1)
    assert pending_changes.pending_deletions(view, ["orders"], {1, 2, 3}) == (1, 0, 3, 0)
    assert pending_changes.pending_deletions(view, [], {1}) == (0, 0, 0, 0)


def test_a_topics_own_settings_decide_its_elections() -> None:
    lost = {0: (znode_data.StateNode(2, 5, (2, 3), 2), 7)}
    view = view_of(lost, (2, 3, 1))
    config = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    without = THREE._replace(brokers=Brokers({1: 50, 3: 50}))
    (change,) = pending_changes.state_changes(view, "orders", without)
    assert isinstance(change, StateChange) and change.state == LeaderAndIsr(3, 6, (3,))
    path = znode_paths.config(znode_paths.CONFIG_TOPICS, "orders")
    view.apply([(path, node(znode_data.config_json(config)))])
    (change,) = pending_changes.state_changes(view, "orders", without)
    assert isinstance(change, StateChange) and change.state == LeaderAndIsr(3, 6, (3,), elr=(2,))
    assert change.elects and not change.is_unclean
    nobody = THREE._replace(brokers=Brokers({1: 50}))
    (change,) = pending_changes.state_changes(view, "orders", nobody)
    assert isinstance(change, StateChange) and change.state.leader == 1 and change.is_unclean


def test_a_follower_that_dies_leaves_the_isr_without_an_election() -> None:
    view = view_of({0: (znode_data.StateNode(2, 5, (2, 3), 2), 7)}, (2, 3))
    (change,) = pending_changes.state_changes(view, "orders", THREE._replace(brokers=Brokers({1: 50, 2: 50})))
    assert isinstance(change, StateChange) and change.state == LeaderAndIsr(2, 5, (2,))
    assert not change.elects
    assert list(pending_changes.state_changes(view, "orders", THREE)) == [None]


def test_replicas_that_are_on_their_way_do_not_raise_the_number_that_is_needed() -> None:
    view = ClusterView()
    moving = znode_data.TopicNode({0: (2, 3, 1)}, TOPIC_ID, adding={0: (2, 3)}, removing={0: (1,)})
    config = znode_data.config_json({"min.insync.replicas": "2"})
    state = znode_data.StateNode(1, 5, (1, 2), 2)
    view.apply(
        [
            (znode_paths.config(znode_paths.CONFIG_TOPICS, "orders"), node(config)),
            (znode_paths.topic("orders"), node(znode_data.topic_json(moving))),
            (znode_paths.state("orders", 0), node(znode_data.state_json(state), 7)),
        ]
    )
    (change,) = pending_changes.state_changes(view, "orders", THREE._replace(brokers=Brokers({1: 50, 3: 50})))
    assert isinstance(change, StateChange) and change.state == LeaderAndIsr(1, 5, (1,))  # and no ELR


def test_the_brokers_of_a_view_are_sorted_by_what_they_say() -> None:
    view = ClusterView()
    view.brokers = {
        1: BrokerRecord(1, (), epoch=10),
        2: BrokerRecord(2, (), epoch=20, stopping=True),
        3: BrokerRecord(3, (), epoch=30, intact=False),
    }
    assert pending_changes.brokers_of(view) == Brokers({1: 10, 2: 20, 3: 30}, frozenset({2}), frozenset({1, 2}))


def test_features_are_switched_on_and_otherwise_left_alone() -> None:
    on = {"version": 2, "status": 1, "features": {}}
    assert json.loads(pending_changes.pending_feature(None) or b"") == on
    assert pending_changes.pending_feature(json.dumps(on).encode()) is None
    assert json.loads(pending_changes.pending_feature(b'{"version":1,"status":0,"features":{}}') or b"") == on
    old = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":2}}}'
    assert json.loads(pending_changes.pending_feature(old) or b"") == {
        **on,
        "features": {"f": {"max_version_level": 2}},
    }
    assert pending_changes.pending_feature(b'{"version":9}') is None
