"""OffsetCommit, OffsetFetch and OffsetDelete between the wire and a group's offsets.

A commit passes the partitions that exist and whose notes are short enough; they go to the log as one batch, and what
the log says becomes the answer of each. The first partition costs 6.5 us besides the append, each further one 2 us.
Source: kafka.coordinator.group.GroupMetadataManager.storeOffsets and getOffsets, KafkaApis (3.9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.group.group import Group
from kafkalite.coordinator.group.group_state import COMMIT_APPEND_FAULT
from kafkalite.coordinator.group.offset_store import CommittedOffset, OffsetStore
from kafkalite.coordinator.group.record_codec import KEY_TAIL, STRING_BYTES_MAX, offset_key_prefix, offset_value
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafkalite.protocol.records.group_records import NO_TIMESTAMP

Accepted = list[tuple[str, OffsetCommitRequestPartition, OffsetCommitResponsePartition]]
Asked = Sequence[tuple[str, Iterable[int]]]
Row = tuple[int, CommittedOffset]

NO_OFFSET = CommittedOffset(-1, -1, "", NO_TIMESTAMP)  # not an error: the group has not come there yet
NO_RETENTION_MS = -1
LONG_MAX = (1 << 63) - 1
FIRST_FETCH_WITH_TOP_LEVEL_ERROR = 2
FIRST_FETCH_OF_MANY_GROUPS = 8


def known_partitions(
    request: OffsetCommitRequest, exists: Callable[[str, int], bool]
) -> tuple[OffsetCommitResponse, Accepted]:
    """The response, in which partitions that do not exist have their error already, and those that do exist."""
    accepted: Accepted = []
    topics = []
    for topic in request.topics:
        name = topic.name
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            answer = OffsetCommitResponsePartition(partition_index=index)
            if exists(name, index):
                accepted.append((name, partition, answer))
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(answer)
        topics.append(OffsetCommitResponseTopic(name=name, partitions=answers))
    return OffsetCommitResponse(topics=topics), accepted


class Commit:
    """One OffsetCommit on its way through the log."""

    __slots__ = ("_commits", "_future", "_is_done", "_response", "_store")

    def __init__(self, store: OffsetStore, response: OffsetCommitResponse) -> None:
        self._store = store
        self._response = response
        self._commits: list[tuple[str, int, CommittedOffset, OffsetCommitResponsePartition]] = []
        self._future: asyncio.Future[OffsetCommitResponse] | None = None
        self._is_done = True

    def prepare(
        self, group_id: str, accepted: Accepted, retention_ms: int, metadata_bytes_max: int, now_ms: int
    ) -> list[tuple[bytes, bytes | None]]:
        """The records to append; `done` must hear how that went. Nothing if no partition is left."""
        expire_ms = NO_TIMESTAMP
        if retention_ms != NO_RETENTION_MS:  # kept within what the log can hold, where Kafka's sum wraps around
            expire_ms = min(max(now_ms + retention_ms, 0), LONG_MAX)
        order = self._store.next_order()
        records: list[tuple[bytes, bytes | None]] = []
        pack_index = KEY_TAIL.pack
        prefix_of = prefix = None
        for topic, partition, answer in accepted:
            metadata = partition.committed_metadata or ""
            if metadata and _is_too_long(metadata, metadata_bytes_max):
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            index = partition.partition_index
            since_ms = partition.commit_timestamp  # told in version 1 only
            if since_ms == NO_TIMESTAMP:
                since_ms = now_ms
            committed = CommittedOffset(
                partition.committed_offset, partition.committed_leader_epoch, metadata, since_ms, expire_ms, order
            )
            if prefix is None or topic is not prefix_of:
                prefix_of, prefix = topic, offset_key_prefix(group_id, topic)
            records.append((prefix + pack_index(index), offset_value(committed)))
            self._commits.append((topic, index, committed, answer))
        self._is_done = not records
        return records

    def done(self, error: ErrorCode) -> None:
        """The log has the records, or not."""
        self._is_done = True
        was_under_way = self._future is not None
        for topic, index, committed, answer in self._commits:
            if error:
                answer.error_code = COMMIT_APPEND_FAULT.get(error, error)
            # an offset that was removed while its commit was under way stays away
            if (not was_under_way or self._store.end((topic, index))) and not error:
                self._store.put(topic, index, committed)
        if self._future is not None and not self._future.done():
            self._future.set_result(self._response)

    def outcome(
        self, new_future: Callable[[], asyncio.Future[object]]
    ) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
        """The response if the log has answered, else a future of it."""
        if self._is_done:
            return self._response
        self._store.begin((topic, index) for topic, index, _, _ in self._commits)
        self._future = cast("asyncio.Future[OffsetCommitResponse]", new_future())
        return self._future


def _is_too_long(metadata: str, limit: int) -> bool:
    """Kafka's limit counts UTF-16 code units, as Java's strings do; the log's own counts bytes."""
    if metadata.isascii():
        return len(metadata) > min(limit, STRING_BYTES_MAX)
    return len(metadata.encode("utf-16-le")) // 2 > limit or len(metadata.encode()) > STRING_BYTES_MAX


def fetch_response(
    request: OffsetFetchRequest, api_version: int, find: Callable[[str], tuple[Group | None, ErrorCode]]
) -> OffsetFetchResponse:
    """What the groups have committed; null topics mean all of them, an empty list means none."""
    if api_version >= FIRST_FETCH_OF_MANY_GROUPS:
        groups = {each.group_id: each for each in request.groups}  # clients file the answers by group
        return OffsetFetchResponse(
            groups=[_group_response(name, _asked(each.topics), find(name)) for name, each in groups.items()]
        )
    asked = _asked(request.topics)
    group, fault = find(request.group_id)
    if fault and api_version >= FIRST_FETCH_WITH_TOP_LEVEL_ERROR:
        return OffsetFetchResponse(error_code=fault)
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=fault,
                )
                for index, committed in rows
            ],
        )
        for name, rows in _committed(group, asked)
    ]
    return OffsetFetchResponse(topics=topics)


def _group_response(
    group_id: str, asked: Asked | None, found: tuple[Group | None, ErrorCode]
) -> OffsetFetchResponseGroup:
    group, fault = found
    if fault:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=fault)
    topics = [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
                for index, committed in rows
            ],
        )
        for name, rows in _committed(group, asked)
    ]
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _asked(topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None) -> Asked | None:
    """A partition that is asked for twice is answered once, a topic without partitions not at all."""
    if topics is None:
        return None
    asked: dict[str, dict[int, None]] = {}
    for topic in topics:
        if topic.partition_indexes:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return list(asked.items())


def _committed(group: Group | None, asked: Asked | None) -> list[tuple[str, list[Row]]]:
    """Topic by topic what was asked for, or everything that there is."""
    if asked is None:
        if group is None:
            return []
        return [(topic, list(partitions.items())) for topic, partitions in group.offsets.by_topic.items()]
    if group is None:
        return [(topic, [(index, NO_OFFSET) for index in indexes]) for topic, indexes in asked]
    get = group.offsets.get
    return [(topic, [(index, get(topic, index) or NO_OFFSET) for index in indexes]) for topic, indexes in asked]


def deletion_codes(
    request: OffsetDeleteRequest, exists: Callable[[str, int], bool], is_subscribed: Callable[[str], bool]
) -> dict[TopicPartition, ErrorCode]:
    """What each partition is to hear; one that is named twice hears it once."""
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        name = topic.name
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(name) else ErrorCode.NONE
        for partition in topic.partitions:
            index = partition.partition_index
            codes[name, index] = code if exists(name, index) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return codes


def delete_response(codes: Mapping[TopicPartition, ErrorCode]) -> OffsetDeleteResponse:
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    for (name, index), code in codes.items():
        topic = topics.setdefault(name, OffsetDeleteResponseTopic(name=name))
        topic.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
    return OffsetDeleteResponse(topics=list(topics.values()))
