"""ListOffsets and OffsetForLeaderEpoch: start and end offset of a partition, and offsets by timestamp or leader epoch.

A look-up by timestamp reads files, possibly a whole segment, and may wait for the disk (463 MiB took half a second). So
a thread reads, and only this connection waits. A follower gets the end of the log. A new leader answers the latest
offset for consumers once it knows the high watermark of its predecessor (KIP-207).
Source: kafka.server.KafkaApis.handleListOffsetRequest, handleOffsetForLeaderEpochRequest,
kafka.cluster.Partition.fetchOffsetForTimestamp, KIP-79, KIP-207, KIP-320, KIP-734, KIP-405, KIP-1005, KIP-1023.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from operator import attrgetter

from kafkalite.api.request.replica_fetch import is_ahead
from kafkalite.api.request.request_context import TOPIC, RequestContext, Runtime, refusal
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.segment.timestamp_lookup import TimeLookup
from kafkalite.log.storage.files import storage_error
from kafkalite.metadata.cluster_metadata import ClusterMetadata, may_be_led_elsewhere
from kafkalite.protocol.messages import list_offsets as wire
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.security.acl.acl import Operation

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4  # on the broker's own disk (KIP-405); without remote storage as EARLIEST
LATEST_TIERED_TIMESTAMP = -5  # the last offset on remote storage (KIP-1005): none here
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6  # the first offset that is not there yet (KIP-1023): none is to be
_UNDERSTOOD_SINCE = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_NOT_YET = 1 << 15
FIRST_VERSION_WITH_NOT_AVAILABLE = 5
READ_COMMITTED = 1
CONSUMER = -1  # the replica id of a client
UNKNOWN = -1
_FILES_AT_A_TIME = 16  # read by one request: each is open during its look-up

_Sought = tuple[wire.ListOffsetsPartitionResponse, TimeLookup, Partition]
"""An answer, and the look-up in the partition that completes it."""


class ListOffsetsApi(NamedTuple):
    """The ListOffsets and OffsetForLeaderEpoch APIs."""

    runtime: Runtime
    metadata: ClusterMetadata
    replica_manager: ReplicaManager
    broker_id: int

    def list_offsets(
        self, request: wire.ListOffsetsRequest, context: RequestContext
    ) -> wire.ListOffsetsResponse | Awaitable[wire.ListOffsetsResponse]:
        asked = [(topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions]
        seen: set[TopicPartition] = set()
        doubled = {key for key in asked if key in seen or seen.add(key)}  # type: ignore[func-returns-value]
        topics = []
        sought: list[_Sought] = []
        for topic, is_allowed in context.refused_last(Operation.DESCRIBE, TOPIC, request.topics):
            answers = []
            for wanted in topic.partitions:
                try:
                    if not is_allowed:
                        raise refusal(TOPIC)
                    if (topic.name, wanted.partition_index) in doubled:
                        raise KafkaError(ErrorCode.INVALID_REQUEST)
                    epoch_of_replica = wanted.current_leader_epoch if request.replica_id >= 0 else UNKNOWN
                    partition = self._require(topic.name, wanted.partition_index, epoch_of_replica)
                    if context.api_version == 0:
                        answers.append(_find_as_of_old(partition, wanted, self.runtime.clock.wall_ms()))
                    else:
                        answers.append(_find(partition, wanted, request, context.api_version, sought))
                except KafkaError as error:
                    answers.append(_answer(wanted.partition_index, code=_known(error.code, context.api_version)))
            topics.append(wire.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        response = wire.ListOffsetsResponse(topics=topics)
        if not sought:
            return response
        return asyncio.ensure_future(self._when_found(response, sought, context.api_version))

    async def _when_found(
        self, response: wire.ListOffsetsResponse, sought: Sequence[_Sought], version: int
    ) -> wire.ListOffsetsResponse:
        """Completes the look-ups `sought`, then returns `response`."""
        waiting = deque(sought)
        at_work: list[_Sought] = []
        try:
            while waiting or at_work:
                # look-ups that need another segment come before waiting ones
                at_work = [one for one in at_work if _has_to_read(*one, version)]
                while waiting and len(at_work) < _FILES_AT_A_TIME:
                    one = waiting.popleft()
                    at_work += [one] * _has_to_read(*one, version)
                if at_work:
                    await self.runtime.loop.run_in_executor(self.runtime.readers, partial(_read, at_work))
        finally:
            for _, lookup, _ in at_work:  # if the client has left
                lookup.give_up()
        return response

    def _require(self, topic: str, index: int, epoch_of_replica: int) -> Partition:
        """The partition. Raises KafkaError; a retriable one for a follower that knows of an election before this
        broker.
        """
        found = self.replica_manager.by_name.get(topic)
        is_led = found is not None and index in found.partitions
        if epoch_of_replica >= 0 and not is_led and is_ahead(self.broker_id, found, index, epoch_of_replica):
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return self.replica_manager.require(topic, index)

    def offset_for_leader_epoch(
        self, request: wire.OffsetForLeaderEpochRequest, context: RequestContext
    ) -> wire.OffsetForLeaderEpochResponse:
        topics = []
        is_broker = context.access is not None and context.may_cluster(Operation.CLUSTER_ACTION, is_logged=False)
        needed = [(each, True) for each in request.topics]
        if not is_broker:
            needed = context.refused_last(Operation.DESCRIBE, TOPIC, request.topics, attrgetter("topic"))
        for topic, is_allowed in needed:
            answers = []
            for wanted in topic.partitions:
                try:
                    if not is_allowed:
                        raise refusal(TOPIC)
                    epoch_of_replica = wanted.current_leader_epoch if request.replica_id >= 0 else UNKNOWN
                    partition = self._require(topic.topic, wanted.partition, epoch_of_replica)
                    _check_epoch(partition, wanted.current_leader_epoch)
                    is_ahead_of_us = wanted.leader_epoch > partition.leader_epoch
                    if is_ahead_of_us and may_be_led_elsewhere(self.metadata, topic.topic, wanted.partition):
                        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # "no such epoch" would send a consumer back
                    epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
                    answers.append(
                        wire.EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
                    )
                except KafkaError as error:
                    answers.append(
                        wire.EpochEndOffset(
                            error_code=error.code, partition=wanted.partition, leader_epoch=UNKNOWN, end_offset=UNKNOWN
                        )
                    )
            topics.append(wire.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return wire.OffsetForLeaderEpochResponse(topics=topics)


def _known(code: ErrorCode, version: int) -> ErrorCode:
    """The code for a client that speaks `version`."""
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_NOT_AVAILABLE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _has_to_read(
    answer: wire.ListOffsetsPartitionResponse, lookup: TimeLookup, partition: Partition, version: int
) -> bool:
    """Whether the look-up must read another segment. If not, completes `answer`. A timestamp without a committed record
    may have one among the records that a new leader does not know to be committed.
    """
    try:
        if lookup.begin():
            return True
        found = lookup.found
        if found is not None:
            answer.timestamp, answer.offset, answer.leader_epoch = found
        else:
            partition.latest_offset()
    except KafkaError as error:
        answer.error_code = _known(error.code, version)
    return False


def _read(sought: Sequence[_Sought]) -> None:
    """One step of each look-up, in a thread."""
    for _, lookup, _ in sought:
        lookup.read()


def _find(
    partition: Partition,
    wanted: wire.ListOffsetsPartition,
    request: wire.ListOffsetsRequest,
    version: int,
    sought: list[_Sought],
) -> wire.ListOffsetsPartitionResponse:
    """The answer for one partition. If it needs a look-up, appends it to `sought`. Raises KafkaError."""
    index, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < 0 and version < _UNDERSTOOD_SINCE.get(timestamp, _NOT_YET):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    _check_epoch(partition, wanted.current_leader_epoch)
    log = partition.log
    read_committed = request.isolation_level == READ_COMMITTED
    if timestamp == LATEST_TIMESTAMP:
        if request.replica_id != CONSUMER:
            end = log.end_offset
        else:
            latest = partition.latest_offset()
            end = partition.last_stable_offset if read_committed else latest
        return _answer(index, offset=end, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        epoch = log.epochs.epoch_at(log.start_offset)
        if epoch == UNKNOWN:  # an empty log: the leader's own epoch
            epoch = partition.leader_epoch
        return _answer(index, offset=log.start_offset, leader_epoch=epoch)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _answer(index)
    answer = _answer(index)
    if timestamp == MAX_TIMESTAMP:
        lookup = partition.lookup_of_max_timestamp(read_committed=read_committed)
    else:
        lookup = partition.lookup_of_timestamp(timestamp, read_committed=read_committed)
    sought.append((answer, lookup, partition))
    return answer


def _find_as_of_old(
    partition: Partition, wanted: wire.ListOffsetsPartition, now_ms: int
) -> wire.ListOffsetsPartitionResponse:
    """Version 0, which librdkafka up to 1.6 uses for the earliest and the latest offset.

    For a timestamp: the base offsets of the segments up to the last one with an mtime at or before it, and the end
    offset if the timestamp is not before now. Largest first, at most `max_num_offsets`.
    Source: kafka.log.UnifiedLog.legacyFetchOffsetsBefore.
    """
    log, timestamp = partition.log, wanted.timestamp
    if timestamp < EARLIEST_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    offsets = [max(segment.base_offset, log.start_offset) for segment in log.segments]
    end = [partition.high_watermark] * (log.segments[-1].size_bytes > 0)
    if timestamp == EARLIEST_TIMESTAMP:
        offsets = offsets[:1]
    elif timestamp == LATEST_TIMESTAMP:
        offsets += end
    else:
        try:
            written_ms = [os.stat(segment.path).st_mtime_ns // 1_000_000 for segment in log.segments]
        except OSError as error:
            raise storage_error(f"cannot look at {log.topic}-{log.partition}", log.directory, error) from error
        written_ms += [now_ms] * len(end)
        found = max((i + 1 for i, time_ms in enumerate(written_ms) if time_ms <= timestamp), default=0)
        offsets = (offsets + end)[:found]
    newest_first = offsets[::-1][: max(wanted.max_num_offsets, 0)]
    return wire.ListOffsetsPartitionResponse(partition_index=wanted.partition_index, old_style_offsets=newest_first)


def _check_epoch(partition: Partition, known_by_client: int) -> None:
    """Here only -1 means that the client does not know the epoch; in a fetch, every negative epoch does."""
    if known_by_client < UNKNOWN:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    partition.check_epoch(known_by_client)


def _answer(
    index: int,
    *,
    code: ErrorCode = ErrorCode.NONE,
    offset: int = UNKNOWN,
    timestamp: int = UNKNOWN,
    leader_epoch: int = UNKNOWN,
) -> wire.ListOffsetsPartitionResponse:
    return wire.ListOffsetsPartitionResponse(
        partition_index=index, error_code=code, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )
