"""The requests of a fetcher, and the answers of a leader as values: Fetch, OffsetForLeaderEpoch, ListOffsets.

The versions are fixed: brokers do not ask each other for ApiVersions. Kafka has had them since 3.5.
Source: kafka.server.RemoteLeaderEndPoint, KIP-320, KIP-516, KIP-595, KIP-903.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset
from kafkalite.replication.replica.follower_replica import AskEpochEnd, AskOffset, FetchAnswer

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.replication.fetcher.fetch_session import Key, SessionRequest
    from kafkalite.replication.fetcher.fetched_partition import FetchedPartition

FETCH_VERSION = 15
EPOCH_VERSION = 4
OFFSETS_VERSION = 7

PIECE_BYTES_MAX = 1 << 20
_BATCH_HEAD_BYTES = 12  # base offset and length
_CODES = {code.value: code for code in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """The code; UNKNOWN_SERVER_ERROR for one that is not known here."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


# Fetch


def fetch_request(session: SessionRequest, settings: BrokerConfig, broker_id: int, registration: int) -> FetchRequest:
    max_bytes = settings.replica_fetch_max_bytes
    topics: dict[UUID, FetchTopic] = {}
    for (topic_id, index), (leader_epoch, fetch_offset, last_epoch, log_start_offset) in session.named.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=fetch_offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=broker_id, replica_epoch=registration),
        max_wait_ms=settings.replica_fetch_wait_max_ms,
        min_bytes=settings.replica_fetch_min_bytes,
        max_bytes=settings.replica_fetch_response_max_bytes,
        isolation_level=0,
        session_id=session.session_id,
        session_epoch=session.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=_forgotten(session.forgotten) if session.forgotten else [],
        rack_id="",
    )


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for topic_id, index in keys:
        if topic_id not in topics:
            topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topics[topic_id].partitions.append(index)
    return list(topics.values())


class FetchedData(NamedTuple):
    """A leader's answer for one partition. `is_more`: further records of an answer that began with the one before."""

    key: Key
    answer: FetchAnswer
    records: memoryview | None
    is_more: bool


def fetched_data(response: FetchResponse) -> Iterator[FetchedData]:
    """The partitions of an answer. Records of more than PIECE_BYTES_MAX come in pieces, each as an answer of its
    own."""
    for topic in response.responses:
        topic_id = topic.topic_id
        for data in topic.partitions:
            key = (topic_id, data.partition_index)
            records = data.records
            if not isinstance(records, memoryview) or len(records) < _BATCH_HEAD_BYTES:
                yield FetchedData(key, _answer(data, None), None, False)
            elif len(records) <= PIECE_BYTES_MAX:
                yield FetchedData(key, _answer(data, int.from_bytes(records[:8], "big", signed=True)), records, False)
            else:
                is_more = False
                for piece in pieces(records):
                    first_offset = int.from_bytes(piece[:8], "big", signed=True)
                    yield FetchedData(key, _answer(data, first_offset), piece, is_more)
                    is_more = True


def _answer(data: PartitionData, first_offset: int | None) -> FetchAnswer:
    diverging = data.diverging_epoch
    return FetchAnswer(
        error_code(data.error_code) if data.error_code else ErrorCode.NONE,
        data.high_watermark,
        data.log_start_offset,
        EpochEndOffset(diverging.epoch, diverging.end_offset)
        if diverging is not None and diverging.epoch >= 0
        else None,
        first_offset,
    )


def pieces(records: memoryview) -> Iterator[memoryview]:
    """The whole batches in parts of about PIECE_BYTES_MAX; a single batch may be larger. Without a whole batch: all,
    which the log refuses."""
    start = position = 0
    size = len(records)
    while size - position >= _BATCH_HEAD_BYTES:
        stop = position + _BATCH_HEAD_BYTES + int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
        if not position + _BATCH_HEAD_BYTES < stop <= size:
            break
        if stop - start > PIECE_BYTES_MAX and position > start:
            yield records[start:position]
            start = position
        position = stop
    if position > start or not start:
        yield records[start : position or size]


# OffsetForLeaderEpoch and ListOffsets


def epoch_request(asked: Mapping[FetchedPartition, AskEpochEnd], broker_id: int) -> OffsetForLeaderEpochRequest:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for partition, ask in asked.items():
        if partition.topic not in topics:
            topics[partition.topic] = OffsetForLeaderTopic(topic=partition.topic, partitions=[])
        topics[partition.topic].partitions.append(
            OffsetForLeaderPartition(
                partition=partition.index, current_leader_epoch=ask.leader_epoch, leader_epoch=ask.epoch
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=broker_id, topics=list(topics.values()))


def epoch_ends(response: OffsetForLeaderEpochResponse) -> dict[tuple[str, int], tuple[ErrorCode, EpochEndOffset]]:
    return {
        (topic.topic, each.partition): (error_code(each.error_code), EpochEndOffset(each.leader_epoch, each.end_offset))
        for topic in response.topics
        for each in topic.partitions
    }


def offsets_request(asked: Mapping[FetchedPartition, AskOffset], broker_id: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, ask in asked.items():
        if partition.topic not in topics:
            topics[partition.topic] = ListOffsetsTopic(name=partition.topic, partitions=[])
        topics[partition.topic].partitions.append(
            ListOffsetsPartition(
                partition_index=partition.index, current_leader_epoch=ask.leader_epoch, timestamp=ask.timestamp
            )
        )
    return ListOffsetsRequest(replica_id=broker_id, isolation_level=0, topics=list(topics.values()))


def offsets(response: ListOffsetsResponse) -> dict[tuple[str, int], tuple[ErrorCode, int]]:
    return {
        (topic.name, each.partition_index): (error_code(each.error_code), each.offset)
        for topic in response.topics
        for each in topic.partitions
    }
