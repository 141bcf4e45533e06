"""The reassignment of partitions to other replicas while they are written to (KIP-455). Pure.

    begin     replicas = target and origin together     the new ones copy, the leader takes them into the ISR
    finish    replicas = target                         as soon as all of the target are in sync
    cancel    replicas = origin                         at any time before

The topic's node has the whole state of a reassignment, so a new controller continues where the last one stopped, and
brokers that are no replicas any more delete their logs. Each step is one transaction with the partition's state: what
`finish` decides is written to both nodes or to none, and `begin` and `cancel` are bound to the state on which they are
based. Kafka's controller writes the state before the node, and a leader may see an ISR beyond the replicas
(KAFKA-9672). A step never drops all replicas that have the records: one must be left that is in sync and present.

The partitions of a topic share a step, since all of them are in one node. Steps of one topic follow each other in the
versions of that node, so after a refused step the following ones are refused, too.
Source: kafka.controller.ReplicaAssignment, KafkaController (onPartitionReassignment, maybeTriggerPartitionReassignment,
isReassignmentComplete, updateCurrentReassignment), org.apache.kafka.controller.PartitionReassignmentRevert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.metadata.cluster_metadata import Reassignment
from kafkalite.metadata.partition_state import effective_min_isr, in_order
from kafkalite.zk.client.operations import SetData
from kafkalite.zk.cluster.cluster_view import ClusterView, Known
from kafkalite.zk.cluster.cluster_writes import NODE_BYTES_MAX
from kafkalite.zk.controller.controller_store import Step
from kafkalite.zk.controller.election import Brokers, LeaderAndIsr, elect, members
from kafkalite.zk.controller.pending_changes import ElectionContext, leader_and_isr, min_isr, state_write
from kafkalite.zk.znodes import znode_data, znode_paths
from kafkalite.zk.znodes.znode_data import TopicNode


class Assignment(NamedTuple):
    """The replicas of a partition as in its topic's node. Invariant: `adding` and `removing` are among `replicas` and
    have none in common; `target` and `origin` are not empty."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the end of the reassignment, the preferred leader first."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas from before the reassignment, in the order of the moment."""
        return tuple(one for one in self.replicas if one not in self.adding)


def assignment_of(topic: TopicNode, number: int) -> Assignment:
    """The assignment of a partition that `topic` has."""
    return Assignment(topic.partitions[number], topic.adding.get(number, ()), topic.removing.get(number, ()))


def with_assignments(topic: TopicNode, assignments: Mapping[int, Assignment]) -> TopicNode:
    """The node with other assignments of some partitions. Only reassigned partitions have adding and removing ones."""
    adding = {number: one.adding for number, one in assignments.items() if one.adding}
    removing = {number: one.removing for number, one in assignments.items() if one.removing}
    return topic._replace(
        partitions={**topic.partitions, **{number: one.replicas for number, one in assignments.items()}},
        adding={key: brokers for key, brokers in topic.adding.items() if key not in assignments} | adding,
        removing={key: brokers for key, brokers in topic.removing.items() if key not in assignments} | removing,
    )


class Finished(NamedTuple):
    """The end of a reassignment. The state is written also if it is equal to the former one: its new version refuses
    what a leader with an old view would write."""

    assignment: Assignment
    state: LeaderAndIsr


def begin(assignment: Assignment, target: Sequence[int]) -> Assignment:
    """The assignment with which a reassignment to `target` begins; it replaces one in progress. Without another
    order or other replicas the result is the same assignment, finished."""
    origin = assignment.origin
    replicas = (*target, *(one for one in origin if one not in target))
    return Assignment(
        replicas,
        tuple(one for one in replicas if one not in origin),
        tuple(one for one in replicas if one not in target),
    )


def cancel(assignment: Assignment) -> Assignment:
    """The assignment from before; a former order of the replicas is not restored, as in Kafka."""
    return begin(assignment, assignment.origin)


def keeps_the_records(after: Assignment, state: LeaderAndIsr, written_by: int, brokers: Brokers) -> bool:
    """Whether a replica of `after` is in sync and present. Otherwise the step would need an unclean election."""
    known = members(after.replicas, state.isr, written_by, brokers)
    return bool(known.ready or known.stopping)


def finish(assignment: Assignment, state: LeaderAndIsr, written_by: int, brokers: Brokers) -> Finished | None:
    """The end of a reassignment in progress; None as long as a replica of the target is not in sync and present. The
    leader stays if possible."""
    target = assignment.target
    ready = members(target, state.isr, written_by, brokers).ready
    if not assignment.is_being_reassigned or not set(target).issubset(ready):
        return None
    isr = in_order(target, state.isr)
    after = state._replace(isr=isr) if state.leader in target else state.with_leader(target[0], isr)
    return Finished(Assignment(target), after._replace(elr=()))


def without_dropped(
    assignment: Assignment, state: LeaderAndIsr, written_by: int, brokers: Brokers, min_isr: int
) -> LeaderAndIsr:
    """The state that goes with a new `assignment` that keeps the records: replicas that a cancellation or another
    target has dropped neither lead nor are in ISR or ELR. `min_isr` is the effective min.insync.replicas."""
    replicas = assignment.replicas
    after = elect(replicas, state, written_by, brokers, min_isr) or state
    return after._replace(elr=tuple(one for one in after.elr if one in replicas))


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


def in_progress(view: ClusterView) -> dict[TopicPartition, Reassignment]:
    """The reassignments in progress, from the topics' nodes."""
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
