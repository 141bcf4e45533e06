"""The reassignment of a partition to other replicas while it is written to (KIP-455). Pure.

    begin     replicas = target and origin together     the new ones copy, the leader takes them into the ISR
    finish    replicas = target                         as soon as all of the target are in sync
    cancel    replicas = origin                         at any time before

The topic's node has all that is known of a reassignment, so a new controller goes on where the last one stopped, and
brokers that are no replicas any more delete their logs. Each step is one transaction with the partition's state: what
`finish` decides is written to both nodes or to none, and `begin` and `cancel` are bound to the state that they looked
at. Kafka's controller writes the state before the node, and a leader may see an ISR beyond the replicas (KAFKA-9672).

A step never drops all replicas that have the records: one must be left that is in sync and present.
Source: kafka.controller.ReplicaAssignment, KafkaController (onPartitionReassignment, isReassignmentComplete,
updateCurrentReassignment), org.apache.kafka.controller.PartitionReassignmentRevert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalite.controller.election import Brokers, LeaderAndIsr, elect, members
from kafkalite.metadata.partition_state import in_order
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
    """The assignment with which a reassignment to `target` begins; it takes the place of one under way. Without another
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
    """The end of a reassignment under way; None as long as a replica of the target is not in sync and present. The
    leader stays if it can."""
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
