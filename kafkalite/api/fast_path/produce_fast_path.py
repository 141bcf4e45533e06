"""The fast path of a produce: parts of requests that repeat are decoded once and compared from then on.

A client that sends one batch a request (librdkafka always, others with one busy partition) repeats itself: two requests
to one topic differ in the correlation id, the partition and the batch, and their answers in correlation id, partition
and three offsets/times. `ProduceFastPath` remembers, for one connection, the bytes before the partition in each request
that was admitted. Equal bytes mean an equal request; any other request goes to the handler.

    key, version | correlation id | rest of the header, acks, timeout, topic | partition | length | batch (| tags)
    ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ compared

The fast path decides nothing. It reuses the admission of the remembered request (`api/request/admission`), as long as
the admission epoch is the same. It also appends transactional batches, except the first of a transaction in the
partition and those that are refused. Of the 10 us of a request with one record, the handler's way spends 6 on decoding
and encoding known bytes, this one 1.5.
Source: ProduceRequest.json, ProduceResponse.json.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from struct import error as struct_error

from kafkalite.api.fast_path.answer_template import MARKS, NUMBERS, cut
from kafkalite.api.fast_path.wide_produce import WideProduce
from kafkalite.api.handlers.produce import (
    FIRST_VERSION_BY_ID,
    FIRST_VERSION_WITH_LEADERS,
    ProduceApi,
    await_again,
    failure,
    inherited_error,
)
from kafkalite.api.request.admission import (
    OVER_QUOTA,
    Append,
    CountedAppend,
    TopicAdmission,
    append_directly,
    append_for,
)
from kafkalite.api.request.delayed_produce import DelayedProduce, waits
from kafkalite.api.request.request_context import TRANSACTIONAL_ID, RequestContext
from kafkalite.api.request.throttling import quotas_of
from kafkalite.common.errors import KafkaError, Malformed, StorageError
from kafkalite.common.region import Part
from kafkalite.network.client_connection import ClientConnection, Pending
from kafkalite.protocol.codec.schema import read_uvarint
from kafkalite.protocol.header import response_frame
from kafkalite.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.security.acl.acl import Operation

VERSION_MIN = 5
"""The first version whose answer has a log start offset. Older ones are rare and take the long way. 10 and 11 add to
the answer only with an error (KIP-951). From version 13 on a topic is given by its id, which has one size."""

_KNOWN_MAX = 128  # of a connection, so that a thousand connections cannot take gigabytes
_ENVELOPE_BYTES_MAX = 512
_ONE_TOPIC = 2  # a compact array's length and one
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the request
_read_int32 = Struct(">i").unpack_from
_read_acks_and_timeout = Struct(">hi").unpack_from
_ENVELOPE_AT = 8


class _KnownRequest:
    """The admission of a request, and a template of its response with places for the numbers.

    `append` is None where no rule is left: then it is the partition's own, and the call between would cost 0.1 us. With
    a quota it counts the bytes first.
    Invariant: the admission holds as long as the admission epoch is `epoch`.
    """

    __slots__ = ("append", "epoch", "is_transactional", "middle", "pack", "partitions", "size", "tail", "topic")

    def __init__(self, admitted: TopicAdmission, epoch: int, version: int, *, is_transactional: bool) -> None:
        self.append: Append | None = None if admitted.append is append_directly else admitted.append
        self.topic = admitted.topic
        self.partitions = admitted.topic.partitions
        self.epoch = epoch
        self.is_transactional = is_transactional
        base_offset, log_append_time_ms, log_start_offset = MARKS
        partition = PartitionProduceResponse(
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
        before, self.tail = cut(_answer(admitted.topic, partition, version, 0))
        self.middle = before[:-6]  # partition and error code follow
        self.size = 4 + len(before) + NUMBERS.size + len(self.tail)
        self.pack = Struct(f">ii{len(self.middle)}sihqqq{len(self.tail)}s").pack


class ProduceFastPath:
    """The known requests of one connection, all of one version.

    `_layouts` maps the size of a topic's name, which is the byte at `_name_size_at`, to the function that splits a
    frame into key and version, correlation id, envelope and partition, and to the position of the length after them.
    The layout only locates the envelope; the comparison of its bytes decides.
    """

    __slots__ = (
        "_acks_at", "_api", "_clock", "_connection", "_epoch", "_find", "_flexible", "_known", "_layouts",
        "_name_size_at", "_slow_path", "_version", "_wall_ms", "_wide",
    )  # fmt: skip

    def __init__(
        self, slow_path: ProduceApi, frame: memoryview, version: int, acks_at: int, connection: ClientConnection
    ) -> None:
        self._slow_path = slow_path
        self._connection = connection
        self._find = slow_path.brokers.finder_for(connection)
        self._version = version
        self._flexible = version in ProduceRequest.flexible
        (self._api,) = _read_int32(frame)
        # acks, timeout and the number of topics lie between; then a size of one byte, or its low byte
        self._acks_at = acks_at
        self._name_size_at = acks_at + (2 + 4 + 1 if self._flexible else 2 + 4 + 4 + 1)
        if version >= FIRST_VERSION_BY_ID:
            self._name_size_at -= 1  # the number of topics, which is one, in place of a size
        self._layouts: dict[int, tuple[Callable[[memoryview], tuple[int, int, bytes, int]], int]] = {}
        self._known: dict[bytes, _KnownRequest] = {}
        self._epoch = slow_path.admission.epoch
        self._clock = slow_path.runtime.clock
        self._wall_ms = self._clock.wall_ms
        self._wide: WideProduce | None = None

    def answer(self, frame: memoryview) -> list[Part] | Pending | None:
        try:
            unpack, size_at = self._layouts[frame[self._name_size_at]]
            api, correlation_id, envelope, index = unpack(frame)
            known = self._known[envelope]
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
            partition = known.partitions[index]
        except (LookupError, struct_error, Malformed):
            return None if self._wide is None else self._wide.answer(frame)
        if api != self._api or known.epoch != self._epoch.value:
            return None
        append = known.append
        try:
            if append is None:
                result = partition.append(frame[start:stop], self._wall_ms(), self._version)
            else:
                result = append(partition, frame[start:stop], self._wall_ms(), self._version)  # type: ignore[assignment]
        except KafkaError as error:
            if error is OVER_QUOTA:
                return None
            # The handler asks the transaction's coordinator first. A batch that the disk refused is stamped already.
            if known.is_transactional and not isinstance(error, StorageError):
                return None
            topic = known.topic
            await_again(self._slow_path.replica_manager, topic.name, index, frame[start:stop], error)
            error = inherited_error(self._slow_path.metadata, self._connection, topic.name, index, error)
            return _answer(topic, failure(index, error, topic), self._version, correlation_id)
        packed = known.pack(
            known.size,
            correlation_id,
            known.middle,
            index,
            0,
            result[0],
            result[2],
            partition.log.start_offset,
            known.tail,
        )
        if result[1] >= partition.high_watermark:
            acks, timeout_ms = _read_acks_and_timeout(frame, self._acks_at)
            if waits(partition, result[1], acks):
                answer: list[Part] = [packed]
                refuse = partial(self._refuse, answer, known, index, correlation_id)
                waited = ((partition, result[1]),)
                return DelayedProduce(self._clock, waited, acks, timeout_ms, refuse, lambda: answer)
        return [packed]

    def _refuse(
        self, answer: list[Part], known: _KnownRequest, index: int, correlation_id: int, _: int, error: KafkaError
    ) -> None:
        """Replace the answer for a batch that was appended and will not be acknowledged."""
        topic = known.topic
        error = inherited_error(self._slow_path.metadata, self._connection, topic.name, index, error)
        response = _response(topic, failure(index, error))
        if self._version >= FIRST_VERSION_WITH_LEADERS:
            self._slow_path.add_leaders(response, self._find)
        answer[:] = response_frame(response, self._version, correlation_id)

    def learn(self, frame: memoryview, request: ProduceRequest, client_id: str | None) -> None:
        """Remember `frame`, the encoded `request` for one partition, which was admitted, if it is of a kind that
        repeats."""
        (topic_data,) = request.topic_data
        (data,) = topic_data.partition_data
        size = len(data.records) if data.records is not None else -1
        name_size = len(topic_data.name.encode())
        if self._version >= FIRST_VERSION_BY_ID:
            name_size = _ONE_TOPIC
            size_at = len(frame) - len(_NO_TAGS) - size - _uvarint_size(size + 1)
            usual = frame[-len(_NO_TAGS) :] == _NO_TAGS
        elif self._flexible:
            name_size += 1
            size_at = len(frame) - len(_NO_TAGS) - size - _uvarint_size(size + 1)
            usual = frame[-len(_NO_TAGS) :] == _NO_TAGS and name_size < 0x80
        else:
            size_at = len(frame) - size - 4
            usual = name_size <= 0xFF
        if not (usual and size >= 0 and frame[self._name_size_at] == name_size and size_at <= _ENVELOPE_BYTES_MAX):
            return
        unpack = Struct(f">ii{size_at - 4 - _ENVELOPE_AT}si").unpack_from
        envelope = unpack(frame)[2]
        known = self._known.get(envelope)
        if known is not None and known.epoch == self._epoch.value:
            return  # the handler took it as the first of a transaction
        if len(self._known) >= _KNOWN_MAX and known is None:
            return
        admitted = self._slow_path.admission.topic(
            topic_data.name, request.acks, client_id, self._version, append_for(request.transactional_id)
        )
        if admitted is not None:
            self._layouts[name_size] = unpack, size_at
            is_transactional = request.transactional_id is not None
            self._known[envelope] = known = _KnownRequest(
                admitted, self._epoch.value, self._version, is_transactional=is_transactional
            )
            quotas = quotas_of(self._connection)
            if quotas is not None and quotas.produce is not None:
                known.append = CountedAppend(known.append, quotas.produce.rate, len(frame) - size, self._clock)

    def learn_wide(self, frame: memoryview, request: ProduceRequest, context: RequestContext) -> None:
        """Remember `frame`, the encoded `request` for several partitions, which was handled."""
        if self._wide is None:
            self._wide = WideProduce(self._slow_path, frame, self._version, self._acks_at, context)
        self._wide.learn(frame, request, context)

    def is_for(self, frame: memoryview, acks_at: int) -> bool:
        """Whether a request has this version, and its topic at the same place."""
        return acks_at == self._acks_at and bool(_read_int32(frame)[0] == self._api)


def learn(
    slow_path: ProduceApi, context: RequestContext, frame: memoryview, body_at: int, request: ProduceRequest,
    response: ProduceResponse | None,
) -> None:  # fmt: skip
    """Remember a Produce request if it is of a kind that repeats. `response` is None while its batch waits to be
    committed."""
    topics, version = request.topic_data, context.api_version
    is_wide = len(topics) != 1 or len(topics[0].partition_data) != 1
    if version < VERSION_MIN or (
        response is not None and not is_wide and response.responses[0].partition_responses[0].error_code
    ):
        return
    transactional_id = request.transactional_id
    # This request's batch may be in no transaction; that of the next one may be.
    if transactional_id is not None and not context.may(
        Operation.WRITE, TRANSACTIONAL_ID, transactional_id, is_logged=False
    ):
        return
    key, fast_paths = frame[1], context.connection.fast_paths
    fast_path = fast_paths.get(key)
    acks_at = body_at + _id_size(request.transactional_id, version)
    if not isinstance(fast_path, ProduceFastPath) or not fast_path.is_for(frame, acks_at):
        fast_path = fast_paths[key] = ProduceFastPath(slow_path, frame, version, acks_at, context.connection)
    if is_wide:
        fast_path.learn_wide(frame, request, context)
    else:
        fast_path.learn(frame, request, context.client_id)


def _answer(topic: Topic, partition: PartitionProduceResponse, version: int, correlation_id: int) -> list[Part]:
    return response_frame(_response(topic, partition), version, correlation_id)


def _response(topic: Topic, partition: PartitionProduceResponse) -> ProduceResponse:
    answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
    return ProduceResponse(responses=[answer])


def _id_size(transactional_id: str | None, version: int) -> int:
    """The encoded size of a request's first field."""
    size = len((transactional_id or "").encode())
    if version not in ProduceRequest.flexible:
        return 2 + size
    return 1 if transactional_id is None else _uvarint_size(size + 1) + size


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
