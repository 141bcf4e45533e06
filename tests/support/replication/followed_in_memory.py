"""Followers and their leader over real sockets, with logs in memory: `FollowedPartition` is what a fetcher fetches, and
`Leader` answers it as a broker does, with fetch sessions. Both decide by the code of the broker."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Callable
from typing import Any

from kafkalite.api.request.fetch_sessions import FetchSessions, WantedPartition
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.listeners import ListenerConfig
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.header import RequestHeader, decode_request_header, response_frame
from kafkalite.protocol.messages.fetch import (
    EpochEndOffset as WireEpochEnd,
)
from kafkalite.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafkalite.protocol.messages.list_offsets import (
    EpochEndOffset as PartitionEpochEnd,
)
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kafkalite.replication.replica.effects import (
    Append,
    RaiseLogStart,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, check_epoch, diverging_epoch
from kafkalite.replication.replica.follower_replica import (
    FAILED,
    FENCED,
    LATEST,
    AskOffset,
    Fetch,
    FetchAnswer,
    FollowerReplica,
    Request,
)
from tests.support.manual_clock import ManualClock
from tests.support.replication.simulated_log import Record, SimulatedLog

_HEAD = struct.Struct(">qi")
_RECORD = struct.Struct(">iq")


def encoded(records: list[Record], padding: int = 0) -> bytes:
    """Batches as the fetcher sees them: base offset, length, and something; here epochs and values."""
    parts: list[bytes] = []
    at = 0
    while at < len(records):
        batch = [each for each in records[at:] if each.batch_offset == records[at].batch_offset]
        body = b"".join(_RECORD.pack(each.leader_epoch, each.value) for each in batch)
        body = struct.pack(">i", len(batch)) + body + bytes(padding)
        parts += [_HEAD.pack(batch[0].batch_offset, len(body)), body]
        at += len(batch)
    return b"".join(parts)


def decoded(data: memoryview) -> list[Record]:
    """The records of whole batches."""
    records: list[Record] = []
    position = 0
    while position + _HEAD.size <= len(data):
        offset, length = _HEAD.unpack_from(data, position)
        start = position + _HEAD.size
        position = start + length
        if position > len(data):
            break
        (count,) = struct.unpack_from(">i", data, start)
        for number in range(count):
            epoch, value = _RECORD.unpack_from(data, start + 4 + number * _RECORD.size)
            records.append(Record(epoch, value, offset))
    return records


class FollowedPartition:
    """A follower of one leader epoch. `refuses` is raised by the next append."""

    def __init__(
        self,
        topic: str,
        topic_id: uuid.UUID,
        index: int,
        log: SimulatedLog,
        leader_epoch: int = 1,
        leader_id: int = 2,
        *,
        truncates_on_fetch: bool = True,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.lag: int | None = None
        self.is_being_added = False
        self.on_ready: Callable[[], None] = lambda: None
        self.throttled_replicas: tuple[str, ...] = ()
        self.refuses: Exception | None = None
        self.taken: list[FetchAnswer] = []
        self.asked: list[Request] = []
        self.replica = FollowerReplica(
            leader_id, leader_epoch, log.as_seen(), truncates_on_fetch=truncates_on_fetch, backoff_ms=1000
        )

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def is_failed(self) -> bool:
        return self.replica.phase in (FENCED, FAILED)

    @property
    def retry_at_ms(self) -> float:
        return self.replica.retry_at_ms

    @property
    def values(self) -> list[int]:
        return [each.value for each in self.log.records]

    def begin(self) -> None:
        self._perform(self.replica.begin(self.log.as_seen()))

    def next_request(self, now_ms: float) -> Request | None:
        request = self.replica.next_request(self.log.as_seen(), now_ms)
        if request is not None:
            self.asked.append(request)
        return request

    def on_fetch(
        self, sent: Fetch, answer: FetchAnswer, records: memoryview | None, now_ms: float, wall_ms: int
    ) -> int:
        self.taken.append(answer)
        effects = self.replica.on_fetch(sent, answer, self.log.as_seen(), now_ms)
        try:
            self._perform(effects, decoded(records) if records is not None else [])
        except KafkaError as error:
            self._perform(self.replica.on_failure(error.code, now_ms))
            return 0
        if not answer.error:
            self.lag = max(0, answer.high_watermark - self.log.end_offset)
        appends = any(isinstance(each, Append) for each in effects)
        return len(records) if records is not None and appends else 0

    def on_epoch_end(self, error: ErrorCode, end: EpochEndOffset, now_ms: float) -> None:
        self._perform(self.replica.on_epoch_end(error, end, self.log.as_seen(), now_ms))

    def on_offset(self, sent: AskOffset, error: ErrorCode, offset: int, now_ms: float) -> None:
        self._perform(self.replica.on_offset(sent, error, offset, self.log.as_seen(), now_ms))

    def on_failure(self, error: ErrorCode, now_ms: float) -> None:
        self._perform(self.replica.on_failure(error, now_ms))

    def _perform(self, effects: Any, records: list[Record] | None = None) -> None:
        log = self.log
        for effect in effects:
            if isinstance(effect, Append):
                if self.refuses is not None:
                    refuses, self.refuses = self.refuses, None
                    raise refuses
                if records:
                    log.append(records)
                self._perform(self.replica.on_append(effect, log.as_seen()))
            elif isinstance(effect, SetHighWatermark):
                log.high_watermark = effect.offset
            elif isinstance(effect, RaiseLogStart):
                log.raise_start(effect.offset)
            elif isinstance(effect, TruncateTo):
                log.truncate_to(effect.offset)
            elif isinstance(effect, TruncateFullyAndStartAt):
                log.restart_at(effect.offset)


class LedPartition:
    """A partition at its leader. `padding`: bytes that each batch has in addition."""

    def __init__(self, topic: str, topic_id: uuid.UUID, index: int, leader_epoch: int = 1) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.log = SimulatedLog(flushes=False)
        self.padding = 0
        self.error = ErrorCode.NONE

    def follower(self, log: SimulatedLog | None = None, **how: Any) -> FollowedPartition:
        log = log or SimulatedLog(flushes=False)
        return FollowedPartition(self.topic, self.topic_id, self.index, log, self.leader_epoch, **how)


class Leader:
    """A broker that leads `partitions`. `requests` are those that have arrived. An answer waits for `gate`; a fetch
    without news waits until there is some, or until its connection has sent more."""

    def __init__(self, clock: ManualClock, *, slots: int = 10) -> None:
        self.clock = clock
        self.partitions: dict[tuple[uuid.UUID, int], LedPartition] = {}
        self.sessions = FetchSessions(slots)
        self.requests: list[Any] = []
        self.headers: list[RequestHeader] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.answers_early = True
        self.max_bytes = 1 << 40
        self._changed = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> ListenerConfig:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return ListenerConfig("PLAINTEXT", host, port)

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def lead(
        self, topic: str, index: int = 0, leader_epoch: int = 1, topic_id: uuid.UUID | None = None
    ) -> LedPartition:
        partition = LedPartition(topic, topic_id or uuid.uuid5(uuid.NAMESPACE_DNS, topic), index, leader_epoch)
        self.partitions[partition.topic_id, index] = partition
        return partition

    def append(self, partition: LedPartition, *values: int, commits: bool = True) -> None:
        for value in values:
            partition.log.append_values(partition.leader_epoch, [value])
        if commits:
            self.commit(partition, partition.log.end_offset)

    def commit(self, partition: LedPartition, offset: int) -> None:
        partition.log.high_watermark = offset
        self.tell()

    def tell(self) -> None:
        """Fetches that wait look again."""
        self._changed.set()

    @property
    def fetches(self) -> list[FetchRequest]:
        return [each for each in self.requests if isinstance(each, FetchRequest)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        frames: asyncio.Queue[memoryview | None] = asyncio.Queue()
        more = asyncio.ensure_future(self._read(reader, frames))
        try:
            while (frame := await frames.get()) is not None:
                header, position = decode_request_header(frame)
                request: Any = decode(APIS[header.api_key].request, header.api_version, frame, position)[0]
                self.headers.append(header)
                self.requests.append(request)
                answer = await self._answer(request, header.api_version, frames)
                await self.gate.wait()
                parts = response_frame(answer, header.api_version, header.correlation_id)
                writer.write(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]
        finally:
            more.cancel()
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, frames: asyncio.Queue[memoryview | None]) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frames.put_nowait(memoryview(await reader.readexactly(size)))
                self._changed.set()
        except (EOFError, OSError):
            frames.put_nowait(None)
            self._changed.set()

    async def _answer(self, request: Any, version: int, frames: asyncio.Queue[memoryview | None]) -> Any:
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._epoch_ends(request)
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        try:
            context = self.sessions.context(request, version, self.clock.monotonic_ms())
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        while True:
            self._changed.clear()
            found, has_news = [], not context.partitions
            left = self.max_bytes
            for wanted in context.partitions.values():
                data = self._look(wanted, left)
                left -= len(data.records or b"")
                has_news = has_news or bool(data.records) or bool(data.error_code) or data.diverging_epoch is not None
                told = wanted.sent_high_watermark, wanted.sent_start_offset
                has_news = has_news or told != (data.high_watermark, data.log_start_offset)
                found.append((wanted, data))
            if has_news or (self.answers_early and not frames.empty()):
                break
            await self._changed.wait()
        session = context.session
        told_now = [
            (wanted, data)
            for wanted, data in found
            if session is None or wanted.is_news(data) or not context.incremental
        ]
        topics = [FetchableTopicResponse(topic_id=wanted.topic_id, partitions=[data]) for wanted, data in told_now]
        return FetchResponse(session_id=context.session_id, responses=topics)

    def _look(self, wanted: WantedPartition, left: int) -> PartitionData:
        def refused(code: ErrorCode) -> PartitionData:
            return PartitionData(partition_index=wanted.index, error_code=code, high_watermark=-1, records=None)

        partition = self.partitions.get((wanted.topic_id, wanted.index))
        if partition is None:
            return refused(ErrorCode.UNKNOWN_TOPIC_ID)
        log = partition.log
        if error := partition.error or check_epoch(wanted.current_leader_epoch, partition.leader_epoch):
            return refused(error)
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=log.high_watermark,
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=None,
        )
        found = diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch, log.as_seen())
        if isinstance(found, EpochEndOffset):
            data.diverging_epoch = WireEpochEnd(epoch=found.leader_epoch, end_offset=found.end_offset)
        elif found:
            return refused(found)
        elif left > 0 and (records := log.read(wanted.fetch_offset, 1 << 30)):
            data.records = encoded(records, partition.padding)[: max(left, 0)]
        return data

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        results = []
        for topic in request.topics:
            for asked in topic.partitions:
                partition = self._by_name(topic.topic, asked.partition)
                result = PartitionEpochEnd(partition=asked.partition)
                result.error_code = partition.error or check_epoch(asked.current_leader_epoch, partition.leader_epoch)
                if not result.error_code:
                    log = partition.log
                    end = log.epochs.end_offset_for(asked.leader_epoch, log.end_offset)
                    result.leader_epoch, result.end_offset = end
                results.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=[result]))
        return OffsetForLeaderEpochResponse(topics=results)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        results = []
        for topic in request.topics:
            for asked in topic.partitions:
                partition = self._by_name(topic.name, asked.partition_index)
                log = partition.log
                offset = log.end_offset if asked.timestamp == LATEST else log.start_offset
                result = ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)
                result.error_code = partition.error
                results.append(ListOffsetsTopicResponse(name=topic.name, partitions=[result]))
        return ListOffsetsResponse(topics=results)

    def _by_name(self, topic: str, index: int) -> LedPartition:
        return next(each for each in self.partitions.values() if (each.topic, each.index) == (topic, index))
