"""A StreamsGroupHeartbeat as values, and the checks that need no group.

A field that is None means "as before", and so do tasks of None in the answer; empty ones are values.
Source: org.apache.kafka.coordinator.group.GroupCoordinatorService (throwIfStreamsGroupHeartbeatRequestIsInvalid,
throwIfStreamsGroupHeartbeatRequestIsUsingUnsupportedFeatures; 4.3), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.streams.configured_topology import Fault
from kafkalite.coordinator.group.streams.streams_member import (
    AWAY_EPOCH,
    JOINED_EPOCH,
    LEAVING_EPOCH,
    NO_TIMEOUT_MS,
    Endpoint,
)
from kafkalite.coordinator.group.streams.tasks import Tasks, TaskSet
from kafkalite.coordinator.group.streams.topology import InternalTopic, Topology, check_changelogs, check_supported


class StreamsHeartbeat(NamedTuple):
    """A heartbeat of a member."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    endpoint_epoch: int = 0  # of the endpoints that the member knows
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT_MS
    topology: Topology | None = None
    active: TaskSet | None = None
    standby: TaskSet | None = None
    warmup: TaskSet | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    has_offsets: bool = False
    has_end_offsets: bool = False
    shutdown_application: bool = False

    @property
    def owned(self) -> Tasks | None:
        """The tasks that the member has, if it says so."""
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        return Tasks(self.active, self.standby, self.warmup)

    @property
    def is_leave(self) -> bool:
        return self.member_epoch in (LEAVING_EPOCH, AWAY_EPOCH)


class EndpointPartitions(NamedTuple):
    """The input partitions behind one endpoint."""

    endpoint: Endpoint
    active: Sequence[tuple[str, Sequence[int]]]
    standby: Sequence[tuple[str, Sequence[int]]]


class StreamsHeartbeatResult(NamedTuple):
    """The answer. `missing_topics` are to be created with the rights of the client. The defaults are those of an
    error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[Fault, ...] = ()
    tasks: Tasks | None = None
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
    missing_topics: tuple[InternalTopic, ...] = ()


def refused(error: KafkaError) -> StreamsHeartbeatResult:
    return StreamsHeartbeatResult(error.code, error.message)


def validate(group_id: str, request: StreamsHeartbeat) -> None:
    """Raises KafkaError for a heartbeat that no group accepts, in Kafka's order."""
    _check_supported(request)
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", group_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    if epoch == JOINED_EPOCH:
        _check_join(request)
    elif epoch == AWAY_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif epoch < AWAY_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    tasks = request.active, request.standby, request.warmup
    if None in tasks and tasks != (None, None, None):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOINED_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsHeartbeat) -> None:
    """Kafka 4.3 has no static members of these groups, and assigns no warm-up tasks."""
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.has_offsets:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.has_end_offsets:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup:
        raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None:
        check_supported(request.topology)


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT_MS:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (("Active", request.active), ("Standby", request.standby), ("Warmup", request.warmup)):
        if tasks is None or tasks:
            raise _invalid(f"{name}Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    check_changelogs(request.topology)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
