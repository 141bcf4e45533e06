"""DeleteRecords: raises the start of logs, and answers when every live replica has deleted what lies below.

Before that the new start offsets of this broker are in the checkpoint file, so that deleted records do not come back
after a kill. If the checkpoint cannot be written, that is logged, and a kill before the next checkpoint may bring some
of them back, as in Kafka.
Source: kafka.server.KafkaApis.handleDeleteRecordsRequest, kafka.server.DelayedDeleteRecords, KIP-107.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from kafkalite.api.request.request_context import TOPIC, RequestContext, Runtime, refusal
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.protocol.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.security.acl.acl import Operation

UNKNOWN = -1
HIGH_WATERMARK = -1
_WAIT_MS_MAX = 2**31 - 1


class _Pending(NamedTuple):
    """`answer` holds when no live replica of the partition has records below `offset`."""

    answer: DeleteRecordsPartitionResult
    partition: Partition
    offset: int


class DeleteRecordsApi(NamedTuple):
    """The DeleteRecords API."""

    runtime: Runtime
    logs: LogManager
    replica_manager: ReplicaManager

    async def delete_records(self, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
        clock = self.runtime.clock
        deadline_ms = clock.monotonic_ms() + min(max(request.timeout_ms, 0), _WAIT_MS_MAX)
        topics = []
        raised = []
        pending: list[_Pending] = []
        for topic, is_allowed in context.refused_last(Operation.DELETE, TOPIC, request.topics):
            answers = []
            for wanted in topic.partitions:
                index = wanted.partition_index
                try:
                    if not is_allowed:
                        raise refusal(TOPIC)
                    if topic.name in INTERNAL_TOPICS:
                        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                    partition = self.replica_manager.require(topic.name, index)
                    before = partition.log.start_offset
                    start_offset = partition.delete_records_before(wanted.offset)
                    if start_offset > before:  # it has renamed files and written a small one: let other requests run
                        raised.append((topic.name, index))
                        await asyncio.sleep(0)
                    low_watermark = partition.low_watermark
                    answers.append(
                        answer := DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
                    )
                    asked = start_offset if wanted.offset == HIGH_WATERMARK else wanted.offset
                    if low_watermark < asked:
                        pending.append(_Pending(answer, partition, asked))
                except KafkaError as error:
                    answers.append(
                        DeleteRecordsPartitionResult(
                            partition_index=index, low_watermark=UNKNOWN, error_code=error.code
                        )
                    )
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
        kept = asyncio.Event()
        self.logs.write_start_offsets(raised, kept.set)
        await kept.wait()
        if pending:
            await self._wait(pending, deadline_ms)
        return DeleteRecordsResponse(topics=topics)

    async def _wait(self, pending: Sequence[_Pending], deadline_ms: int) -> None:
        """Completes the answers, at the latest at the deadline (monotonic)."""
        over: asyncio.Future[None] = self.runtime.loop.create_future()
        missing = dict(enumerate(pending))

        def complete(number: int, low_watermark: int) -> None:
            one = missing.pop(number, None)
            if one is not None:
                _complete(one, low_watermark)
            if not missing:
                end()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        for number, one in enumerate(pending):
            low_watermark = one.partition.low_watermark  # may have risen meanwhile
            if self.replica_manager.partition(one.partition.topic, one.partition.index) is not one.partition:
                complete(number, UNKNOWN)
            elif low_watermark >= one.offset:
                complete(number, low_watermark)
            else:
                one.partition.when_deleted(one.offset, partial(complete, number))
        clock = self.runtime.clock
        timer = clock.call_later(max(deadline_ms - clock.monotonic_ms(), 0), end)
        try:
            await over
        finally:
            timer.cancel()
        for one in missing.values():
            one.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        missing.clear()


def _complete(one: _Pending, low_watermark: int) -> None:
    """Complete one answer. A low watermark below the offset comes from a leader that was replaced."""
    if low_watermark < one.offset:
        one.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        low_watermark = UNKNOWN
    one.answer.low_watermark = low_watermark
