"""The short way of a produce: what repeats in a producer's requests is decoded once and compared from then on.

A client that sends one batch a request (librdkafka always, others with one busy partition) repeats itself: of two
requests to the same topic only the correlation id, the partition and the batch differ, and their answers only in the
first two and three numbers. `ProduceFastPath` remembers, for one connection, the bytes in front of the partition in
each request that went the long way well. The same bytes mean the same request; whatever differs takes the long way.

    key, version | correlation id | rest of the header, acks, timeout, topic | partition | length | batch (| tags)
    ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ compared

Nothing is decided here but that two strings are equal. Of the 10 us that a request of one record took on the long way,
6 were spent on decoding and encoding what was known; here they are 1.5.
Source: ProduceRequest.json, ProduceResponse.json.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING

from kafkalite.api.handlers.produce import ALL, failure, success
from kafkalite.api.request.delayed_produce import Uncommitted, answer_when_committed
from kafkalite.common.errors import KafkaError, Malformed
from kafkalite.protocol.codec.primitives import read_uvarint
from kafkalite.protocol.header import response_frame
from kafkalite.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.api.request.services import Services
    from kafkalite.common.region import Part
    from kafkalite.log.partition.partition_log import AppendResult
    from kafkalite.network.client_connection import ClientConnection, DeferredResponse
    from kafkalite.replication.partition import Partition
    from kafkalite.replication.replica_manager import Topic

VERSION_MIN = 5
"""The first version whose answer has a log start offset. Older ones are rare and take the long way. Up to 11, the last
that is listed, topics are named; what 10 and 11 add to the answer travels with an error only (KIP-951)."""

_ROUTES_MAX = 128  # of a connection, so that a thousand of them cannot make it remember gigabytes
_ENVELOPE_BYTES_MAX = 512
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the request
_NUMBERS = Struct(">qqq")
_MARKS = (0x6B61666B616C6974, 0x6261736520202020, 0x7374617274202020)  # where the numbers of an answer stand
_read_int32 = Struct(">i").unpack_from
_ENVELOPE_AT = 8


class _Route:
    """The topic that the batch goes to, and the answer with room for its numbers."""

    __slots__ = ("head", "middle", "pack", "tail", "topic")

    def __init__(self, topic: str, version: int) -> None:
        self.topic = topic
        base_offset, log_append_time_ms, log_start_offset = _MARKS
        partition = PartitionProduceResponse(
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
        (template,) = _answer(topic, partition, version, 0)
        assert isinstance(template, bytes)
        at = template.index(_NUMBERS.pack(*_MARKS))
        self.head = template[:4]
        self.middle = template[_ENVELOPE_AT : at - 6]  # partition and error code follow
        self.tail = template[at + _NUMBERS.size :]
        self.pack = Struct(f">4si{len(self.middle)}sihqqq{len(self.tail)}s").pack


class ProduceFastPath:
    """The repeated requests of one connection, all of one version. Call it with a frame; None: take the long way.

    `_layouts`: size of a topic's name, as it stands in the one byte at `_name_size_at` -> how to cut a frame into key
    and version, correlation id, envelope and partition, and where the length behind them stands. That only finds the
    envelope, whose bytes then decide.
    """

    __slots__ = (
        "_api", "_by_name", "_flexible", "_layouts", "_name_size_at", "_routes", "_services", "_version", "_wall_ms",
    )  # fmt: skip

    def __init__(self, services: Services, frame: memoryview, version: int, body_at: int) -> None:
        self._services = services
        self._version = version
        self._flexible = version in ProduceRequest.flexible
        (self._api,) = _read_int32(frame)
        # transactional id, acks, timeout and the number of topics lie between; then a size of one byte, or its low byte
        self._name_size_at = body_at + (1 + 2 + 4 + 1 if self._flexible else 2 + 2 + 4 + 4 + 1)
        self._layouts: dict[int, tuple[Callable[[memoryview], tuple[int, int, bytes, int]], int]] = {}
        self._routes: dict[bytes, _Route] = {}
        self._by_name = services.topics.by_name
        self._wall_ms = services.runtime.clock.wall_ms

    def __call__(self, frame: memoryview) -> list[Part] | DeferredResponse | None:
        try:
            unpack, size_at = self._layouts[frame[self._name_size_at]]
            api, correlation_id, envelope, index = unpack(frame)
            route = self._routes[envelope]
            if self._flexible:
                size, start = read_uvarint(frame, size_at)
                stop = start + size - 1
                if frame[stop:] != _NO_TAGS:
                    return None
            else:
                start = size_at + 4
                stop = start + _read_int32(frame, size_at)[0]
                if stop != len(frame):
                    return None
            topic = self._by_name[route.topic]
            partition = topic.partitions[index]
        except (LookupError, struct_error, Malformed):
            return None
        if api != self._api:
            return None
        try:
            result = partition.append(frame[start:stop], self._wall_ms(), self._version)
        except KafkaError as error:
            return _answer(route.topic, failure(index, error, topic), self._version, correlation_id)
        if result[1] >= partition.high_watermark:
            return self._wait(route, index, partition, result, frame, correlation_id)
        return [
            route.pack(
                route.head,
                correlation_id,
                route.middle,
                index,
                0,
                result[0],
                result[2],
                partition.log.start_offset,
                route.tail,
            )
        ]

    def _wait(
        self,
        route: _Route,
        index: int,
        partition: Partition,
        result: AppendResult,
        frame: memoryview,
        correlation_id: int,
    ) -> DeferredResponse:
        """The long way's answer, when the batch is committed."""
        (timeout_ms,) = _read_int32(frame, self._name_size_at - (5 if self._flexible else 9))
        answer = success(index, result, partition)
        response = ProduceResponse(responses=[TopicProduceResponse(name=route.topic, partition_responses=[answer])])
        one = Uncommitted(answer, partition, result.last_offset)
        reply = answer_when_committed(self._services, response, [one], timeout_ms)
        reply.render = partial(response_frame, version=self._version, correlation_id=correlation_id)
        return reply

    def learn(self, frame: memoryview, request: ProduceRequest) -> None:
        """`frame` was this request for one partition, and went well. Remember it if it can come again."""
        if len(self._routes) >= _ROUTES_MAX:
            return
        (topic_data,) = request.topic_data
        (data,) = topic_data.partition_data
        size = len(data.records) if data.records is not None else -1
        name_size = len(topic_data.name.encode())
        if self._flexible:
            name_size += 1
            size_at = len(frame) - len(_NO_TAGS) - size - _uvarint_size(size + 1)
            usual = frame[-len(_NO_TAGS) :] == _NO_TAGS and name_size < 0x80
        else:
            size_at = len(frame) - size - 4
            usual = name_size <= 0xFF
        if not (usual and size >= 0 and frame[self._name_size_at] == name_size and size_at <= _ENVELOPE_BYTES_MAX):
            return
        unpack = Struct(f">ii{size_at - 4 - _ENVELOPE_AT}si").unpack_from
        self._layouts[name_size] = unpack, size_at
        self._routes[unpack(frame)[2]] = _Route(topic_data.name, self._version)

    def is_of(self, frame: memoryview) -> bool:
        """Whether `frame` has this lane's version."""
        return bool(_read_int32(frame)[0] == self._api)


def remember(
    services: Services, peer: ClientConnection, frame: memoryview, body_at: int, version: int, request: ProduceRequest,
    response: ProduceResponse | None,
) -> None:  # fmt: skip
    """A Produce request of `peer` was answered, or its batch waits to be committed (None): if it is of the kind that
    comes again, give its successors a lane."""
    topics = request.topic_data
    if (
        version < VERSION_MIN
        or len(topics) != 1
        or len(topics[0].partition_data) != 1
        or (response is not None and response.responses[0].partition_responses[0].error_code)
        or services.topics.by_name[topics[0].name].internal  # open to some, by client id
        or (
            request.acks == ALL and _has_several_replicas(services.topics.by_name[topics[0].name])
        )  # min.insync.replicas
    ):
        return
    key = frame[1]
    lane = peer.lanes.get(key)
    if not isinstance(lane, ProduceFastPath) or not lane.is_of(frame):
        lane = peer.lanes[key] = ProduceFastPath(services, frame, version, body_at)
    lane.learn(frame, request)


def _has_several_replicas(topic: Topic) -> bool:
    """All partitions of a topic have as many."""
    return any(len(state.replicas) > 1 for state in topic.states.values())


def _answer(topic: str, partition: PartitionProduceResponse, version: int, correlation_id: int) -> list[Part]:
    responses = [TopicProduceResponse(name=topic, partition_responses=[partition])]
    return response_frame(ProduceResponse(responses=responses), version, correlation_id)


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
