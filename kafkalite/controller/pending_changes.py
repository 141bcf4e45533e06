"""What the controller has to write, as the cluster stands: a topic's id, first states, new leaders. Pure.

Everything is read off the nodes, nothing is remembered: a controller that takes over finds the same duties as the one
before it, and one that has carried them out finds none. What is written is bound to the version of the node that was
looked at, so a duty that rests on an old view is refused, and found again when the view has moved on.

A topic that is to be deleted has no duties but that one, and that has to wait until every broker with a replica lives:
who is away would come back with records of a topic that nobody knows any more. (So it is in Kafka, which calls such a
topic ineligible for deletion. Partitions that are added to a topic under deletion just go with it; Kafka takes them
back first.)
Source: kafka.controller.KafkaController (processTopicIds, onNewPartitionCreation, onBrokerFailure, onBrokerStartup,
fetchTopicDeletionsInProgress), TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kafkalite.common.names import TopicPartition, random_uuid
from kafkalite.controller.controller_store import Step
from kafkalite.controller.election import (
    Leadership,
    LiveBrokers,
    Written,
    first_leadership,
    next_leadership,
    preferred_leadership,
)
from kafkalite.zk.client.operations import SetData
from kafkalite.zk.cluster.cluster_view import NO_EPOCH, ClusterView, Known
from kafkalite.zk.znodes import json_object, znode_data, znode_paths


class FirstState(NamedTuple):
    """A partition that nothing was written about yet."""

    topic: str
    partition: int
    leadership: Leadership


class NextState(NamedTuple):
    """A partition whose state has to change, and the step that does it."""

    topic: str
    partition: int
    leadership: Leadership
    step: Step


def live_brokers(view: ClusterView) -> LiveBrokers:
    return {broker_id: broker.epoch for broker_id, broker in view.brokers.items()}


def topic_id_step(view: ClusterView, name: str, live: Collection[int], is_overdue: bool) -> Step | None:
    """Gives an id to a topic that was made by a tool from before 2.8, and back to one that was changed by it. What has
    states is no new topic, and those who have its records know its id (`zk.topic_ids`): it gets another one only if
    all of them live and it `is_overdue` that they give it back."""
    known = view.assignments.get(name)
    if known is None or name not in view.without_id:
        return None
    is_new = name not in view.states
    if known.value.topic_id is None and not is_new and not (is_overdue and is_deletable(view, name, live)):
        return None
    data = znode_data.topic_json(known.value._replace(topic_id=known.value.topic_id or random_uuid()))
    return Step((SetData(znode_paths.topic(name), data, known.node.version),))


def states_due(
    view: ClusterView, name: str, live: LiveBrokers, unclean: bool, controller_epoch: int
) -> Iterator[FirstState | NextState | None]:
    """One by one the partitions of a topic; None for one that stands as it should."""
    known = view.assignments.get(name)
    if known is None:
        return
    for number, replicas in known.value.partitions.items():
        state = view.states.get(name, {}).get(number)
        if state is None:
            first = first_leadership(replicas, live, view.last_epochs.get(name, {}).get(number, NO_EPOCH) + 1)
            yield None if first is None else FirstState(name, number, first)
        else:
            leadership = next_leadership(replicas, _written(state), live, unclean)
            yield None if leadership is None else _next_state(name, number, leadership, state, controller_epoch)


def preferred_state(
    view: ClusterView, name: str, number: int, live: LiveBrokers, controller_epoch: int
) -> NextState | None:
    """The partition led by its first replica, if that can be and is not so yet."""
    known, state = view.assignments.get(name), view.states.get(name, {}).get(number)
    if known is None or state is None or number not in known.value.partitions:
        return None
    leadership = preferred_leadership(known.value.partitions[number], _written(state), live)
    return None if leadership is None else _next_state(name, number, leadership, state, controller_epoch)


def state_json(leadership: Leadership, controller_epoch: int) -> bytes:
    return znode_data.state_json(
        znode_data.StateNode(leadership.leader, leadership.leader_epoch, leadership.isr, controller_epoch)
    )


def is_deletable(view: ClusterView, name: str, live: Collection[int]) -> bool:
    """Whether all brokers with a replica live, so that each of them sees the topic go."""
    known = view.assignments.get(name)
    return known is None or all(set(replicas) <= set(live) for replicas in known.value.partitions.values())


def reassignment_faults(view: ClusterView, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[str]:
    """Why each reassignment cannot be, as lines for the log; one that asks for what there is has no fault. Replicas
    cannot move as long as nobody copies records."""
    for (name, number), target in wanted.items():
        known = view.assignments.get(name)
        current = known.value.partitions.get(number) if known is not None else None
        if current is None:
            yield f"{name}-{number} does not exist"
        elif current != target:
            yield f"{name}-{number} stays on {list(current)}, for kafkalite cannot copy it to {list(target)}"


def feature_due(data: bytes | None) -> bytes | None:
    """What /feature is to hold instead of `data` (None: it is missing), or None if it may stay. In ZooKeeper mode no
    feature is finalized; those of a cluster that has them stay, unless features were switched off there."""
    if data is None:
        return znode_data.feature_json({})
    try:
        enabled, features = znode_data.parse_feature(data)
        wanted = znode_data.feature_json(features if enabled else {})
        return None if json_object.parse(data) == json_object.parse(wanted) else wanted
    except ValueError:
        return None  # of a version to come, and not ours to mend


def _written(state: Known[znode_data.StateNode]) -> Written:
    value = state.value
    return Written(Leadership(value.leader, value.leader_epoch, value.isr), state.node.mzxid)


def _next_state(
    name: str, number: int, leadership: Leadership, state: Known[znode_data.StateNode], controller_epoch: int
) -> NextState:
    data = state_json(leadership, controller_epoch)
    return NextState(
        name, number, leadership, Step((SetData(znode_paths.state(name, number), data, state.node.version),))
    )
