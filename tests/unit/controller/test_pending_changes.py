"""The pending changes of a cluster view, as values."""

from __future__ import annotations

import json

from kafkalite.common.names import random_uuid
from kafkalite.controller import pending_changes
from kafkalite.controller.leader_election import LeaderAndIsr
from kafkalite.zk.client.operations import Node, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.znodes import znode_data, znode_paths

TOPIC_ID = random_uuid()


def node(data: bytes, version: int = 0, mzxid: int = 100) -> Node:
    return Node(data, version, mzxid, 1, 0, 0)


def view_of(states: dict[int, tuple[znode_data.StateNode, int]], *replicas: tuple[int, ...]) -> ClusterView:
    """One topic, `orders`; of the states those that are written, each with its version."""
    view = ClusterView()
    topic = znode_data.TopicNode(dict(enumerate(replicas)), TOPIC_ID)
    view.apply([(znode_paths.topic("orders"), node(znode_data.topic_json(topic), 3))])
    view.apply(
        [
            (znode_paths.state("orders", n), node(znode_data.state_json(state), version))
            for n, (state, version) in states.items()
        ]
    )
    return view


def test_each_partition_gets_what_it_lacks() -> None:
    written = {0: (znode_data.StateNode(1, 5, (1,), 2), 7), 1: (znode_data.StateNode(2, 5, (2,), 2), 9)}
    view = view_of(written, (1,), (2,), (1,), (9,))
    fine, lost, new, nobody = pending_changes.state_changes(view, "orders", {1: 50}, False, 3)
    assert fine is None and nobody is None
    assert new == pending_changes.NewState("orders", 2, LeaderAndIsr(1, 0, (1,)))
    assert isinstance(lost, pending_changes.StateChange)
    (write,) = lost.step.operations
    assert isinstance(write, SetData)
    assert (write.path, write.version) == (znode_paths.state("orders", 1), 9)
    assert znode_data.parse_state(write.data) == znode_data.StateNode(-1, 6, (2,), 3)


def test_a_topic_that_nobody_knows_has_no_pending_changes() -> None:
    view = view_of({})
    assert list(pending_changes.state_changes(view, "another", {1: 50}, False, 3)) == []
    assert pending_changes.topic_id_step(view, "another", {1: 50}, True) is None
    assert pending_changes.preferred_change(view, "another", 0, {1: 50}, 3) is None


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


def test_why_replicas_do_not_move() -> None:
    view = view_of({}, (1,), (2, 3))
    wanted = {("orders", 0): (2,), ("orders", 1): (2, 3), ("orders", 9): (1,), ("another", 0): (1,)}
    assert list(pending_changes.reassignment_refusals(view, wanted)) == [
        "orders-0 stays on [1], for kafkalite cannot copy it to [2]",
        "orders-9 does not exist",
        "another-0 does not exist",
    ]


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
