"""The changes that the controller has to write, as the cluster is now: topic ids, first states, new leaders. Pure.

All of them follow from the nodes in ZooKeeper, without other state: a newly elected controller finds the same pending
changes as its predecessor, and none after writing them. Each change is bound to the version of the node that was read.
So a change based on an old view is refused, and found again when the view is up to date.

A topic that is to be deleted has no other pending changes, and its deletion waits until every broker with a replica
lives: an absent one would come back with records of a topic that is in the metadata no longer. Kafka calls such a topic
ineligible for deletion.

Differences from Kafka: partitions that are added to a topic under deletion are deleted with it; Kafka first takes them
out of the topic again.
Source: kafka.controller.KafkaController (processTopicIds, onNewPartitionCreation, onBrokerFailure, onBrokerStartup,
fetchTopicDeletionsInProgress), TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkalite.common.names import TopicPartition, random_uuid
from kafkalite.controller.controller_store import Step
from kafkalite.controller.elections import ELECTIONS
from kafkalite.controller.leader_election import LeaderAndIsr, LiveBrokers
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.partition_admin import Reassignment
from kafkalite.zk.client.operations import SetData
from kafkalite.zk.cluster.cluster_view import NO_EPOCH, ClusterView, Known
from kafkalite.zk.znodes import json_object, znode_data, znode_paths


class NewState(NamedTuple):
    """The first state of a partition."""

    topic: str
    partition: int
    state: LeaderAndIsr


class StateChange(NamedTuple):
    """The next state of a partition, and the step that writes it."""

    topic: str
    partition: int
    state: LeaderAndIsr
    step: Step


def live_brokers(view: ClusterView) -> LiveBrokers:
    return {broker_id: broker.epoch for broker_id, broker in view.brokers.items()}


def topic_id_step(view: ClusterView, name: str, live: Collection[int], is_overdue: bool) -> Step | None:
    """Gives an id to a topic that a tool from before 2.8 created, and back to one that it changed. A topic with states
    is not new, and the brokers that have its records know its id (`zk.cluster.topic_ids`): it gets another one only if
    all of them live and it `is_overdue` that they give it back."""
    known = view.assignments.get(name)
    if known is None or name not in view.without_id:
        return None
    is_new = name not in view.states
    if known.value.topic_id is None and not is_new and not (is_overdue and is_deletable(view, name, live)):
        return None
    data = znode_data.topic_json(known.value._replace(topic_id=known.value.topic_id or random_uuid()))
    return Step((SetData(znode_paths.topic(name), data, known.node.version),))


def state_changes(
    view: ClusterView, name: str, live: LiveBrokers, unclean: bool, controller_epoch: int, min_isr: int = 1
) -> Iterator[NewState | StateChange | None]:
    """One by one the partitions of a topic; None for one that may stay as it is. `min_isr` is its
    min.insync.replicas."""
    known = view.assignments.get(name)
    if known is None:
        return
    for number, replicas in known.value.partitions.items():
        node = view.states.get(name, {}).get(number)
        if node is None:
            state = ELECTIONS.initial(replicas, live, view.last_epochs.get(name, {}).get(number, NO_EPOCH) + 1)
            yield None if state is None else NewState(name, number, state)
        else:
            state = ELECTIONS.next(replicas, _leader_and_isr(node), node.node.mzxid, live, unclean, min_isr)
            yield None if state is None else _change(name, number, state, node, controller_epoch)


def preferred_change(
    view: ClusterView, name: str, number: int, live: LiveBrokers, controller_epoch: int, min_isr: int = 1
) -> StateChange | None:
    """Makes the first replica of a partition its leader, if that can be and is not so yet."""
    found = _replicas_and_state(view, name, number)
    if found is None:
        return None
    replicas, node = found
    state = ELECTIONS.preferred(replicas, _leader_and_isr(node), node.node.mzxid, live, min_isr)
    return None if state is None else _change(name, number, state, node, controller_epoch)


def unclean_change(
    view: ClusterView, name: str, number: int, live: LiveBrokers, controller_epoch: int, min_isr: int = 1
) -> StateChange | None:
    """Elects a live replica, in sync or not, for a partition that nobody leads, if one lives."""
    found = _replicas_and_state(view, name, number)
    if found is None:
        return None
    replicas, node = found
    state = ELECTIONS.next(replicas, _leader_and_isr(node), node.node.mzxid, live, True, min_isr)
    if state is None or state.leader == NO_LEADER:
        return None
    return _change(name, number, state, node, controller_epoch)


def _replicas_and_state(
    view: ClusterView, name: str, number: int
) -> tuple[Sequence[int], Known[znode_data.StateNode]] | None:
    known, node = view.assignments.get(name), view.states.get(name, {}).get(number)
    if known is None or node is None or number not in known.value.partitions:
        return None
    return known.value.partitions[number], node


def state_json(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    node = znode_data.StateNode(
        state.leader, state.leader_epoch, state.isr, controller_epoch, state.recovery, state.elr
    )
    return znode_data.state_json(node)


def is_deletable(view: ClusterView, name: str, live: Collection[int]) -> bool:
    """Whether all brokers with a replica live, so that each of them deletes its logs."""
    known = view.assignments.get(name)
    return known is None or all(set(replicas) <= set(live) for replicas in known.value.partitions.values())


def is_reassigned(view: ClusterView, key: TopicPartition) -> bool:
    known = view.assignments.get(key[0])
    return known is not None and (key[1] in known.value.adding or key[1] in known.value.removing)


def reassignments(view: ClusterView) -> dict[TopicPartition, Reassignment]:
    """The reassignments under way, by the topics' nodes."""
    return {
        (name, number): Reassignment(
            known.value.partitions[number], known.value.adding.get(number, ()), known.value.removing.get(number, ())
        )
        for name, known in view.assignments.items()
        for number in known.value.adding.keys() | known.value.removing.keys()
        if number in known.value.partitions
    }


def reassignment_refusals(view: ClusterView, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[str]:
    """The reasons for refusing reassignments, as lines for the log; a reassignment without a change is not refused.
    Replicas cannot move, because brokers do not copy records."""
    for (name, number), target in wanted.items():
        known = view.assignments.get(name)
        current = known.value.partitions.get(number) if known is not None else None
        if current is None:
            yield f"{name}-{number} does not exist"
        elif current != target:
            yield f"{name}-{number} stays on {list(current)}, for kafkalite cannot copy it to {list(target)}"


def pending_feature(data: bytes | None) -> bytes | None:
    """The new content of /feature instead of `data` (None: there is no such node), or None if it may stay. In ZooKeeper
    mode no feature is finalized; a cluster that has some keeps them, unless features were switched off there."""
    if data is None:
        return znode_data.feature_json({})
    try:
        enabled, features = znode_data.parse_feature(data)
        wanted = znode_data.feature_json(features if enabled else {})
        return None if json_object.parse(data) == json_object.parse(wanted) else wanted
    except ValueError:
        return None  # of a later version: not for this one to mend


def _leader_and_isr(node: Known[znode_data.StateNode]) -> LeaderAndIsr:
    value = node.value
    return LeaderAndIsr(value.leader, value.leader_epoch, value.isr, value.recovery, value.elr)


def _change(
    name: str, number: int, state: LeaderAndIsr, node: Known[znode_data.StateNode], controller_epoch: int
) -> StateChange:
    write = SetData(znode_paths.state(name, number), state_json(state, controller_epoch), node.node.version)
    return StateChange(name, number, state, Step((write,)))
