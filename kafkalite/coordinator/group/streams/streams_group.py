"""One group of Kafka Streams (KIP-1071): its heartbeats, its timers, and its members that are gone.

A heartbeat is answered when its records are in the log, so a client never sees an epoch that a crash could take back.
The first member brings the topology. As long as topics that it needs are missing the group is not ready, and no member
has a task; the answers say why, and name the internal topics to be created.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (streamsGroupHeartbeat and its kin),
streams.{StreamsGroup, TargetAssignmentBuilder} (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

from kafkalite.common.clock import Clock, Moment
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.group.changes import HeldAnswer
from kafkalite.coordinator.group.deadlines import Deadline, Wait, remaining_ms, waiting_interval_ms
from kafkalite.coordinator.group.group import STREAMS, GroupDescription, Identity, MemberDescription
from kafkalite.coordinator.group.modern_group import ModernGroup
from kafkalite.coordinator.group.offset_store import ExpirationCondition
from kafkalite.coordinator.group.streams.configured_topology import ConfiguredTopology, Fault, Status, TopologyState
from kafkalite.coordinator.group.streams.endpoint_map import EndpointMap
from kafkalite.coordinator.group.streams.streams_change import StreamsChange, assignment_configs
from kafkalite.coordinator.group.streams.streams_environment import StreamsEnvironment, StreamsGroupConfig
from kafkalite.coordinator.group.streams.streams_heartbeat import StreamsHeartbeat, StreamsHeartbeatResult, refused
from kafkalite.coordinator.group.streams.streams_member import (
    JOINED_EPOCH,
    NO_TIMEOUT_MS,
    CurrentTasks,
    StreamsMember,
    StreamsMemberState,
    StreamsMetadata,
)
from kafkalite.coordinator.group.streams.streams_records import records_of, tombstones_of_group
from kafkalite.coordinator.group.streams.streams_tables import (
    FIRST_EPOCH,
    Step,
    StreamsGroupState,
    StreamsGroupTables,
)
from kafkalite.coordinator.group.streams.tasks import NO_TASKS
from kafkalite.coordinator.group.streams.topology import Topology
from kafkalite.coordinator.runtime.effects import Answer, CancelTimer, Records, SetTimer, Waiter

logger = logging.getLogger(__name__)

ASSIGNOR = "sticky"
INITIAL_DELAY = "more members of an empty group"
"""The key of a timer."""


class StreamsGroup(ModernGroup[Step]):
    """State and members of one group."""

    __slots__ = ("_endpoints", "_is_delayed", "_shutdown_by", "environment", "tables", "topology_state")
    kind: ClassVar[str] = STREAMS

    def __init__(self, group_id: str, partition: int, environment: StreamsEnvironment) -> None:
        super().__init__(group_id, partition, records_of)
        self.environment = environment
        self.tables = StreamsGroupTables()
        self.topology_state = TopologyState(environment.topics)
        self._endpoints = EndpointMap(environment.topics)
        self._is_delayed = False  # the first assignment waits for more members
        self._shutdown_by: str | None = None  # the member that wants the whole application to end

    @property
    def config(self) -> StreamsGroupConfig:
        return self.environment.config(self.group_id)

    @property
    def state_name(self) -> str:
        return self.tables.state.value

    @property
    def state_filter(self) -> str:
        return "not_ready" if self.tables.state is StreamsGroupState.NOT_READY else super().state_filter

    @property
    def member_ids(self) -> Collection[str]:
        return self.tables.members.keys()

    @property
    def is_unborn(self) -> bool:
        tables = self.tables
        return not tables.members and tables.topology is None and tables.group_epoch == FIRST_EPOCH

    # --- heartbeats

    def streams_heartbeat(
        self, request: StreamsHeartbeat, waiter: Waiter[StreamsHeartbeatResult], now: Moment
    ) -> Sequence[Any]:
        """StreamsGroupHeartbeat: the answer waits for the log. A request that was validated."""
        change = self._new_change()
        try:
            if request.is_leave:
                return self._leave(request, waiter, change)
            result = self._decide(request, change, now)
        except KafkaError as error:
            change.undo()
            return (Answer(waiter, refused(error)),)
        deadline_ms = now.monotonic_ms + self.config.session_timeout_ms
        change.effects += self.deadlines.set(Wait.SESSION, request.member_id, deadline_ms)
        return [*change.effects, *self.changes.store(change, [HeldAnswer(waiter, result, StreamsHeartbeatResult)])]

    def _new_change(self) -> StreamsChange:
        return StreamsChange(self.group_id, self.tables, self.environment)

    def keep_alive(
        self, member_id: str, member_epoch: int, endpoint_epoch: int, client: tuple[str, str], now: Clock
    ) -> int | None:
        """A heartbeat that says nothing: its interval, in ms, if there is nothing to answer, either. None: it has to
        be decided by `streams_heartbeat`. `client` is its id and its host."""
        tables, configured = self.tables, self.topology_state.configured
        member = tables.members.get(member_id)
        if member is None or configured is None or self.changes.is_storing:
            return None
        current, metadata, topology = member.current, member.metadata, tables.topology
        config = self.config
        if (
            member_epoch != current.epoch
            or member_epoch <= JOINED_EPOCH
            or endpoint_epoch != self._endpoints.epoch
            or client != (metadata.client_id, metadata.client_host)
            or self._is_delayed
            or self._shutdown_by is not None
            or tables.target_epoch < tables.group_epoch
            or not (current.state is StreamsMemberState.UNREVOKED or current.is_reconciled_to(tables.target_epoch))
            or topology is None
            or metadata.topology_epoch < topology.epoch
            or not configured.is_ready
            or tables.metadata.assignment_configs != assignment_configs(config)
            or self.topology_state.refresh.is_due(tables)
        ):
            return None
        deadline_ms = now.monotonic_ms() + config.session_timeout_ms
        if deadline_ms < self.deadlines.timer_ms:
            return None
        self.deadlines.set(Wait.SESSION, member_id, deadline_ms)
        return config.heartbeat_interval_ms

    def _decide(self, request: StreamsHeartbeat, change: StreamsChange, now: Moment) -> StreamsHeartbeatResult:
        config, tables = self.config, self.tables
        was_empty, is_unborn = not tables.members, self.is_unborn
        if was_empty:
            self._shutdown_by = None  # not by the last removal, which the log may refuse
        member = self._member_of(request, config)
        metadata = _overlaid(member.metadata, request)
        is_changed = change.update_member(member.member_id, metadata)
        topology = change.update_topology(request.topology)
        statuses = _stale_status(metadata, topology)
        configured = change.update_metadata(topology, self.topology_state, is_changed=is_changed)
        if configured.is_ready:
            _check_tasks(request, configured)
        if was_empty and not self._is_delayed and config.initial_rebalance_delay_ms:
            self._is_delayed = True
            change.effects.append(SetTimer(INITIAL_DELAY, now.monotonic_ms + config.initial_rebalance_delay_ms))
        if self._is_delayed:
            statuses.append(_delayed("initial rebalance delay"))
        elif tables.target_epoch < tables.group_epoch and not change.assign(configured, now):
            statuses.append(_delayed("assignment interval"))
        target = NO_TASKS if self._is_delayed else tables.target_of(member.member_id)
        current = change.reconcile(member.member_id, target, request.owned, self.deadlines, now)
        if request.shutdown_application:
            self._request_shutdown(member.member_id)
        tasks, has_new_tasks = current.assigned.without_epochs(), current.assigned != member.current.assigned
        is_news = request.member_epoch == JOINED_EPOCH or has_new_tasks
        epoch = self._endpoints.epoch + (is_news and metadata.user_endpoint is not None)
        endpoints = None
        if epoch != request.endpoint_epoch:
            endpoints = self._endpoints.of(tables.members, configured)
        if not is_unborn:  # else the member learns it by its next heartbeat, as in Kafka
            self._endpoints.epoch = epoch
        if configured.fault is not None:
            statuses.append(configured.fault)
        if self._shutdown_by is not None:
            statuses.append(_shutdown_status(self._shutdown_by))
        return StreamsHeartbeatResult(
            ErrorCode.NONE,
            None,
            member.member_id,
            current.epoch,
            self._interval_ms(current, configured, config, now.wall_ms),
            tuple(statuses),
            # a member that says to have others has not heard an answer: Kafka 4.3 leaves it without its tasks
            tasks if is_news or request.owned not in (None, tasks) else None,
            self._endpoints.epoch,
            endpoints,
            configured.missing_topics,
        )

    def _interval_ms(
        self, current: CurrentTasks, configured: ConfiguredTopology, config: StreamsGroupConfig, wall_ms: int
    ) -> int:
        """The time until the next heartbeat: less than usual for a member that waits for others or for its target.
        Missing topics leave it as it is, for the client fails when it has seen them missing for two intervals."""
        tables, interval_ms = self.tables, config.heartbeat_interval_ms
        if not configured.is_ready or current.state is StreamsMemberState.UNREVOKED:
            return interval_ms
        if current.state is StreamsMemberState.UNRELEASED or self._is_delayed:
            return waiting_interval_ms(interval_ms)
        if tables.target_epoch < tables.group_epoch:
            no_news_ms = remaining_ms(tables.target_timestamp_ms, config.assignment_interval_ms, wall_ms)
            return waiting_interval_ms(interval_ms, no_news_ms)
        return interval_ms

    # --- the member and the topology of a heartbeat

    def _member_of(self, request: StreamsHeartbeat, config: StreamsGroupConfig) -> StreamsMember:
        """The member that the heartbeat comes from; a new one at epoch 0. Raises KafkaError: GROUP_MAX_SIZE_REACHED,
        UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
        if request.member_epoch != JOINED_EPOCH:
            member = self._get_member(request.member_id)
            _check_epoch(request, member.current)
            return member
        if len(self.tables.members) >= config.max_size:
            message = f"The streams group has reached its maximum capacity of {config.max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        logger.info("group %s: %s joins", self.group_id, request.member_id)
        return self.tables.members.get(request.member_id) or StreamsMember(request.member_id)

    def _get_member(self, member_id: str) -> StreamsMember:
        member = self.tables.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    # --- timers and members that are gone

    def _end_delay(self, now: Moment) -> Sequence[Any]:
        """The first assignment does not wait any more."""
        self._is_delayed = False
        configured, tables, change = self.topology_state.configured, self.tables, self._new_change()
        if configured is not None and tables.members and tables.target_epoch < tables.group_epoch:
            change.assign(configured, now)
        return self.changes.store(change)

    def _leave(
        self, request: StreamsHeartbeat, waiter: Waiter[StreamsHeartbeatResult], change: StreamsChange
    ) -> Sequence[Any]:
        if request.shutdown_application:
            self._request_shutdown(request.member_id)
        member = self._get_member(request.member_id)
        result = StreamsHeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)
        return self._remove(member, change, [HeldAnswer(waiter, result, StreamsHeartbeatResult)], "left")

    def _request_shutdown(self, member_id: str) -> None:
        if self._shutdown_by is None:
            logger.info("group %s: %s asks for the end of the application", self.group_id, member_id)
            self._shutdown_by = member_id

    def _remove(
        self,
        member: StreamsMember,
        change: StreamsChange,
        answers: Sequence[HeldAnswer],
        reason: str,
        due: Sequence[Deadline] = (),
    ) -> Sequence[Any]:
        logger.info("group %s loses %s: %s", self.group_id, member.member_id, reason)
        change.remove_member(member.member_id)
        change.forgotten += [*due, *self.deadlines.forget(member.member_id)]
        return self.changes.store(change, answers)

    def on_timer(self, timer: Any, now: Moment) -> Sequence[Any]:
        if timer == INITIAL_DELAY:
            return self._end_delay(now)
        effects: list[Any] = []
        for due in self.deadlines.take_due(now.monotonic_ms):
            member = self.tables.members.get(due.member_id)
            if member is None:
                continue
            if due.wait is Wait.REVOCATION and member.current.state is not StreamsMemberState.UNREVOKED:
                continue
            reason = f"it did not give {due.wait.value} in time"
            effects += self._remove(member, self._new_change(), (), reason, [due])
        return [*effects, *self.deadlines.watch_earliest()]

    def on_loaded(self, now: Moment) -> Sequence[Any]:
        effects: list[Any] = []
        deadline_ms = now.monotonic_ms + self.config.session_timeout_ms
        for member_id, member in self.tables.members.items():
            effects += self.deadlines.set(Wait.SESSION, member_id, deadline_ms)
            if member.current.state is StreamsMemberState.UNREVOKED:
                revoked_ms = now.monotonic_ms + max(0, member.metadata.rebalance_timeout_ms)
                effects += self.deadlines.set(Wait.REVOCATION, member_id, revoked_ms)
        return effects

    def tombstones(self) -> Records:
        return tombstones_of_group(self.group_id, self.tables.members)

    def close(self, error: ErrorCode) -> Sequence[Any]:
        return [CancelTimer(INITIAL_DELAY), *super().close(error)]

    # --- offsets

    def validate_commit(
        self, identity: Identity, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, Sequence[Any]]:
        if identity.epoch < 0 and not self.tables.members:
            return ErrorCode.NONE, ()  # an administrator
        member = self.tables.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, ()
        if not identity.knows_member_epochs:
            return ErrorCode.UNSUPPORTED_VERSION, ()
        return self._validate_epoch(member.current, identity.epoch, partitions), ()

    def validate_transactional_commit(self, identity: Identity, partitions: Iterable[TopicPartition]) -> ErrorCode:
        if identity.epoch < 0 and not self.tables.members:
            return ErrorCode.NONE
        if identity[:3] == ("", None, -1):
            return ErrorCode.NONE
        member = self.tables.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._validate_epoch(member.current, identity.epoch, partitions)
        return ErrorCode.ILLEGAL_GENERATION if error else ErrorCode.NONE

    def _validate_epoch(self, current: CurrentTasks, epoch: int, partitions: Iterable[TopicPartition]) -> ErrorCode:
        """An older epoch is good for tasks that the member has had since then (KIP-1251)."""
        if epoch == current.epoch:
            return ErrorCode.NONE
        if epoch > current.epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        for topic, index in partitions:
            reader = self.tables.readers.get(topic)
            if reader is None:
                return ErrorCode.STALE_MEMBER_EPOCH
            since = current.assigned.active.get(reader, {}).get(index)
            if since is None:
                since = current.pending_revocation.active.get(reader, {}).get(index)
            if since is None or epoch < since:
                return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.tables.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.current.epoch == member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return bool(self.tables.members) and topic in self.tables.readers

    def offset_expiration_condition(self) -> ExpirationCondition | None:
        return ExpirationCondition(None, frozenset(self.tables.readers if self.tables.members else ()))

    def describe(self) -> GroupDescription:
        members = tuple(
            MemberDescription(
                member.member_id,
                member.metadata.instance_id,
                member.metadata.client_id,
                member.metadata.client_host,
                member.metadata.rebalance_timeout_ms,
                self.config.session_timeout_ms,
                (),
                b"",
                b"",
                None,
            )
            for member in self.tables.members.values()
        )
        epoch = self.tables.group_epoch
        return GroupDescription(self.group_id, self.kind, self.state_name, epoch, self.kind, ASSIGNOR, members)


def _overlaid(before: StreamsMetadata, request: StreamsHeartbeat) -> StreamsMetadata:
    """The metadata with what the heartbeat says."""
    topology, timeout_ms = request.topology, request.rebalance_timeout_ms
    return StreamsMetadata(
        before.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT_MS else timeout_ms,
        before.topology_epoch if topology is None else topology.epoch,
        before.process_id if request.process_id is None else request.process_id,
        request.user_endpoint or before.user_endpoint,
        before.client_tags if request.client_tags is None else request.client_tags,
    )


def _check_epoch(request: StreamsHeartbeat, current: CurrentTasks) -> None:
    """The epoch before is accepted once more from a member that says to have nothing but what is assigned to it: the
    answer with the new epoch may have got lost."""
    epoch, owned = request.member_epoch, request.owned
    if epoch == current.epoch:
        return
    side = "greater" if epoch > current.epoch else "smaller"
    is_previous = side == "smaller" and epoch == current.previous_epoch
    if is_previous and owned is not None and current.assigned.contain(owned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {side} member epoch ({epoch}) than the one known by the group coordinator "
        f"({current.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _check_tasks(request: StreamsHeartbeat, configured: ConfiguredTopology) -> None:
    """Raises KafkaError(INVALID_REQUEST) for tasks that the topology does not have."""
    subtopologies = configured.subtopologies or {}
    for tasks in (request.active, request.standby, request.warmup):
        for key, partitions in (tasks or {}).items():
            subtopology = subtopologies.get(key)
            if subtopology is None:
                message = f"Subtopology {key} does not exist in the topology."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            for partition in partitions:
                if not 0 <= partition < subtopology.task_count:
                    message = (
                        f"Task {partition} for subtopology {key} is invalid. Number of tasks for this subtopology: "
                        f"{subtopology.task_count}"
                    )
                    raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _stale_status(metadata: StreamsMetadata, topology: Topology) -> list[Fault]:
    if metadata.topology_epoch >= topology.epoch:
        return []
    detail = (
        f"The member's topology epoch {metadata.topology_epoch} is behind the group's topology epoch {topology.epoch}."
    )
    return [Fault(Status.STALE_TOPOLOGY, detail)]


def _delayed(reason: str) -> Fault:
    return Fault(Status.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {reason}.")


def _shutdown_status(member_id: str) -> Fault:
    detail = (
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application."
    )
    return Fault(Status.SHUTDOWN_APPLICATION, detail)
