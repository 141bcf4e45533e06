"""The requests of a follower, with its fetch session, and the answers of a leader as values.

Fetch, OffsetForLeaderEpoch, ListOffsets. The versions are fixed: brokers do not ask each other for ApiVersions. Kafka
has had them since 3.5.
In a session a request names only the partitions whose parameters have changed; the leader keeps the others. So this end
must know the leader's session at any time: `_held` is its content after the request that was sent last. When that is
not sure (no answer came, or the answer does not fit), the next request names all partitions and opens a new session.
Source: kafka.server.RemoteLeaderEndPoint, org.apache.kafka.clients.FetchSessionHandler,
org.apache.kafka.common.requests.FetchMetadata, KIP-227, KIP-320, KIP-516, KIP-595, KIP-903.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.codec.schema import read_uvarint, write_uvarint
from kafkalite.protocol.header import decode_response
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
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
from kafkalite.record.batch import PREFIX_BYTES
from kafkalite.record.batches import find_bounds
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset
from kafkalite.replication.replica.follower_replica import AskEpochEnd, AskOffset, Fetch, FetchAnswer

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.replication.follower_partition import FollowerPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
_EPOCH_MAX = 0x7FFFFFFF
_ENDINGS_MAX = 2
_END_AGAIN_MS = 20

Key = tuple[bytes, int]
"""A partition: the id of its topic, as it travels, and its index."""


class WaitAtLeader:
    """The wait of the fetch in flight for records, and the requests that end it. `is_on`: there is one. `again_ms` is
    the time for another request; None when there have been enough.

    They are two at most: the first may have come together with the fetch, and then there was no wait yet.
    """

    __slots__ = ("_again_ms", "_count", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        self._count = 0
        self._again_ms = 0.0

    @property
    def again_ms(self) -> float | None:
        return self._again_ms if self._count < _ENDINGS_MAX else None

    def begin(self, now_ms: float) -> None:
        self.is_on = True
        self._count = 0
        self._again_ms = now_ms

    def end(self, now_ms: float) -> bool:
        """Whether to send a request that ends it."""
        if self._count >= _ENDINGS_MAX or now_ms < self._again_ms:
            return False
        self._count += 1
        self._again_ms = now_ms + _END_AGAIN_MS
        return True


class SessionRequest(NamedTuple):
    """The part of a fetch request that is about its session. With INITIAL_EPOCH `named` are all partitions."""

    session_id: int
    session_epoch: int
    named: dict[Key, Fetch]
    forgotten: list[Key]


class FetchSession:
    """`want` and `forget` decide the partitions of the next request. Partitions that changed last are named last, so
    that none starves behind a busy one."""

    __slots__ = ("_changed", "_epoch", "_held", "_wanted", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[Key, Fetch] = {}
        self._held: dict[Key, Fetch] = {}
        self._changed: dict[Key, None] = {}  # `_wanted` may differ from `_held`

    def __len__(self) -> int:
        """The number of partitions that the next request fetches."""
        return len(self._wanted)

    def want(self, key: Key, fetch: Fetch) -> None:
        """Fetch the partition from now on with these parameters."""
        if self._wanted.get(key) != fetch:
            self._wanted.pop(key, None)
            self._wanted[key] = fetch
            self._changed[key] = None

    def forget(self, key: Key) -> None:
        """Fetch the partition no more, until it is wanted again."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def sent(self, key: Key) -> Fetch | None:
        """The parameters of the request that was sent last; None if it does not fetch the partition."""
        return self._held.get(key)

    def next_request(self) -> SessionRequest:
        """The request to be sent now; it counts as sent."""
        wanted, held = self._wanted, self._held
        if self._epoch == INITIAL_EPOCH:
            self._held = dict(wanted)
            self._changed.clear()
            return SessionRequest(self.session_id, INITIAL_EPOCH, self._held, [])
        named: dict[Key, Fetch] = {}
        forgotten: list[Key] = []
        for key in self._changed:
            fetch = wanted.get(key)
            if fetch is None:
                if held.pop(key, None) is not None:
                    forgotten.append(key)
            elif held.get(key) != fetch:
                held[key] = named[key] = fetch
        self._changed.clear()
        return SessionRequest(self.session_id, self._epoch, named, forgotten)

    def on_answer(self, session_id: int) -> None:
        """The request was answered without an error. NO_SESSION: the leader keeps none."""
        if session_id == NO_SESSION or (self._epoch != INITIAL_EPOCH and session_id != self.session_id):
            self.session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self.session_id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def restart(self, *, closes: bool = True) -> None:
        """The next request opens a new session and, with `closes`, ends the present one: the leader may have it."""
        self._epoch = INITIAL_EPOCH
        if not closes:
            self.session_id = NO_SESSION


FETCH_VERSION = 15
EPOCH_VERSION = 4
OFFSETS_VERSION = 7

PIECE_BYTES_MAX = 1 << 20
_NO_RECORDS = memoryview(b"")
_FETCH_KEY = 1
_READ_UNCOMMITTED = 0
_write_header = struct.Struct(">ihhih").pack
_write_fetch = struct.Struct(">iiibii").pack
_write_partition = struct.Struct(">iiqiqiB").pack
_write_index = struct.Struct(">i").pack
_write_end = struct.Struct(">BBBBiqB").pack  # the rack, one tagged field: number, size, replica state
_read_answer = struct.Struct(">iBihiB").unpack_from
_read_partition = struct.Struct(">ihqqqBiB").unpack_from
_read_offset = struct.Struct(">q").unpack_from
_code_of = ErrorCode.of


# Fetch


def fetch_frame(
    session: SessionRequest, settings: BrokerConfig, broker_id: int, registration: int, correlation_id: int, name: bytes
) -> bytes:
    """A whole Fetch request, with its size. `name` is the client id.

    Packed here and not by way of a FetchRequest, which takes 8 us for one partition where this takes 3; a follower
    sends two requests for a record that comes alone. The tests compare both.
    """
    body = [
        _write_fetch(
            settings.replica_fetch_wait_max_ms,
            settings.replica_fetch_min_bytes,
            settings.replica_fetch_response_max_bytes,
            _READ_UNCOMMITTED,
            session.session_id,
            session.session_epoch,
        )
    ]
    max_bytes = settings.replica_fetch_max_bytes
    topics: dict[bytes, list[bytes]] = {}
    for (topic_id, index), (leader_epoch, fetch_offset, last_epoch, log_start_offset) in session.named.items():
        partition = _write_partition(index, leader_epoch, fetch_offset, last_epoch, log_start_offset, max_bytes, 0)
        if topic_id in topics:
            topics[topic_id].append(partition)
        else:
            topics[topic_id] = [partition]
    _write_topics(body, topics)
    forgotten: dict[bytes, list[bytes]] = {}
    for topic_id, index in session.forgotten:
        forgotten.setdefault(topic_id, []).append(_write_index(index))
    _write_topics(body, forgotten)
    body.append(_write_end(1, 1, 1, 13, broker_id, registration, 0))
    content = b"".join(body)
    size = 11 + len(name) + len(content)
    return b"%b%b\0%b" % (_write_header(size, _FETCH_KEY, FETCH_VERSION, correlation_id, len(name)), name, content)


def _write_topics(body: list[bytes], topics: dict[bytes, list[bytes]]) -> None:
    body.append(write_uvarint(len(topics) + 1))
    for topic_id, partitions in topics.items():
        body += (topic_id, write_uvarint(len(partitions) + 1), *partitions, b"\0")


class FetchedData(NamedTuple):
    """A leader's answer for one partition. `is_more`: further records of an answer that began with the one before."""

    key: Key
    answer: FetchAnswer
    records: memoryview | None
    is_more: bool


class FetchedAnswer(NamedTuple):
    """A leader's answer to a fetch: an error, or the session that it keeps and the partitions that have news."""

    error: ErrorCode
    session_id: int
    partitions: list[FetchedData]


def fetched(frame: memoryview) -> FetchedAnswer:
    """The answer in a response frame without its size. Raises Malformed.

    Records of more than PIECE_BYTES_MAX come in pieces, each as an answer of its own.
    """
    try:
        return _fetched_as_usual(frame)
    except (struct.error, IndexError):
        pass
    response: FetchResponse = decode_response(FetchRequest, FETCH_VERSION, frame)[1]
    found: list[FetchedData] = []
    for topic in response.responses:
        for data in topic.partitions:
            records = data.records if isinstance(data.records, memoryview) else _NO_RECORDS
            diverging = data.diverging_epoch
            if diverging is not None and diverging.epoch >= 0:
                end = EpochEndOffset(diverging.epoch, diverging.end_offset)
            else:
                end = None
            key = (topic.topic_id.bytes, data.partition_index)
            _add(found, key, _code_of(data.error_code), data.high_watermark, data.log_start_offset, end, records)
    return FetchedAnswer(_code_of(response.error_code), response.session_id, found)


def _fetched_as_usual(frame: memoryview) -> FetchedAnswer:
    """The same for an answer without optional parts: no diverging epochs, no aborted transactions, at most 126 topics
    and partitions of each. IndexError for another one. 2 us for one partition instead of 6."""
    _, tags, _, error, session_id, topic_count = _read_answer(frame)
    position = 16
    if tags or topic_count > 127 or not topic_count:
        raise IndexError
    found: list[FetchedData] = []
    for _ in range(topic_count - 1):
        topic_id = frame[position : position + 16].tobytes()
        partition_count = frame[position + 16]
        position += 17
        if partition_count > 127:
            raise IndexError
        for _ in range(partition_count - 1):
            index, code, high_watermark, _, start_offset, aborted, _, length = _read_partition(frame, position)
            position += 36
            if aborted > 1:
                raise IndexError
            if length > 127:
                length, position = read_uvarint(frame, position - 1)
            records = frame[position : position + length - 1] if length > 1 else _NO_RECORDS
            position += len(records)
            if frame[position]:
                raise IndexError
            position += 1
            _add(found, (topic_id, index), _code_of(code), high_watermark, start_offset, None, records)
        if frame[position]:
            raise IndexError
        position += 1
    if frame[position] or position + 1 != len(frame):
        raise IndexError
    return FetchedAnswer(_code_of(error), session_id, found)


def _add(
    found: list[FetchedData],
    key: Key,
    error: ErrorCode,
    high_watermark: int,
    log_start_offset: int,
    diverging: EpochEndOffset | None,
    records: memoryview,
) -> None:
    if len(records) < PREFIX_BYTES:
        found.append(FetchedData(key, FetchAnswer(error, high_watermark, log_start_offset, diverging), None, False))
        return
    is_more = False
    for piece in (records,) if len(records) <= PIECE_BYTES_MAX else pieces(records):
        (first_offset,) = _read_offset(piece)
        answer = FetchAnswer(error, high_watermark, log_start_offset, diverging, first_offset)
        found.append(FetchedData(key, answer, piece, is_more))
        is_more = True


def pieces(records: memoryview) -> Iterator[memoryview]:
    """The whole batches in parts of about PIECE_BYTES_MAX; a single batch may be larger. Without a whole batch: all,
    which the log refuses."""
    start = 0
    bounds, _ = find_bounds(records)
    for position, stop in pairwise(bounds):
        if stop - start > PIECE_BYTES_MAX and position > start:
            yield records[start:position]
            start = position
    if bounds[-1] > start or not start:
        yield records[start : bounds[-1] or len(records)]


# OffsetForLeaderEpoch and ListOffsets


def epoch_request(asked: Mapping[FollowerPartition, AskEpochEnd], broker_id: int) -> OffsetForLeaderEpochRequest:
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
        (topic.topic, each.partition): (_code_of(each.error_code), EpochEndOffset(each.leader_epoch, each.end_offset))
        for topic in response.topics
        for each in topic.partitions
    }


def offsets_request(asked: Mapping[FollowerPartition, AskOffset], broker_id: int) -> ListOffsetsRequest:
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
        (topic.name, each.partition_index): (_code_of(each.error_code), each.offset)
        for topic in response.topics
        for each in topic.partitions
    }
