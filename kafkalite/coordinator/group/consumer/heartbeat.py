"""A ConsumerGroupHeartbeat as values, and the checks that need no group.

A field that is None means "as before", and so does an assignment of None in the answer; empty ones are values.
Source: KIP-848; org.apache.kafka.coordinator.group.GroupCoordinatorService
(throwIfConsumerGroupHeartbeatRequestIsInvalid; 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.consumer.member import AWAY_EPOCH, DELETED_EPOCH, JOINED_EPOCH, NO_TIMEOUT_MS
from kafkalite.coordinator.group.partition_sets import AssignedPartitions, OwnedPartitions

FIRST_VERSION_WITH_CLIENTS_ID = 1  # the client makes the member id (KIP-1082)


class ConsumerHeartbeat(NamedTuple):
    """A heartbeat of a member. `may_describe` tells which topics its regular expression may match."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT_MS
    topic_names: Sequence[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: OwnedPartitions | None = None
    may_describe: Callable[[str], bool] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the client says all that it has to say, as after an error: it may not know its assignment."""
        is_subscribed = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT_MS and is_subscribed and self.owned is not None

    @property
    def is_leave(self) -> bool:
        return self.member_epoch in (DELETED_EPOCH, AWAY_EPOCH)


class HeartbeatResult(NamedTuple):
    """The answer. `assignment` is None if it is as before. The defaults are those of an error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: AssignedPartitions | None = None


def refused(error: KafkaError) -> HeartbeatResult:
    return HeartbeatResult(error.code, error.message)


def validate(group_id: str, request: ConsumerHeartbeat, api_version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError for a heartbeat that no group accepts, in Kafka's order."""
    epoch = request.member_epoch
    if (
        api_version >= FIRST_VERSION_WITH_CLIENTS_ID or epoch > 0 or epoch == DELETED_EPOCH
    ) and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    for name, text in (("GroupId", group_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOINED_EPOCH:
        _validate_join(request)
    elif epoch == AWAY_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < AWAY_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _validate_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT_MS:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
