"""The short way of a fetch: what repeats in a consumer's requests is decoded once and compared from then on.

A consumer of one partition that has no session (librdkafka always, others by setting) asks the same again and again but
for the correlation id and the offset, and the answers differ in three numbers and the records. `FetchFastPath`
remembers, for one connection, everything around these; the same bytes mean the same request.

    key, version | correlation id | who, limits, topic, partition, epoch | offset | ..., more limits, rack
    ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^            ^^^^^^^^^^^^^^^^^^^^^^^ compared

From version 13 on the topic is an id, which is resolved when a request is learnt and looked at again at each call: a
topic that was made again under its name has another.
Only two outcomes are decided here: there are records, enough of them; or the partition is read to its end, and the
fetch waits. Everything else (errors, sessions, several partitions) takes the long way, also after a wait.
Source: FetchRequest.json, FetchResponse.json.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING

from kafkalite.api.handlers.fetch import FIRST_VERSION_WITH_ZSTD, READ_COMMITTED, WAIT_MS_MAX, answer_now
from kafkalite.api.request.fetch_sessions import FINAL_EPOCH, FIRST_VERSION_BY_ID, NO_SESSION, WantedPartition
from kafkalite.common.errors import KafkaError
from kafkalite.network.client_connection import DeferredResponse
from kafkalite.network.sender import COPIED_REGION_BYTES
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.primitives import write_uvarint
from kafkalite.protocol.header import decode_request_header, request_frame, response_frame
from kafkalite.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kafkalite.replication.partition import DelayedOperation, Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.api.request.broker_endpoints import BrokerEndpoint
    from kafkalite.api.request.services import Services
    from kafkalite.common.region import FileRegion, Part
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.replication.replica_manager import Topic

VERSION_MIN = 5
"""The first version whose answer has a log start offset."""

_ROUTES_MAX = 64  # of a connection, so that a thousand of them cannot make it remember gigabytes
_FRAME_BYTES_MAX = 512
_MARK = -0x0102030405060708  # stands for an offset where its place is looked for; in UTF-8 there are no such bytes
_MARKS = (0x6B61666B616C6974, 0x6261736520202020, 0x7374617274202020)
_NUMBERS = Struct(">qqq")
_int32 = Struct(">i").pack
_int64 = Struct(">q").pack
_read_int32 = Struct(">i").unpack_from


class _Route:
    """What is wanted, and the answer with room for its numbers."""

    __slots__ = (
        "behind", "fixed_bytes", "index", "leader_epoch", "max_bytes", "max_wait_ms", "middle", "min_bytes", "pack",
        "tail", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, request: FetchRequest, version: int, topic: Topic) -> None:
        wanted = request.topics[0].partitions[0]
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.index = wanted.partition
        self.leader_epoch = wanted.current_leader_epoch
        self.max_bytes = max(0, min(request.max_bytes, wanted.partition_max_bytes))
        self.min_bytes = min(request.min_bytes, request.max_bytes)
        self.max_wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        compact = version in FetchResponse.flexible
        partition = PartitionData(
            partition_index=self.index,
            high_watermark=_MARKS[0],
            last_stable_offset=_MARKS[1],
            log_start_offset=_MARKS[2],
            aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
            preferred_read_replica=-1,
            records=memoryview(b"\xa5"),
        )
        topics = [FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=[partition])]
        template = b"".join(response_frame(FetchResponse(responses=topics), version, 0))  # type: ignore[arg-type]
        at = template.index(_NUMBERS.pack(*_MARKS))
        self.tail = template[template.rindex(b"\xa5") + 1 :]
        self.middle = template[8:at]
        # up to the length of the records, which is one byte or four
        self.behind = template[at + _NUMBERS.size : len(template) - len(self.tail) - 1 - (1 if compact else 4)]
        self.pack = Struct(f">ii{len(self.middle)}sqqq{len(self.behind)}s").pack
        self.fixed_bytes = 4 + len(self.middle) + _NUMBERS.size + len(self.behind) + len(self.tail)


class FetchFastPath:
    """The repeated requests of one connection, all of one version. Call it with a frame; None: take the long way.

    `_layouts`: size of a frame -> how to cut it into key and version, correlation id, what is before the offset, the
    offset, what is behind it.
    """

    __slots__ = (
        "_api", "_by_id", "_by_name", "_find", "_layouts", "_routes", "_services", "_version", "_write_length",
    )  # fmt: skip

    def __init__(
        self, services: Services, frame: memoryview, version: int, find: Callable[[int], BrokerEndpoint | None]
    ) -> None:
        self._services = services
        self._version = version
        self._by_id = version >= FIRST_VERSION_BY_ID
        self._find = find
        self._by_name = services.topics.by_name
        (self._api,) = _read_int32(frame)
        self._layouts: dict[int, Struct] = {}
        self._routes: dict[tuple[bytes, bytes], _Route] = {}
        self._write_length = _compact_length if version in FetchResponse.flexible else _int32

    def __call__(self, frame: memoryview) -> list[Part] | DeferredResponse | None:
        try:
            api, correlation_id, before, offset, behind = self._layouts[len(frame)].unpack_from(frame)
            route = self._routes[before, behind]
            topic = self._by_name[route.topic]
            partition = topic.partitions[route.index]
        except (LookupError, struct_error):
            return None
        if api != self._api or not self._may_serve(route, topic, partition):
            return None
        if offset == partition.high_watermark:
            return ParkedFetch(self, route, partition, correlation_id, offset, frame)
        region = self._read(route, partition, offset)
        if region is None or region.size < route.min_bytes:
            return None
        return self._answer(route, partition, correlation_id, region)

    def learn(self, frame: memoryview, request: FetchRequest, client_id: str | None) -> None:
        """Remember `frame`, which is this request, if it can come again and is written in the usual way."""
        (named,) = request.topics
        (wanted,) = named.partitions
        topics = self._services.topics
        topic = topics.by_id.get(named.topic_id) if self._by_id else topics.by_name.get(named.topic)
        if topic is None or len(self._routes) >= _ROUTES_MAX or len(frame) > _FRAME_BYTES_MAX:
            return
        offset = wanted.fetch_offset
        wanted.fetch_offset = _MARK
        (correlation_id,) = _read_int32(frame, 4)
        template = request_frame(request, self._version, correlation_id, client_id)[4:]
        wanted.fetch_offset = offset
        at = template.find(_int64(_MARK))
        if at < 0 or template[:at] + _int64(offset) + template[at + 8 :] != frame:
            return
        layout = Struct(f">ii{at - 8}sq{len(frame) - at - 8}s")
        self._layouts[len(frame)] = layout
        _, _, before, _, behind = layout.unpack_from(frame)
        self._routes[before, behind] = _Route(request, self._version, topic)

    def is_of(self, frame: memoryview) -> bool:
        """Whether `frame` has this lane's version."""
        return bool(_read_int32(frame)[0] == self._api)

    def look_again(self, parked: ParkedFetch) -> list[Part]:
        """What is to be said of a partition after a wait."""
        route, partition = parked.route, parked.partition
        topic = self._by_name.get(route.topic)
        if (
            topic is not None
            and topic.partitions.get(route.index) is partition
            and self._may_serve(route, topic, partition)
            and parked.offset <= partition.high_watermark
        ):
            region = self._read(route, partition, parked.offset)
            if region is not None or parked.offset == partition.high_watermark:
                return self._answer(route, partition, parked.correlation_id, region)
        header, position = decode_request_header(parked.frame)
        request, _ = decode(FetchRequest, self._version, parked.frame, position)
        (named,) = request.topics
        wanted = WantedPartition((route.topic, route.index), named, named.partitions[0])
        wanted.topic, wanted.topic_id = route.topic, route.topic_id
        response = answer_now(self._services, request, self._version, wanted, self._find)
        return response_frame(response, self._version, header.correlation_id)

    def _may_serve(self, route: _Route, topic: Topic, partition: Partition) -> bool:
        return (
            (route.leader_epoch < 0 or route.leader_epoch == partition.leader_epoch)
            and (self._version >= FIRST_VERSION_WITH_ZSTD or topic.config.compression_type != "zstd")
            and (route.topic_id is topic.topic_id or not self._by_id)
        )

    def _read(self, route: _Route, partition: Partition, offset: int) -> FileRegion | None:
        try:
            return partition.read(offset, min(route.max_bytes, self._services.config.fetch_max_bytes), True)
        except KafkaError:
            return None  # the long way reads again, and says it

    def _answer(
        self, route: _Route, partition: Partition, correlation_id: int, region: FileRegion | None
    ) -> list[Part]:
        size = 0 if region is None else region.size
        length = self._write_length(size)
        head: bytes = route.pack(
            route.fixed_bytes + len(length) + size, correlation_id, route.middle, partition.high_watermark,
            partition.last_stable_offset, partition.log.start_offset, route.behind,
        )  # fmt: skip
        if region is None:
            return [head + length + route.tail]
        if size <= COPIED_REGION_BYTES:  # the sender would read it too, but only after taking the answer apart
            records = region.read_at_once()
            if records is not None:
                return [b"".join((head, length, records, route.tail))]
        if route.tail:
            return [head + length, region, route.tail]
        return [head + length, region]


class ParkedFetch(DeferredResponse):
    """A fetch that waits at the end of a partition."""

    __slots__ = ("_lane", "_timer", "_waiter", "correlation_id", "frame", "offset", "partition", "route")

    def __init__(
        self,
        lane: FetchFastPath,
        route: _Route,
        partition: Partition,
        correlation_id: int,
        offset: int,
        frame: memoryview,
    ) -> None:
        super().__init__(self._leave)
        self._lane = lane
        self.route = route
        self.partition = partition
        self.correlation_id = correlation_id
        self.offset = offset
        self.frame = memoryview(bytes(frame))  # a view of what was received would keep all of it
        services = lane._services
        # more than an answer may hold will never come
        missing_bytes = min(route.min_bytes, services.config.fetch_max_bytes)
        self._waiter = DelayedOperation(missing_bytes, self._look, services.runtime.loop.call_soon)
        self._timer = services.runtime.clock.call_later(route.max_wait_ms, self._waiter.wake)
        self._waiter.wait_on(partition)

    def _look(self) -> None:
        if not self.settled:
            try:
                answer = self._lane.look_again(self)
            except Exception as reason:
                self.fail(reason)
            else:
                self.answer(answer)

    def _leave(self) -> None:
        self._timer.cancel()
        self._waiter.withdraw()
        del self._waiter, self._timer  # they know this reply: it would be left to the collector, with its frame


def remember(
    services: Services,
    peer: ClientConnection,
    frame: memoryview,
    version: int,
    client_id: str | None,
    request: FetchRequest,
) -> None:
    """`peer` sent this request the long way: if it is of the kind that comes again, give its successors a lane."""
    topics: list[FetchTopic] = request.topics
    if (
        version < VERSION_MIN
        or len(topics) != 1
        or len(topics[0].partitions) != 1
        or request.session_epoch != FINAL_EPOCH
        or request.session_id != NO_SESSION
        or request.forgotten_topics_data
        or request.min_bytes <= 0
        or request.max_bytes <= 0
        or request.max_wait_ms <= 0
    ):
        return
    wanted: FetchPartition = topics[0].partitions[0]
    if wanted.last_fetched_epoch >= 0:
        return
    key = frame[1]
    lane = peer.lanes.get(key)
    if not isinstance(lane, FetchFastPath) or not lane.is_of(frame):
        lane = peer.lanes[key] = FetchFastPath(services, frame, version, services.brokers.finder_for(peer))
    lane.learn(frame, request, client_id)


def _compact_length(size: int) -> bytes:
    return write_uvarint(size + 1)
