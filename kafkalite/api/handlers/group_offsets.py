"""OffsetCommit, OffsetFetch, OffsetDelete: handed to the group coordinator, which keeps the offsets.

Version 0 of the first two is from before there was one: its offsets stand in ZooKeeper, whatever else the group has
committed. Without ZooKeeper it is refused partition by partition, as a Kafka without one does.
Source: KafkaApis.commitOffsetsToZookeeper and handleOffsetFetchRequestFromZookeeper (3.9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.group_offsets import Accepted, known_partitions
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from kafkalite.zk.cluster.legacy_offsets import LegacyOffsets

NO_OFFSET = -1


def offset_commit(
    services: Services, request: OffsetCommitRequest, call: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    if call.api_version == 0:
        return _commit_of_old(services, request)
    return services.groups.commit_offsets(request, call.api_version)


def offset_fetch(
    services: Services, request: OffsetFetchRequest, call: RequestContext
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if call.api_version == 0:
        return _fetch_of_old(services, request)
    return services.groups.fetch_offsets(request, call.api_version)


def offset_delete(services: Services, request: OffsetDeleteRequest, call: RequestContext) -> OffsetDeleteResponse:
    return services.groups.delete_offsets(request)


def _commit_of_old(
    services: Services, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    def exists(topic: str, partition: int) -> bool:
        return _exists(services, topic, partition)

    response, accepted = known_partitions(request, exists)
    if not accepted:
        return response
    if services.legacy_offsets is None:
        for topic in response.topics:
            for answer in topic.partitions:
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return response
    limit = services.config.offset_metadata_max_bytes
    taken = []
    for one in accepted:
        if len((one[1].committed_metadata or "").encode("utf-16-le")) // 2 > limit:
            one[2].error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            taken.append(one)
    return _commit_to_zookeeper(services.legacy_offsets, request.group_id, taken, response)


async def _commit_to_zookeeper(
    offsets: LegacyOffsets, group: str, taken: Accepted, response: OffsetCommitResponse
) -> OffsetCommitResponse:
    error = ErrorCode.NONE
    try:
        await offsets.commit(group, {(topic, one.partition_index): one.committed_offset for topic, one, _ in taken})
    except KafkaError as fault:
        error = fault.code
    for _, _, answer in taken:
        answer.error_code = error
    return response


def _fetch_of_old(
    services: Services, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    asked = dict.fromkeys((topic.name, index) for topic in request.topics or () for index in topic.partition_indexes)
    if services.legacy_offsets is None:
        return _fetched((partition, NO_OFFSET, ErrorCode.UNSUPPORTED_VERSION) for partition in asked)
    known = {partition: _exists(services, *partition) for partition in asked}
    return _fetch_from_zookeeper(services.legacy_offsets, request.group_id, known)


async def _fetch_from_zookeeper(
    offsets: LegacyOffsets, group: str, known: dict[TopicPartition, bool]
) -> OffsetFetchResponse:
    """`known` are the partitions that are asked for, and whether they exist."""
    there = [partition for partition, exists in known.items() if exists]
    try:
        found = await offsets.fetch(group, there)
    except KafkaError as fault:
        found = dict.fromkeys(there, (NO_OFFSET, fault.code))
    nothing = NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _fetched((partition, *found.get(partition, nothing)) for partition in known)


def _fetched(rows: Iterable[tuple[TopicPartition, int, ErrorCode]]) -> OffsetFetchResponse:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for (name, index), offset, error in rows:
        topic = topics.setdefault(name, OffsetFetchResponseTopic(name=name))
        topic.partitions.append(
            OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, error_code=error)
        )
    return OffsetFetchResponse(topics=list(topics.values()))


def _exists(services: Services, topic: str, partition: int) -> bool:
    record = services.metadata.topics.get(topic)
    return record is not None and partition in record.partitions
