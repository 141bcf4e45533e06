"""AppendAt: appends a mirror's batches at the offsets that they have at its source, if the log ends where it expects.

The condition is all that a mirror needs to copy each record once: the end of the log says how far the copy is, and a
second mirror, or a request that is repeated after a lost answer, is refused. The answer waits until the batches are
committed, as with acks=all. It needs WRITE of the topic, as any records do, and ALTER, as its partitions do: who
chooses offsets decides where the log begins and which offsets it lacks. A producer with WRITE alone cannot.
Source: none in Apache Kafka, where only a follower appends batches with offsets (UnifiedLog.appendAsFollower).
"""

from __future__ import annotations

from kafkalite.api.handlers.produce import WORK_MS_MAX
from kafkalite.api.request.admission import ACKS_ALL
from kafkalite.api.request.delayed_produce import DelayedProduce
from kafkalite.api.request.request_context import TOPIC, RequestContext, Runtime, refusal
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.messages.append_at import (
    ANY_END,
    AppendAtPartition,
    AppendAtPartitionResult,
    AppendAtRequest,
    AppendAtResponse,
    AppendAtTopicResult,
)
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.security.acl.acl import Operation


class AppendAtApi(NamedTuple):
    """The AppendAt API."""

    runtime: Runtime
    replica_manager: ReplicaManager

    def append_at(self, request: AppendAtRequest, context: RequestContext) -> AppendAtResponse | DelayedProduce:
        """Append what may be appended, and wait for it once."""
        clock = self.runtime.clock
        now_ms, deadline_ms = clock.wall_ms(), clock.monotonic_ms() + WORK_MS_MAX
        pending: list[AppendAtPartitionResult] = []
        waited: list[tuple[Partition, int]] = []
        topics: list[AppendAtTopicResult] = []
        for topic, is_allowed in context.refused_last(Operation.WRITE, TOPIC, request.topics):
            may_write = is_allowed and context.may(Operation.ALTER, TOPIC, topic.name)
            results: list[AppendAtPartitionResult] = []
            for data in topic.partitions:
                results.append(result := AppendAtPartitionResult(index=data.index))
                try:
                    if not may_write:
                        raise refusal(TOPIC)
                    if waited and clock.monotonic_ms() > deadline_ms:
                        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                    partition = self._partition(topic.name, data.index)
                    try:
                        _append(partition, data, now_ms)
                    finally:
                        log = partition.log
                        result.start_offset, result.end_offset = log.start_offset, log.end_offset
                    if log.end_offset > partition.high_watermark and data.end_offset != ANY_END:
                        pending.append(result)
                        waited.append((partition, log.end_offset - 1))
                except KafkaError as error:
                    result.error_code, result.error_message = error.code, error.message
            topics.append(AppendAtTopicResult(name=topic.name, partitions=results))
        response = AppendAtResponse(topics=topics)
        if not waited:
            return response

        def refuse(number: int, error: KafkaError) -> None:
            pending[number].error_code, pending[number].error_message = error.code, error.message

        return DelayedProduce(clock, waited, ACKS_ALL, request.timeout_ms, refuse, lambda: response)

    def _partition(self, topic: str, index: int) -> Partition:
        """Raises KafkaError."""
        partition = self.replica_manager.require(topic, index)
        if self.replica_manager.by_name[topic].internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal and takes no mirror's records")
        return partition


def _append(partition: Partition, data: AppendAtPartition, now_ms: int) -> None:
    if data.end_offset != ANY_END:
        partition.check_in_sync()
        partition.append_at(data.records or memoryview(b""), data.end_offset, data.start_offset, now_ms)
    elif data.records:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "batches without the end that the log is expected to have")
