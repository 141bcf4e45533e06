"""The tables of a group of Kafka Streams, and the steps that change them; each step is one record.

A decision makes its steps one after another, and each takes effect at once; if the log refuses them they are undone in
reverse. Reading the log makes the same steps.
Source: org.apache.kafka.coordinator.group.streams.StreamsGroup, GroupMetadataManager (replay; 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.changes import Undo
from kafkalite.coordinator.group.streams.streams_member import (
    DELETED,
    CurrentTasks,
    StreamsMember,
    StreamsMetadata,
)
from kafkalite.coordinator.group.streams.tasks import NO_TASKS, TaskProcesses, Tasks
from kafkalite.coordinator.group.streams.topology import Topology

FIRST_EPOCH = 1  # of a group and of its target before any member
NOT_VALIDATED = -1  # no epoch of a topology: topics that it needs are missing, or do not fit


class StreamsGroupState(Enum):
    """The states of a group, by Kafka's names. None is stored: they follow from topology, epochs and members."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class GroupMetadata(NamedTuple):
    """Record 17. `validated_epoch` is that of the topology whose topics are there."""

    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    validated_epoch: int = NOT_VALIDATED
    assignment_configs: tuple[tuple[str, str], ...] = ()  # of the last assignment, sorted by key


class SetMetadata(NamedTuple):
    """Record 17."""

    value: GroupMetadata


class SetMember(NamedTuple):
    """Record 19; None removes the member."""

    member_id: str
    value: StreamsMetadata | None


class SetTargetEpoch(NamedTuple):
    """Record 20. `timestamp_ms` is the date of the target, 0 if it is unknown."""

    epoch: int
    timestamp_ms: int


class SetTarget(NamedTuple):
    """Record 21."""

    member_id: str
    value: Tasks | None


class SetCurrent(NamedTuple):
    """Record 22; None frees the member's tasks."""

    member_id: str
    value: CurrentTasks | None


class SetTopology(NamedTuple):
    """Record 23."""

    value: Topology | None


Step = SetMetadata | SetMember | SetTargetEpoch | SetTarget | SetCurrent | SetTopology


class StreamsGroupTables:
    """Members, topology, epochs and targets of one group, and the processes that have its tasks."""

    def __init__(self) -> None:
        self.metadata = GroupMetadata()
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.targets: dict[str, Tasks] = {}
        self.members: dict[str, StreamsMember] = {}
        self.processes = TaskProcesses()
        self.topology: Topology | None = None
        self.subscribed_topics: Sequence[str] = ()  # that its topology needs, whether they exist or not
        self.readers: Mapping[str, str] = {}  # input topic -> the subtopology that reads it

    @property
    def group_epoch(self) -> int:
        return self.metadata.epoch

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.metadata.validated_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.current.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def target_of(self, member_id: str) -> Tasks:
        return self.targets.get(member_id, NO_TASKS)

    def apply(self, step: Step) -> Undo:
        """Make the step; returns what undoes it."""
        match step:
            case SetMember(member_id, metadata):
                if metadata is None:
                    return self._put_member(member_id, None)
                member = self.members.get(member_id) or StreamsMember(member_id)
                return self._put_member(member_id, member._replace(metadata=metadata))
            case SetCurrent(member_id, current):
                known = self.members.get(member_id)
                if known is None and current is None:
                    return _nothing
                known = known or StreamsMember(member_id)
                return self._put_member(member_id, known._replace(current=current or DELETED))
            case SetTarget(member_id, target):
                undo: Undo = partial(self._put_target, member_id, self.targets.get(member_id))
                self._put_target(member_id, target)
            case SetTargetEpoch():
                undo = partial(self.apply, SetTargetEpoch(self.target_epoch, self.target_timestamp_ms))
                self.target_epoch, self.target_timestamp_ms = step
            case SetMetadata(group):
                undo = partial(self.apply, SetMetadata(self.metadata))
                self.metadata = group
            case SetTopology(topology):
                undo = partial(self._put_topology, self.topology)
                self._put_topology(topology)
        return undo

    def _put_member(self, member_id: str, member: StreamsMember | None) -> Undo:
        before = self.members.get(member_id)
        if before is not None:
            for tasks in (before.current.assigned, before.current.pending_revocation):
                self.processes.remove(tasks, before.metadata.process_id)
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member
            for tasks in (member.current.assigned, member.current.pending_revocation):
                self.processes.add(tasks, member.metadata.process_id)
        return partial(self._put_member, member_id, before)

    def _put_target(self, member_id: str, target: Tasks | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def _put_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self.subscribed_topics = () if topology is None else topology.required_topics()
        subtopologies = () if topology is None else topology.subtopologies
        self.readers = {topic: each.subtopology_id for each in subtopologies for topic in each.input_topics}


def _nothing() -> None:
    """The step changed nothing."""
