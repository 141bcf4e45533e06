"""The fast path of a fetch of many partitions without a session, as librdkafka and consumers of other languages send.

Such requests of one client begin and end alike and name the same topics, but each time in another order and with other
offsets. So `WideFetch` remembers what requests begin and end with, and the topics, and takes the partitions apart as
the records of fixed size that they are. Without objects for a partition it costs half of what the handler does.

    key, version | correlation id | client, limits | topics: name or id | partitions: epoch, offset, ... | rack
                                    ^^^^^^^^^^^^^^            ^^^^^^^^^^ looked up                          ^^^^

It decides nothing, as `FetchFastPath`. Two outcomes: the partitions have enough records; or each is read to its end,
and the fetch is delayed (`DelayedWideFetch`). Whatever is unusual in one partition, such as an error or an aborted
transaction, lets the handler answer all of them, also after a delay.
Source: FetchRequest.json, FetchResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error

from kafkalite.api.handlers.fetch import FetchApi
from kafkalite.api.request.fetch_reader import FIRST_VERSION_WITH_ZSTD, READ_COMMITTED
from kafkalite.api.request.fetch_sessions import FIRST_VERSION_BY_ID, FetchContext, wanted_partitions
from kafkalite.api.request.long_poll import WAIT_MS_MAX, LongPoll
from kafkalite.api.request.request_context import TOPIC, RequestContext
from kafkalite.common.errors import KafkaError, Malformed
from kafkalite.common.region import FileRegion, Part
from kafkalite.network.client_connection import Pending
from kafkalite.network.sender import COPIED_REGION_BYTES
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import read_uvarint, write_uvarint
from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages import fetch as wire
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import Partition
from kafkalite.security.acl.acl import Operation

_HEADS_MAX = 4
_TOPICS_MAX = 256  # of a connection, so that a thousand connections take tens of megabytes
_HEAD_AT = 8
_ID_BYTES = 16
_FIRST_VERSION_WITH_SESSION = 7
_FIRST_VERSION_WITH_EPOCH = 9
_FIRST_VERSION_WITH_PREFERRED_REPLICA = 11
_FIRST_VERSION_WITHOUT_REPLICA_ID = 15
_int32 = Struct(">i").pack
_read_int32 = Struct(">i").unpack_from
_pack_partition = Struct(">ihqqq").pack


class _KnownTopic:
    """A topic in requests that begin with the same bytes; `answer_head` is its name or id in a response."""

    __slots__ = ("answer_head", "partitions", "topic")

    def __init__(self, topic: Topic, answer_head: bytes) -> None:
        self.topic = topic
        self.partitions = topic.partitions
        self.answer_head = answer_head


class _KnownHead:
    """Requests that begin and end with the same bytes. Invariant: their topics may be read in this version as long as
    the admission epoch is `epoch`, and `max_bytes` and `min_bytes` follow from the settings until then."""

    __slots__ = (
        "behind_offsets", "empty", "epoch", "max_bytes", "max_wait_ms", "min_bytes", "reads_committed", "tail",
        "topics",
    )  # fmt: skip

    def __init__(self, request: wire.FetchRequest, version: int, epoch: int, fetch_max_bytes: int, tail: bytes) -> None:
        self.epoch = epoch
        self.tail = tail
        self.max_bytes = min(request.max_bytes, fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)  # a response never holds more
        self.max_wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        self.reads_committed = request.isolation_level == READ_COMMITTED
        self.topics: dict[bytes, _KnownTopic] = {}
        # behind the offsets of a partition: the aborted transactions, none, and the preferred replica, none
        flexible = version in wire.FetchResponse.flexible
        if flexible:
            self.behind_offsets = b"\1" if self.reads_committed else b"\0"
        else:
            self.behind_offsets = _int32(0 if self.reads_committed else -1)
        if version >= _FIRST_VERSION_WITH_PREFERRED_REPLICA:
            self.behind_offsets += _int32(-1)
        self.empty = self.behind_offsets + (b"\1\0" if flexible else _int32(0))


_Read = tuple[Partition, int, FileRegion | None]
"""A partition, its last stable offset, and its records, if there are any."""


class Wanted:
    """The partitions of a request as they are now, in its order. `topics` has their number for each topic."""

    __slots__ = ("read", "size_bytes", "topics")

    def __init__(self) -> None:
        self.topics: list[tuple[_KnownTopic, int]] = []
        self.read: list[_Read] = []
        self.size_bytes = 0


class WideFetch:
    """The known requests of one connection, all of one version."""

    __slots__ = (
        "_api", "_by_name", "_context", "_entry", "_epoch", "_flexible", "_slow_path", "_topics_at", "_version",
        "heads",
    )  # fmt: skip

    def __init__(self, slow_path: FetchApi, frame: memoryview, context: RequestContext) -> None:
        self._slow_path = slow_path
        self._version = version = context.api_version
        self._context = context
        self._epoch = slow_path.admission_epoch
        self._by_name = slow_path.replica_manager.by_name
        self._api = bytes(frame[:4])
        self._flexible = version in wire.FetchRequest.flexible
        _, body_at = decode_request_header(frame)
        # replica id, max_wait_ms, min_bytes, max_bytes, isolation level, session
        has_replica_id, has_session = (
            version < _FIRST_VERSION_WITHOUT_REPLICA_ID,
            version >= _FIRST_VERSION_WITH_SESSION,
        )
        self._topics_at = body_at + (4 if has_replica_id else 0) + 13 + (8 if has_session else 0)
        # partition, leader epoch, fetch offset, last fetched epoch, log start offset, limit, tags
        epoch = "i" if version >= _FIRST_VERSION_WITH_EPOCH else ""
        self._entry = Struct(">iiqiqiB" if self._flexible else f">i{epoch}qqi")
        self.heads: dict[bytes, _KnownHead] = {}

    def answer(self, frame: memoryview) -> list[Part] | Pending | None:
        head = self.heads.get(frame[_HEAD_AT : self._topics_at].tobytes())
        if head is None or frame[:4] != self._api:
            return None
        wanted = Wanted()
        if not self.read(frame, head, wanted):
            return None
        if wanted.size_bytes >= head.min_bytes or head.max_wait_ms <= 0:
            return self.respond(head, wanted, _read_int32(frame, 4)[0])
        if wanted.size_bytes:
            return None  # there is more than nothing, and less than enough
        return DelayedWideFetch(self, head, frame, [partition for partition, _, _ in wanted.read])

    def read(self, frame: memoryview, head: _KnownHead, wanted: Wanted) -> bool:
        """Read the partitions of a request; False if the handler must answer it."""
        if head.epoch != self._epoch.value:
            return False
        try:
            return self._read_topics(frame, head, wanted)
        except (LookupError, struct_error, Malformed, KafkaError):
            return False

    def _read_topics(self, frame: memoryview, head: _KnownHead, wanted: Wanted) -> bool:
        flexible, by_id, entry_bytes = self._flexible, self._version >= FIRST_VERSION_BY_ID, self._entry.size
        topics, by_name = head.topics, self._by_name
        if flexible:
            topic_count, at = read_uvarint(frame, self._topics_at)
            topic_count -= 1
        else:
            (topic_count,), at = _read_int32(frame, self._topics_at), self._topics_at + 4
        seen = set()
        for _ in range(topic_count):
            behind = at + _ID_BYTES
            if not by_id:
                if flexible:
                    size, at = read_uvarint(frame, at)
                    size -= 1
                else:
                    size, at = frame[at] << 8 | frame[at + 1], at + 2
                behind = at + size
            known = topics[frame[at:behind].tobytes()]
            if by_name.get(known.topic.name) is not known.topic:
                return False
            if flexible:
                count, start = read_uvarint(frame, behind)
                count -= 1
            else:
                (count,), start = _read_int32(frame, behind), behind + 4
            at = start + count * entry_bytes
            if count <= 0 or at > len(frame) or not self._read_partitions(frame[start:at], head, known, wanted):
                return False
            if flexible and frame[at]:
                return False
            at += flexible
            seen.add(known)
            wanted.topics.append((known, count))
        return bool(seen) and len(seen) == topic_count and frame[at:] == head.tail

    def _read_partitions(self, entries: memoryview, head: _KnownHead, known: _KnownTopic, wanted: Wanted) -> bool:
        """Read the partitions of one topic. Raises KeyError for one that is not led here, and KafkaError."""
        partitions, flexible, read = known.partitions, self._flexible, wanted.read
        reads_committed, has_epoch = head.reads_committed, self._version >= _FIRST_VERSION_WITH_EPOCH
        seen = set()
        leader_epoch = last_epoch = -1
        for entry in self._entry.iter_unpack(entries):
            if flexible:
                index, leader_epoch, offset, last_epoch, _, max_bytes, tags = entry
                if tags or last_epoch >= 0:
                    return False
            elif has_epoch:
                index, leader_epoch, offset, _, max_bytes = entry
            else:
                index, offset, _, max_bytes = entry
            seen.add(index)
            partition = partitions[index]
            if leader_epoch >= 0 and leader_epoch != partition.leader_epoch:
                return False
            stable_offset = partition.last_stable_offset
            limit_offset = stable_offset if reads_committed else partition.high_watermark
            if offset == limit_offset:
                read.append((partition, stable_offset, None))
                continue
            log = partition.log
            left = head.max_bytes - wanted.size_bytes
            max_bytes = min(max_bytes, left)
            is_first = not wanted.size_bytes  # KIP-74: its first batch is sent regardless of its size
            if offset > limit_offset or offset < log.start_offset:
                return False
            region = None
            if max_bytes > 0 or is_first:
                region = log.read(offset, max(max_bytes, 0), limit_offset, is_first)
            if region is not None:
                transactions = log.transactions
                if (
                    reads_committed
                    and transactions.last_aborted_offset >= offset
                    and transactions.aborted_in(region, offset)
                ):
                    return False
                wanted.size_bytes += region.size
            read.append((partition, stable_offset, region))
        return len(seen) * self._entry.size == len(entries)

    def respond(self, head: _KnownHead, wanted: Wanted, correlation_id: int) -> list[Part]:
        """The response with what was read."""
        flexible, behind_offsets, empty = self._flexible, head.behind_offsets, head.empty
        parts: list[Part] = []
        pieces = [b"", _int32(correlation_id), b"\0" if flexible else b"", _int32(0)]  # of the throttle time
        if self._version >= _FIRST_VERSION_WITH_SESSION:
            pieces.append(b"\0\0" + _int32(0))  # error and session
        pieces.append(write_uvarint(len(wanted.topics) + 1) if flexible else _int32(len(wanted.topics)))
        each = iter(wanted.read)
        size_bytes = 0
        for known, count in wanted.topics:
            pieces.append(known.answer_head + (write_uvarint(count + 1) if flexible else _int32(count)))
            for _ in range(count):
                partition, stable_offset, region = next(each)
                offsets = _pack_partition(
                    partition.index, 0, partition.high_watermark, stable_offset, partition.log.start_offset
                )
                if region is None:
                    pieces.append(offsets + empty)
                    continue
                size = region.size
                pieces.append(offsets + behind_offsets + (write_uvarint(size + 1) if flexible else _int32(size)))
                records = region.read_at_once() if size <= COPIED_REGION_BYTES else None
                if records is None:
                    parts += (b"".join(pieces), region)
                    size_bytes += size
                    pieces = []
                else:
                    pieces.append(records)  # type: ignore[arg-type]
                if flexible:
                    pieces.append(b"\0")
            if flexible:
                pieces.append(b"\0")
        if flexible:
            pieces.append(b"\0")
        if pieces:
            parts.append(b"".join(pieces))
        parts[0] = _int32(sum(map(len, parts))) + parts[0]  # type: ignore[operator]
        return parts

    def _tail_of(self, request: wire.FetchRequest) -> bytes:
        """The bytes behind the topics: no topic that is forgotten, the rack, no tags."""
        rack = request.rack_id.encode()
        if self._flexible:
            return b"\1" + write_uvarint(len(rack) + 1) + rack + b"\0"
        tail = _int32(0) if self._version >= _FIRST_VERSION_WITH_SESSION else b""
        if self._version >= _FIRST_VERSION_WITH_PREFERRED_REPLICA:
            tail += len(rack).to_bytes(2, "big") + rack
        return tail

    def learn(self, frame: memoryview, request: wire.FetchRequest, fetch_max_bytes: int) -> None:
        """Remember what `frame`, the encoded `request`, begins and ends with, and the topics that may be read."""
        topics = self._slow_path.replica_manager
        begin = frame[_HEAD_AT : self._topics_at].tobytes()
        known = self.heads.get(begin)
        if known is None or known.epoch != self._epoch.value:
            if known is None and len(self.heads) >= _HEADS_MAX:
                self.heads.clear()
            tail = self._tail_of(request)
            if frame[-len(tail) :] != tail and tail:
                return
            known = _KnownHead(request, self._version, self._epoch.value, fetch_max_bytes, tail)
            self.heads[begin] = known
        if sum(len(each.topics) for each in self.heads.values()) + len(request.topics) > _TOPICS_MAX:
            known.topics.clear()
            if len(request.topics) > _TOPICS_MAX:
                return
        by_id = self._version >= FIRST_VERSION_BY_ID
        for named in request.topics:
            topic = topics.by_id.get(named.topic_id) if by_id else topics.by_name.get(named.topic)
            key = named.topic_id.bytes if by_id else named.topic.encode()
            if topic is None or (key in known.topics and known.topics[key].topic is topic):
                continue
            if not self._context.may(Operation.READ, TOPIC, topic.name, is_logged=False):
                continue
            if self._version < FIRST_VERSION_WITH_ZSTD and topic.config.compression_type == "zstd":
                continue
            size = b"" if by_id else write_uvarint(len(key) + 1) if self._flexible else len(key).to_bytes(2, "big")
            known.topics[key] = _KnownTopic(topic, size + key)

    def answer_unusual(self, frame: memoryview, head: _KnownHead, *, is_over: bool) -> list[Part] | int:
        """The handler's answer to a fetch that was delayed; the missing bytes if it is to wait on."""
        header, position = decode_request_header(frame)
        request, _ = decode(wire.FetchRequest, self._version, frame, position)
        by_id = self._version >= FIRST_VERSION_BY_ID
        partitions = wanted_partitions(request, by_id)
        if by_id:  # the names that their topics had when the wait began
            for wanted in partitions.values():
                topic = head.topics[wanted.topic_id.bytes].topic
                wanted.topic, wanted.topic_id = topic.name, topic.topic_id
        context = FetchContext(partitions, by_id, None, incremental=False)
        response = self._slow_path.answer_delayed(request, self._context, context, is_over=is_over)
        if isinstance(response, int):
            return response
        return response_frame(response, self._version, header.correlation_id)


class DelayedWideFetch(Pending):
    """A fetch that waits at the end of each of its partitions. Source: kafka.server.DelayedFetch."""

    __slots__ = ("_fast_path", "_frame", "_head", "_poll")

    def __init__(
        self, fast_path: WideFetch, head: _KnownHead, frame: memoryview, partitions: Sequence[Partition]
    ) -> None:
        super().__init__(self._stop_waiting)
        self._fast_path = fast_path
        self._head = head
        self._frame = memoryview(bytes(frame))  # a view would keep the whole receive buffer
        runtime = fast_path._slow_path.runtime
        self._poll = poll = LongPoll(runtime, head.max_wait_ms, head.min_bytes, self._try, head.reads_committed)
        for partition in partitions:
            partition.watch(poll)

    def _try(self, is_over: bool) -> int:
        if self.is_done:
            return 0
        try:
            answer = self._answer(is_over)
        except Exception as reason:
            self.fail(reason)
            return 0
        if isinstance(answer, int):
            return answer
        self.answer(answer)
        return 0

    def _answer(self, is_over: bool) -> list[Part] | int:
        fast_path, head, frame = self._fast_path, self._head, self._frame
        wanted = Wanted()
        if fast_path.read(frame, head, wanted):
            if is_over or wanted.size_bytes >= head.min_bytes:
                return fast_path.respond(head, wanted, _read_int32(frame, 4)[0])
            if not wanted.size_bytes:
                return head.min_bytes
        return fast_path.answer_unusual(frame, head, is_over=is_over)

    def _stop_waiting(self) -> None:
        self._poll.stop()
        del self._poll  # it refers to this
