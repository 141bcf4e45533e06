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

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kafkalite.controller.eligible_election import next_state
from kafkalite.controller.isr_election import Members, members
from kafkalite.controller.leader_and_isr import LeaderAndIsr, LiveBrokers
from kafkalite.metadata.isr_state import IsrState
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
    state: IsrState


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


def keeps_the_records(
    after: Assignment, state: IsrState, written_by: int, live: LiveBrokers, stopping: Collection[int] = ()
) -> bool:
    """Whether a replica of `after` is in sync and present. Otherwise the step would need an unclean election."""
    known = _members(after.replicas, state, written_by, live, stopping)
    return bool(known.ready or known.stopping)


def finish(
    assignment: Assignment, state: IsrState, written_by: int, live: LiveBrokers, stopping: Collection[int] = ()
) -> Finished | None:
    """The end of a reassignment under way; None as long as a replica of the target is not in sync and present. The
    leader stays if it can."""
    target = assignment.target
    ready = _members(target, state, written_by, live, stopping).ready
    if not assignment.is_being_reassigned or not set(target).issubset(ready):
        return None
    after = state._replace(isr=frozenset(target), elr=frozenset())
    if state.leader not in target:
        after = after._replace(leader=target[0], leader_epoch=state.leader_epoch + 1)
    return Finished(Assignment(target), after)


def without_dropped(
    assignment: Assignment,
    state: IsrState,
    written_by: int,
    live: LiveBrokers,
    min_isr: int,
    stopping: Collection[int] = (),
) -> IsrState:
    """The state that goes with a new `assignment` that keeps the records: replicas that a cancellation or another
    target has dropped neither lead nor are in ISR or ELR. `min_isr` is the effective min.insync.replicas."""
    replicas = assignment.replicas
    after = next_state(replicas, state, written_by, live, min_isr, stopping=stopping) or state
    return after._replace(elr=after.elr.intersection(replicas))


def _members(
    replicas: Sequence[int], state: IsrState, written_by: int, live: LiveBrokers, stopping: Collection[int]
) -> Members:
    known = LeaderAndIsr(state.leader, state.leader_epoch, tuple(state.isr))
    return members(replicas, known, written_by, live, stopping)
