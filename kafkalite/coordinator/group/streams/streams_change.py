"""One change of a group of Kafka Streams on its way: the steps of a decision, in the order of their records.

A heartbeat changes the metadata of its member, then perhaps the topology and the epoch of the group, then the target of
all members, then the tasks of the member. The records are one batch. A change that is refused is undone.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (maybeUpdateTopology, maybeReconcile,
maybeUpdateStreamsTargetAssignment, streamsGroupFenceMember; 4.3), streams.TargetAssignmentBuilder.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.coordinator.group.changes import Change
from kafkalite.coordinator.group.deadlines import MemberDeadlines, Wait, remaining_ms
from kafkalite.coordinator.group.streams.configured_topology import ConfiguredTopology, TopologyState
from kafkalite.coordinator.group.streams.sticky_assignor import MemberSpec, assign
from kafkalite.coordinator.group.streams.streams_environment import StreamsEnvironment, StreamsGroupConfig
from kafkalite.coordinator.group.streams.streams_member import CurrentTasks, StreamsMemberState, StreamsMetadata
from kafkalite.coordinator.group.streams.streams_tables import (
    NOT_VALIDATED,
    GroupMetadata,
    SetCurrent,
    SetMember,
    SetMetadata,
    SetTarget,
    SetTargetEpoch,
    SetTopology,
    Step,
    StreamsGroupTables,
)
from kafkalite.coordinator.group.streams.task_reconciliation import TaskGoal, reconcile
from kafkalite.coordinator.group.streams.tasks import NO_TASKS, Tasks
from kafkalite.coordinator.group.streams.topology import Topology, check_consistency

logger = logging.getLogger(__name__)

_NUM_STANDBY_REPLICAS = "num.standby.replicas"


def assignment_configs(config: StreamsGroupConfig) -> tuple[tuple[str, str], ...]:
    """The settings that an assignment depends on; another one follows when they change."""
    return _configs_with(config.num_standby_replicas)


@cache
def _configs_with(num_standby_replicas: int) -> tuple[tuple[str, str], ...]:
    return ((_NUM_STANDBY_REPLICAS, str(num_standby_replicas)),)


class StreamsChange(Change[Step]):
    """The steps of one decision, which have taken effect in `tables`."""

    __slots__ = ("_environment", "_group_id", "effects", "tables")

    def __init__(self, group_id: str, tables: StreamsGroupTables, environment: StreamsEnvironment) -> None:
        super().__init__(tables)
        self.tables = tables
        self.effects: list[Any] = []  # of timers, besides the records
        self._group_id = group_id
        self._environment = environment

    # --- members, the topology and the epoch of the group

    def update_member(self, member_id: str, metadata: StreamsMetadata) -> bool:
        """Whether the member is new, or has changed."""
        known = self.tables.members.get(member_id)
        if known is not None and known.metadata == metadata:
            return False
        self.make(SetMember(member_id, metadata))
        return True

    def remove_member(self, member_id: str) -> None:
        """Remove the member. The next heartbeat of another one assigns what was meant for it."""
        for step in (SetCurrent, SetTarget, SetMember):
            self.make(step(member_id, None))
        metadata = self.tables.metadata
        self.make(SetMetadata(metadata._replace(epoch=metadata.epoch + 1)))

    def update_topology(self, new: Topology | None) -> Topology:
        """The topology of the group: that of its first member. Raises KafkaError: INVALID_REQUEST for another one of
        the same or a later epoch."""
        known = self.tables.topology
        if known is None:
            if new is None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # its record is lost
            check_consistency(new)
            logger.info("group %s: the topology has epoch %d", self._group_id, new.epoch)
            self.make(SetTopology(new))
            return new
        if new is not None and known.epoch <= new.epoch and known != new:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def update_metadata(self, topology: Topology, state: TopologyState, *, is_changed: bool) -> ConfiguredTopology:
        """Advance the epoch if the member `is_changed`, or topics of the topology, or settings of the assignment."""
        tables = self.tables
        before = tables.metadata
        configured, metadata_hash = state.update(tables, topology)
        validated_epoch = topology.epoch if configured.is_ready else NOT_VALIDATED
        configs = assignment_configs(self._environment.config(self._group_id))
        after = GroupMetadata(before.epoch + 1, metadata_hash, validated_epoch, configs)
        if is_changed or after[1:] != before[1:]:
            logger.info("group %s: epoch %d", self._group_id, after.epoch)
            self.make(SetMetadata(after))
            self._environment.totals.streams_rebalances += 1
        state.refresh.complete(tables.group_epoch)
        return configured

    # --- the target of all members

    def assign(self, configured: ConfiguredTopology, now: Moment) -> bool:
        """Assign the tasks anew, none while topics are missing. False: it is too early after the last assignment."""
        tables = self.tables
        interval_ms = self._environment.config(self._group_id).assignment_interval_ms
        if remaining_ms(tables.target_timestamp_ms, interval_ms, now.wall_ms):
            return False
        targets: dict[str, Tasks] = dict.fromkeys(tables.members, NO_TASKS)
        if configured.is_ready:
            specs = {
                member_id: MemberSpec(member.metadata.process_id, tables.target_of(member_id))
                for member_id, member in tables.members.items()
            }
            copies = int(dict(tables.metadata.assignment_configs).get(_NUM_STANDBY_REPLICAS, 0))
            targets |= assign(specs, configured.subtopologies or {}, copies)
        for member_id, target in targets.items():
            if target != tables.targets.get(member_id):
                self.make(SetTarget(member_id, target))
        self.make(SetTargetEpoch(tables.group_epoch, now.wall_ms))
        return True

    # --- one member on its way

    def reconcile(
        self, member_id: str, target: Tasks, owned: Tasks | None, deadlines: MemberDeadlines, now: Moment
    ) -> CurrentTasks:
        """Move the member on, and start or end the time that it has to give up tasks. Raises
        KafkaError(FENCED_MEMBER_EPOCH)."""
        tables = self.tables
        member = tables.members[member_id]
        current, metadata = member.current, member.metadata
        if current.is_reconciled_to(tables.target_epoch):
            return current
        goal = TaskGoal(tables.target_epoch, target, metadata.process_id, tables.processes)
        after = reconcile(current, goal, owned)
        if after == current:
            return current
        self.make(SetCurrent(member_id, after))
        if after.state is StreamsMemberState.UNREVOKED:
            deadline_ms = now.monotonic_ms + max(0, metadata.rebalance_timeout_ms)
            self.effects += deadlines.set(Wait.REVOCATION, member_id, deadline_ms)
        else:
            self.forgotten += deadlines.cancel(Wait.REVOCATION, member_id)
        return after
