"""RunCleaner, and the state of compaction in DescribeLogDirs: the server side of `kafkalite cleaner`.

Only the connection that waits for the end is blocked; if it closes, the cleaning continues. Nothing is started unless
the whole request is valid, so a mistyped topic name has no effect.
Source: none in Apache Kafka, whose cleaner can be neither queried nor controlled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalite.api.request.request_context import RequestContext, Runtime
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.new_topics import PARTITION_COUNT_MAX
from kafkalite.network.client_connection import Pending
from kafkalite.protocol.messages.cleaner import (
    CleanerPass,
    RunCleanerPartition,
    RunCleanerRequest,
    RunCleanerResponse,
)
from kafkalite.protocol.messages.log_dirs import LogCleaning
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.cleaner.schedule import RunOutcome
    from kafkalite.cleaner.status import PartitionCleaning
    from kafkalite.common.clock import Clock

TIMEOUT_MS_MAX = 86_400_000
RUNS_MAX = 64  # unfinished requests; each may name a whole topic
_NAMED_MAX = 10  # in a message


class CleanerApi:
    """The RunCleaner API. `cleaner` is the log cleaner, which is created at its first use."""

    __slots__ = ("_cleaner", "_config", "_replica_manager", "_runs", "_runtime")

    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        replica_manager: ReplicaManager,
        cleaner: Callable[[], LogCleaner],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._replica_manager = replica_manager
        self._cleaner = cleaner
        self._runs: set[_Run] = set()

    def run_cleaner(self, request: RunCleanerRequest, context: RequestContext) -> RunCleanerResponse | Pending:
        """Compact the logs now, regardless of their dirty ratio. Error messages say how to correct the request."""
        try:
            if not self._config().log_cleaner_enable:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, "log.cleaner.enable is false; set it to true and restart the broker"
                )
            partitions = self._wanted(request)
            if len(self._runs) >= RUNS_MAX:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"{RUNS_MAX} requests are not done yet; try again later",
                )
        except KafkaError as error:
            return RunCleanerResponse(error_code=error.code, error_message=error.message)
        self._runs.add(run := _Run(request, partitions, self._runs.discard))
        return run.begin(self._cleaner(), self._runtime.clock)

    def _wanted(self, request: RunCleanerRequest) -> list[int]:
        """The partitions to compact, each once. Raises KafkaError with a message that says what to do."""
        asked = request.partitions
        if asked is not None and len(asked) > PARTITION_COUNT_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(asked)} partitions: no topic has so many")
        topic = self._replica_manager.by_name.get(request.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {_printable(request.topic)} not found")
        policy = topic.config.cleanup_policy
        if "compact" not in policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"cleanup.policy of {topic.name} is '{','.join(policy)}'; set it to 'compact' (or 'compact,delete')",
            )
        partitions = sorted(topic.partitions if asked is None else set(asked))
        missing = [index for index in partitions if index not in topic.states]
        if missing:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic.name} has {len(topic.states)} partitions, counted from 0; there is no {_listed(missing)}",
            )
        elsewhere = [index for index in partitions if index not in topic.partitions]
        if elsewhere:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{topic.name}-{_listed(elsewhere)} is led by another broker: ask it",
            )
        _refuse_offline(topic, partitions)
        return partitions


def _refuse_offline(topic: Topic, partitions: Iterable[int]) -> None:
    offline = [index for index in partitions if topic.partitions[index].is_offline]
    if offline:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{topic.name}-{_listed(offline)} is in a directory that has failed; see the broker's log",
        )


class _Run:
    """One request, until the cleaner is done with it. Its client may be answered, or disconnect, before."""

    def __init__(self, request: RunCleanerRequest, partitions: list[int], on_end: Callable[[_Run], None]) -> None:
        self._on_end = on_end
        self._request = request
        self._partitions = partitions
        self._answer: RunCleanerResponse | None = None
        self._reply: Pending | None = None

    def begin(self, cleaner: LogCleaner, clock: Clock) -> RunCleanerResponse | Pending:
        cleaner.run_now(self._request.topic, self._partitions, self._request.rolls, self._done)
        if self._answer is not None:  # nothing to do
            return self._answer
        if not self._request.waits:
            return self._all(ErrorCode.NONE, None)
        timeout_ms = min(max(self._request.timeout_ms, 0), TIMEOUT_MS_MAX)
        timer = clock.call_later(timeout_ms, self._give_up)
        self._reply = Pending(timer.cancel)
        return self._reply

    def _done(self, outcomes: list[RunOutcome]) -> None:
        self._on_end(self)
        self._answer = RunCleanerResponse(partitions=[_of_partition(outcome) for outcome in outcomes])
        if self._reply is not None:
            self._reply.answer(self._answer)

    def _give_up(self) -> None:
        if self._reply is not None:
            message = "not everything is done yet, and it continues; see kafkalite cleaner status"
            self._reply.answer(self._all(ErrorCode.REQUEST_TIMED_OUT, message))

    def _all(self, code: ErrorCode, message: str | None) -> RunCleanerResponse:
        return RunCleanerResponse(
            partitions=[
                RunCleanerPartition(partition_index=index, error_code=code, message=message)
                for index in self._partitions
            ]
        )


def _of_partition(outcome: RunOutcome) -> RunCleanerPartition:
    return RunCleanerPartition(
        partition_index=outcome.partition,
        error_code=ErrorCode.NONE if outcome.error is None else ErrorCode.UNKNOWN_SERVER_ERROR,
        message=outcome.why_not if outcome.error is None else outcome.error,
        done=None if outcome.stats is None else cleaner_pass(outcome.stats),
    )


def _listed(indexes: list[int]) -> str:
    more = ", ..." if len(indexes) > _NAMED_MAX else ""
    return ", ".join(map(str, indexes[:_NAMED_MAX])) + more


def _printable(name: str) -> str:
    """A name from a request, escaped for a message."""
    return name if name.isprintable() and len(name) <= 249 else ascii(name[:80])


def log_cleaning(one: PartitionCleaning) -> LogCleaning:
    return LogCleaning(
        state=one.state.value,
        dirty_ratio_ppm=round(one.dirty_ratio * 1_000_000),
        clean_bytes=one.clean_bytes,
        dirty_bytes=one.dirty_bytes,
        uncleanable_bytes=one.uncleanable_bytes,
        first_dirty_offset=one.first_dirty_offset,
        first_uncleanable_offset=one.first_uncleanable_offset,
        why_not=one.why_not,
        last_run_ms=one.last_run_ms,
        runs=one.runs,
        error=one.error,
        last=None if one.last is None else cleaner_pass(one.last),
    )


def cleaner_pass(stats: CleanStats) -> CleanerPass:
    return CleanerPass(
        bytes_read=stats.bytes_read,
        bytes_kept=stats.bytes_kept,
        records_read=stats.records_read,
        records_kept=stats.records_kept,
        tombstones_dropped=stats.tombstones_dropped,
        keyless_dropped=stats.keyless_dropped,
        aborted_dropped=stats.aborted_dropped,
        markers_dropped=stats.markers_dropped,
        map_keys=stats.map_keys,
        map_bytes_read=stats.map_bytes_read,
        map_records_read=stats.map_records_read,
        map_utilization_ppm=round(stats.map_utilization * 1_000_000),
        map_ms=round(stats.map_seconds * 1000),
        total_ms=round(stats.seconds * 1000),
        throttled_ms=round(stats.throttled_seconds * 1000),
        unread_batches=stats.unread_batches,
        first_unread=stats.first_unread,
    )
