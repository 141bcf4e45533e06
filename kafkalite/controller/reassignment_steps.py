"""The steps that begin, cancel and end reassignments, as the cluster is now. Pure; the decisions are `reassignment`'s.

    begin, cancel     the topic's node, and the states of partitions that lose replicas
    finish            the topic's node, and the states of the partitions whose target is in sync

The partitions of a topic go together, since all of them stand in one node. Steps of one topic follow each other in the
versions of that node, so a step that is refused refuses those behind it.
Source: kafka.controller.KafkaController (onPartitionReassignment, maybeTriggerPartitionReassignment).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.controller.controller_store import Step
from kafkalite.controller.election import LeaderAndIsr
from kafkalite.controller.pending_changes import ElectionContext, leader_and_isr, min_isr, state_write
from kafkalite.controller.reassignment import (
    Assignment,
    assignment_of,
    begin,
    cancel,
    finish,
    keeps_the_records,
    with_assignments,
    without_dropped,
)
from kafkalite.metadata.cluster_metadata import Reassignment
from kafkalite.metadata.partition_state import effective_min_isr
from kafkalite.zk.client.operations import SetData
from kafkalite.zk.cluster.cluster_view import ClusterView, Known
from kafkalite.zk.cluster.cluster_writes import NODE_BYTES_MAX
from kafkalite.zk.znodes import znode_data, znode_paths

_PER_STEP_MAX = 200  # states; ZooKeeper takes a thousand operations, and a megabyte, in one transaction

Target = Sequence[int] | None
"""The replicas to move to, the preferred leader first; None ends a reassignment where it began."""


class Move(NamedTuple):
    """A step of one topic, and the partitions that it is about, each with its new assignment."""

    topic: str
    assignments: Mapping[int, Assignment]
    step: Step


class _Change(NamedTuple):
    assignment: Assignment
    write: SetData | None  # of the partition's state


def beginnings(
    view: ClusterView, name: str, targets: Mapping[int, Target], context: ElectionContext
) -> tuple[list[Move], dict[int, KafkaError]]:
    """The steps with which partitions of a topic begin to move, or do not move any more, and the partitions that may
    not. One that is to stay as it is needs no step. The view has the topic and these partitions."""
    known = view.assignments[name]
    changes: dict[int, _Change] = {}
    refused: dict[int, KafkaError] = {}
    for number, target in targets.items():
        before = assignment_of(known.value, number)
        after = cancel(before) if target is None else begin(before, target)
        if after == before:
            continue
        dropped = set(before.replicas).difference(after.replicas)
        node = view.states.get(name, {}).get(number)
        if not dropped or node is None:
            changes[number] = _Change(after, None)
            continue
        state = _without_dropped(after, node, min_isr(view, name, context.config), context)
        if state is None:
            refused[number] = _would_lose_records((name, number), after)
        else:
            changes[number] = _Change(after, state_write(name, number, state, node, context.controller_epoch))
    moves = list(_moves(name, known, changes))
    if not all(map(_fits, moves)):  # ZooKeeper would close the connection, again and again
        return [], refused | dict.fromkeys(changes, _too_large(name))
    return moves, refused


def _fits(move: Move) -> bool:
    return sum(len(each.data) for each in move.step.operations if isinstance(each, SetData)) <= NODE_BYTES_MAX


def _without_dropped(
    after: Assignment, node: Known[znode_data.StateNode], least: int, context: ElectionContext
) -> LeaderAndIsr | None:
    """The state without replicas that the new assignment drops; None if none of those that stay has the records. It is
    written also if it is equal: its new version refuses what a leader with an old view would write."""
    before, written_by = leader_and_isr(node), node.node.mzxid
    if not keeps_the_records(after, before, written_by, context.brokers):
        return None
    least = effective_min_isr(least, len(after.origin))
    return without_dropped(after, before, written_by, context.brokers, least)


def endings(view: ClusterView, name: str, context: ElectionContext) -> list[Move]:
    """The steps with which reassignments of a topic end: those whose target is in sync."""
    known = view.assignments.get(name)
    if known is None:
        return []
    changes: dict[int, _Change] = {}
    for number in sorted(known.value.adding.keys() | known.value.removing.keys()):
        node = view.states.get(name, {}).get(number)
        if node is None or number not in known.value.partitions:
            continue
        assignment = assignment_of(known.value, number)
        done = finish(assignment, leader_and_isr(node), node.node.mzxid, context.brokers)
        if done is not None:
            write = state_write(name, number, done.state, node, context.controller_epoch)
            changes[number] = _Change(done.assignment, write)
    return list(_moves(name, known, changes))


def _moves(name: str, known: Known[znode_data.TopicNode], changes: Mapping[int, _Change]) -> Iterator[Move]:
    topic, version, path = known.value, known.node.version, znode_paths.topic(name)
    if not changes:
        return
    bare = [number for number, change in changes.items() if change.write is None]  # together: the node is written once
    others = [number for number, change in changes.items() if change.write is not None]
    for first in range(0, max(1, len(others)), _PER_STEP_MAX):
        numbers = [*(bare if first == 0 else ()), *others[first : first + _PER_STEP_MAX]]
        assignments = {number: changes[number].assignment for number in numbers}
        topic = with_assignments(topic, assignments)
        writes = [write for number in numbers if (write := changes[number].write) is not None]
        step = Step((SetData(path, znode_data.topic_json(topic), version), *writes))
        yield Move(name, assignments, step)
        version += 1


def is_moving(view: ClusterView, key: TopicPartition) -> bool:
    known = view.assignments.get(key[0])
    return known is not None and (key[1] in known.value.adding or key[1] in known.value.removing)


def under_way(view: ClusterView) -> dict[TopicPartition, Reassignment]:
    """The reassignments under way, by the topics' nodes."""
    return {
        (name, number): Reassignment(
            known.value.partitions[number], known.value.adding.get(number, ()), known.value.removing.get(number, ())
        )
        for name, known in view.assignments.items()
        for number in known.value.adding.keys() | known.value.removing.keys()
        if number in known.value.partitions
    }


def _too_large(topic: str) -> KafkaError:
    message = (
        f"Topic '{topic}' would not fit into a node of ZooKeeper's meanwhile: reassign fewer partitions at a time."
    )
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _would_lose_records(key: TopicPartition, after: Assignment) -> KafkaError:
    topic, index = key
    return KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"None of the replicas {list(after.replicas)} of {topic}-{index} is alive and in sync: records would be lost.",
    )
