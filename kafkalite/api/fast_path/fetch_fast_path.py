"""The fast path of a fetch: parts of requests that repeat are decoded once and compared from then on.

A consumer of one partition without a session (librdkafka always, others by setting) repeats its request except for the
correlation id and the offset, and the answers differ in three numbers and the records. `FetchFastPath` remembers, for
one connection, all other bytes; equal bytes mean an equal request.

    key, version | correlation id | client, limits, topic, partition, epoch | offset | ..., more limits, rack
    ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^            ^^^^^^^^^^^^^^^^^^^^^^^ compared

From version 13 on topics have ids. The id is resolved when a request is learnt and compared at each call, because a
topic that is created again gets another id.
Two outcomes are decided here: enough records are available; or the partition is read to its end, and the fetch is
delayed. Everything else goes to the handler, also after the delay: errors, sessions, several partitions, records of
aborted transactions for a read_committed fetch, and requests that were learnt under another admission epoch
(`api/request/admission`).
Source: FetchRequest.json, FetchResponse.json.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from kafkalite.api.fast_path.answer_template import MARKS, NUMBERS, cut
from kafkalite.api.fast_path.wide_fetch import WideFetch
from kafkalite.api.handlers.fetch import FetchApi
from kafkalite.api.request.broker_endpoints import FindBroker
from kafkalite.api.request.fetch_reader import FIRST_VERSION_WITH_ZSTD, READ_COMMITTED
from kafkalite.api.request.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_VERSION_BY_ID,
    NO_SESSION,
    WantedPartition,
    replica_of,
)
from kafkalite.api.request.long_poll import WAIT_MS_MAX, LongPoll
from kafkalite.api.request.request_context import TOPIC, RequestContext
from kafkalite.api.request.throttling import fetch_wait_ms, quotas_of
from kafkalite.common.errors import KafkaError
from kafkalite.common.region import FileRegion, Part
from kafkalite.network.client_connection import Pending, ThrottledAnswer
from kafkalite.network.sender import COPIED_REGION_BYTES
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import write_uvarint
from kafkalite.protocol.header import decode_request_header, request_frame, response_frame
from kafkalite.protocol.messages import fetch as wire
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import Partition
from kafkalite.security.acl.acl import Operation
from kafkalite.security.quota.client_quotas import Counted

VERSION_MIN = 5
"""The first version whose answer has a log start offset."""

_KNOWN_MAX = 64  # of a connection, so that a thousand connections cannot take gigabytes
_FRAME_BYTES_MAX = 512
_MARK = -0x0102030405060708  # placeholder to find the place of an offset; its bytes cannot occur in UTF-8
_int32 = Struct(">i").pack
_int64 = Struct(">q").pack
_read_int32 = Struct(">i").unpack_from


class _KnownRequest:
    """The parameters of a request, and a template of its response with places for the numbers.

    Invariant: the topic may be read in this version as long as the admission epoch is `epoch`, and `max_bytes` and
    `min_bytes` follow from the settings until then.
    """

    __slots__ = (
        "behind", "epoch", "fixed_bytes", "index", "leader_epoch", "max_bytes", "max_wait_ms", "middle", "min_bytes",
        "pack", "quota", "reads_committed", "tail", "topic", "topic_id",
    )  # fmt: skip

    def __init__(
        self, request: wire.FetchRequest, version: int, topic: Topic, epoch: int, fetch_max_bytes: int
    ) -> None:
        wanted = request.topics[0].partitions[0]
        self.epoch = epoch
        self.quota: Counted | None = None  # used by `CountedFetchFastPath` alone
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.index = wanted.partition
        self.leader_epoch = wanted.current_leader_epoch
        self.max_bytes = min(max(0, min(request.max_bytes, wanted.partition_max_bytes)), fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, request.max_bytes, fetch_max_bytes)  # a response never holds more
        self.max_wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        self.reads_committed = request.isolation_level == READ_COMMITTED
        compact = version in wire.FetchResponse.flexible
        partition = wire.PartitionData(
            partition_index=self.index,
            high_watermark=MARKS[0],
            last_stable_offset=MARKS[1],
            log_start_offset=MARKS[2],
            aborted_transactions=[] if self.reads_committed else None,
            preferred_read_replica=-1,
            records=memoryview(b"\xa5"),
        )
        topics = [wire.FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=[partition])]
        self.middle, rest = cut(response_frame(wire.FetchResponse(responses=topics), version, 0))
        before_records, _, self.tail = rest.rpartition(b"\xa5")
        self.behind = before_records[: -1 if compact else -4]  # up to the length of the records
        self.pack = Struct(f">ii{len(self.middle)}sqqq{len(self.behind)}s").pack
        self.fixed_bytes = 4 + len(self.middle) + NUMBERS.size + len(self.behind) + len(self.tail)


class FetchFastPath:
    """The known requests of one connection, all of one version.

    `_layouts` maps the size of a frame to the function that splits it into key and version, correlation id, the bytes
    before the offset, the offset, and the bytes after it.
    """

    __slots__ = (
        "_api", "_by_id", "_by_name", "_epoch", "_find", "_known", "_layouts", "_slow_path", "_version", "_wide",
        "_write_length",
    )  # fmt: skip

    def __init__(self, slow_path: FetchApi, frame: memoryview, version: int, find: FindBroker) -> None:
        self._slow_path = slow_path
        self._version = version
        self._by_id = version >= FIRST_VERSION_BY_ID
        self._find = find
        self._by_name = slow_path.replica_manager.by_name
        self._epoch = slow_path.admission_epoch
        (self._api,) = _read_int32(frame)
        self._layouts: dict[int, Struct] = {}
        self._known: dict[tuple[bytes, bytes], _KnownRequest] = {}
        self._wide: WideFetch | None = None
        self._write_length = _compact_length if version in wire.FetchResponse.flexible else _int32

    def answer(self, frame: memoryview) -> list[Part] | Pending | None:
        try:
            api, correlation_id, before, offset, behind = self._layouts[len(frame)].unpack_from(frame)
            known = self._known[before, behind]
            topic = self._by_name[known.topic]
            partition = topic.partitions[known.index]
        except (LookupError, struct_error):
            return None if self._wide is None else self._wide.answer(frame)
        if api != self._api or not self._may_serve(known, topic, partition):
            return None
        limit_offset = partition.last_stable_offset if known.reads_committed else partition.high_watermark
        if offset == limit_offset:
            return DelayedFetch(self, known, partition, correlation_id, offset, frame)
        region = _read(known, partition, offset, limit_offset)
        if region is None or region.size < known.min_bytes:
            return None
        return self._response(known, partition, limit_offset, correlation_id, region)

    def learn(self, frame: memoryview, request: wire.FetchRequest, context: RequestContext) -> None:
        """Remember `frame`, the encoded `request`, if it is of a kind that repeats and is encoded canonically."""
        (named,) = request.topics
        (wanted,) = named.partitions
        topics = self._slow_path.replica_manager
        topic = topics.by_id.get(named.topic_id) if self._by_id else topics.by_name.get(named.topic)
        if topic is None or len(frame) > _FRAME_BYTES_MAX:
            return
        if not context.may(Operation.READ, TOPIC, topic.name):
            return
        if self._version < FIRST_VERSION_WITH_ZSTD and topic.config.compression_type == "zstd":
            return
        offset = wanted.fetch_offset
        wanted.fetch_offset = _MARK
        (correlation_id,) = _read_int32(frame, 4)
        template = request_frame(request, self._version, correlation_id, context.client_id)[4:]
        wanted.fetch_offset = offset
        at = template.find(_int64(_MARK))
        if at < 0 or template[:at] + _int64(offset) + template[at + 8 :] != frame:
            return
        layout = Struct(f">ii{at - 8}sq{len(frame) - at - 8}s")
        _, _, before, _, behind = layout.unpack_from(frame)
        if len(self._known) < _KNOWN_MAX or (before, behind) in self._known:
            self._layouts[len(frame)] = layout
            fetch_max_bytes = self._slow_path.config().fetch_max_bytes
            if (quotas := quotas_of(context.connection)) is not None:
                fetch_max_bytes = min(fetch_max_bytes, quotas.fetch_bytes_max)
            self._known[before, behind] = known = _KnownRequest(
                request, self._version, topic, self._epoch.value, fetch_max_bytes
            )
            known.quota = quotas.fetch if quotas is not None else None

    def learn_wide(self, frame: memoryview, request: wire.FetchRequest, context: RequestContext) -> None:
        """Remember `frame`, the encoded `request` for several partitions."""
        if self._wide is None:
            self._wide = WideFetch(self._slow_path, frame, context)
        self._wide.learn(frame, request, self._slow_path.config().fetch_max_bytes)

    def has_version_of(self, frame: memoryview) -> bool:
        return bool(_read_int32(frame)[0] == self._api)

    def complete(self, delayed: DelayedFetch, is_over: bool) -> list[Part] | int:
        """The answer after a delay; the missing bytes if the fetch is not satisfied and its time not over."""
        known, partition = delayed.known, delayed.partition
        topic = self._by_name.get(known.topic)
        limit_offset = partition.last_stable_offset if known.reads_committed else partition.high_watermark
        if (
            topic is not None
            and topic.partitions.get(known.index) is partition
            and self._may_serve(known, topic, partition)
            and delayed.offset <= limit_offset
        ):
            offset, min_bytes = delayed.offset, known.min_bytes
            region = _read(known, partition, offset, limit_offset)
            if not is_over and (region is None or region.size < min_bytes):
                countable = _countable_bytes(delayed, limit_offset)
                if countable < min_bytes:
                    return min_bytes - countable
            if region is not None or offset == limit_offset:
                return self._response(known, partition, limit_offset, delayed.correlation_id, region)
        header, position = decode_request_header(delayed.frame)
        request, _ = decode(wire.FetchRequest, self._version, delayed.frame, position)
        (named,) = request.topics
        wanted = WantedPartition((known.topic, known.index), named, named.partitions[0])
        wanted.topic, wanted.topic_id = known.topic, known.topic_id
        response = self._slow_path.answer_now(request, self._version, wanted, self._find)
        return self._within(
            known, header.correlation_id, response_frame(response, self._version, header.correlation_id)
        )

    def _within(self, known: _KnownRequest, correlation_id: int, answer: list[Part]) -> list[Part]:
        """The answer, if it may be sent."""
        return answer

    def _may_serve(self, known: _KnownRequest, topic: Topic, partition: Partition) -> bool:
        return (
            known.epoch == self._epoch.value
            and (known.leader_epoch < 0 or known.leader_epoch == partition.leader_epoch)
            and (known.topic_id is topic.topic_id or not self._by_id)
        )

    def _response(
        self,
        known: _KnownRequest,
        partition: Partition,
        limit_offset: int,
        correlation_id: int,
        region: FileRegion | None,
    ) -> list[Part]:
        size = 0 if region is None else region.size
        length = self._write_length(size)
        stable_offset = limit_offset if known.reads_committed else partition.last_stable_offset
        head: bytes = known.pack(
            known.fixed_bytes + len(length) + size, correlation_id, known.middle, partition.high_watermark,
            stable_offset, partition.log.start_offset, known.behind,
        )  # fmt: skip
        if region is None:
            return [head + length + known.tail]
        if size <= COPIED_REGION_BYTES:  # the sender would also read it, but would first have to split the response
            records = region.read_at_once()
            if records is not None:
                return [b"".join((head, length, records, known.tail))]
        if known.tail:
            return [head + length, region, known.tail]
        return [head + length, region]


class CountedFetchFastPath(FetchFastPath):
    """The same for a client with a quota: an answer beyond it is sent empty, and the client is muted."""

    __slots__ = ()

    def _response(
        self,
        known: _KnownRequest,
        partition: Partition,
        limit_offset: int,
        correlation_id: int,
        region: FileRegion | None,
    ) -> list[Part]:
        answer = super()._response(known, partition, limit_offset, correlation_id, region)
        return self._within(known, correlation_id, answer)

    def _within(self, known: _KnownRequest, correlation_id: int, answer: list[Part]) -> list[Part]:
        quota = known.quota
        if quota is None:
            return answer
        now_ms = self._slow_path.runtime.clock.monotonic_ms()
        size_bytes = sum(map(len, answer))
        if quota.rate.admit(size_bytes, now_ms) == 0:
            return answer
        wait_ms = fetch_wait_ms(quota.rate, size_bytes, now_ms)
        if not wait_ms:
            quota.rate.add(size_bytes, now_ms)
            return answer
        quota.throttle_times.add(wait_ms, now_ms)
        empty = wire.FetchResponse(throttle_time_ms=wait_ms)
        return ThrottledAnswer(response_frame(empty, self._version, correlation_id), wait_ms)


class DelayedFetch(Pending):
    """A fetch that waits at the end of a partition. Source: kafka.server.DelayedFetch."""

    __slots__ = ("_fast_path", "_poll", "correlation_id", "frame", "known", "offset", "partition")

    def __init__(
        self,
        fast_path: FetchFastPath,
        known: _KnownRequest,
        partition: Partition,
        correlation_id: int,
        offset: int,
        frame: memoryview,
    ) -> None:
        super().__init__(self._stop_waiting)
        self._fast_path = fast_path
        self.known = known
        self.partition = partition
        self.correlation_id = correlation_id
        self.offset = offset
        self.frame = memoryview(bytes(frame))  # a view would keep the whole receive buffer
        runtime = fast_path._slow_path.runtime
        self._poll = poll = LongPoll(runtime, known.max_wait_ms, known.min_bytes, self._try, known.reads_committed)
        partition.watch(poll)

    def _try(self, is_over: bool) -> int:
        if self.is_done:
            return 0
        try:
            answer = self._fast_path.complete(self, is_over)
        except Exception as reason:
            self.fail(reason)
            return 0
        if isinstance(answer, int):
            return answer
        self.answer(answer)
        return 0

    def _stop_waiting(self) -> None:
        self._poll.stop()
        del self._poll  # it refers to this


def learn(slow_path: FetchApi, context: RequestContext, frame: memoryview, request: wire.FetchRequest) -> None:
    """Remember a Fetch request if it is of a kind that repeats."""
    topics: list[wire.FetchTopic] = request.topics
    version = context.api_version
    if (
        version < VERSION_MIN
        or not topics
        or request.session_epoch != FINAL_EPOCH
        or request.session_id != NO_SESSION
        or request.forgotten_topics_data
        or request.min_bytes <= 0
        or request.max_bytes <= 0
        or request.max_wait_ms <= 0
        or replica_of(request)[0] >= 0
        or (request.rack_id and slow_path.config().replica_selector_class)  # another replica may be preferred
    ):
        return
    is_wide = len(topics) != 1 or len(topics[0].partitions) != 1
    if not is_wide and topics[0].partitions[0].last_fetched_epoch >= 0:
        return
    key, fast_paths = frame[1], context.connection.fast_paths
    fast_path = fast_paths.get(key)
    quotas = quotas_of(context.connection)
    kind = FetchFastPath if quotas is None or quotas.fetch is None else CountedFetchFastPath
    if is_wide and kind is CountedFetchFastPath:
        return
    if type(fast_path) is not kind or not fast_path.has_version_of(frame):
        find = slow_path.brokers.finder_for(context.connection)
        fast_path = fast_paths[key] = kind(slow_path, frame, version, find)
    if is_wide:
        fast_path.learn_wide(frame, request, context)
    else:
        fast_path.learn(frame, request, context)


def _read(known: _KnownRequest, partition: Partition, offset: int, limit_offset: int) -> FileRegion | None:
    """The records from `offset` on; None if there are none, or if the handler must answer, which reads again."""
    log = partition.log
    try:
        region = log.read(offset, known.max_bytes, limit_offset, True)
        if known.reads_committed and log.transactions.last_aborted_offset >= offset and region is not None:
            return None if log.transactions.aborted_in(region, offset) else region
        return region
    except KafkaError:
        return None


def _countable_bytes(delayed: DelayedFetch, limit_offset: int) -> int:
    known = delayed.known
    try:
        return delayed.partition.countable_bytes(delayed.offset, limit_offset, known.max_bytes)
    except KafkaError:
        return known.min_bytes  # the handler answers the error


def _compact_length(size: int) -> bytes:
    return write_uvarint(size + 1)
