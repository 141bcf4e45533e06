"""The fast path of a produce for many partitions or topics, as Java's producers and Kafka Streams send.

Two such requests of one client begin alike, up to the number of topics, and name the same topics again, but each time
other partitions, with batches of other sizes. So no whole request is compared: `WideProduce` remembers what requests
begin with, and the topics in them with their admission, and walks over the rest. Anything that it does not know sends
the request to the handler, before the first batch is appended.

    key, version | correlation id | rest of the header, acks, timeout | topics: name or id | partitions: index | batch
                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^           ^^^^^^^^^^ looked up

It decides nothing, as `ProduceFastPath`. Each batch has its own outcome; an error, or a wait for replicas, lets the
handler make the response of all of them. A transactional request is known only where its transaction is open in each of
its partitions: otherwise the transaction's coordinator has to be asked.
Source: ProduceRequest.json, ProduceResponse.json.
"""

from __future__ import annotations

from functools import partial
from itertools import islice, repeat
from struct import Struct
from struct import error as struct_error
from typing import Any

from kafkalite.api.handlers.produce import (
    FIRST_VERSION_BY_ID,
    WORK_MS_MAX,
    AppendedTopic,
    Outcome,
    ProduceApi,
    await_again,
)
from kafkalite.api.request.admission import (
    Append,
    TopicAdmission,
    append_directly,
    append_for,
    transactional_batch,
)
from kafkalite.api.request.delayed_produce import waits
from kafkalite.api.request.request_context import TOPIC, RequestContext
from kafkalite.api.request.throttling import quotas_of
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.region import Part
from kafkalite.network.client_connection import ClientConnection, Pending
from kafkalite.protocol.codec.schema import read_uvarint, write_uvarint
from kafkalite.protocol.header import response_frame
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.record.batch import ATTRIBUTES_AT, TRANSACTIONAL
from kafkalite.replication.partition import Partition
from kafkalite.security.acl.acl import Operation

_HEADS_MAX = 4
_TOPICS_MAX = 256  # of a connection, so that a thousand connections take tens of megabytes
_HEAD_AT = 8
_ID_BYTES = 16
_FIRST_VERSION_WITH_RECORD_ERRORS = 8
_pack_partition = Struct(">ihqqq").pack
_int32 = Struct(">i").pack
_read_int32 = Struct(">i").unpack_from
_read_int32s = Struct(">ii").unpack_from
_read_acks_and_timeout = Struct(">hi").unpack_from


class _KnownTopic:
    """A topic in requests that begin with the same bytes. `append` is None where it is the partition's own.
    `answer_head` is the name or id in a response, `answer_head_of_one` with the count of one partition."""

    __slots__ = ("answer_head", "answer_head_of_one", "append", "partitions", "topic")

    def __init__(self, admitted: TopicAdmission, answer_head: bytes, one: bytes) -> None:
        self.append: Append | None = None if admitted.append is append_directly else admitted.append
        self.topic = admitted.topic
        self.partitions = admitted.topic.partitions
        self.answer_head = answer_head
        self.answer_head_of_one = answer_head + one


class _KnownHead:
    """Requests that begin with the same bytes. Invariant: the admission of the topics holds as long as the admission
    epoch is `epoch`."""

    __slots__ = ("acks", "epoch", "is_transactional", "timeout_ms", "topics")

    def __init__(self, epoch: int, acks: int, timeout_ms: int, *, is_transactional: bool) -> None:
        self.epoch = epoch
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.is_transactional = is_transactional
        self.topics: dict[bytes, _KnownTopic] = {}


class Batches:
    """The batches of a request in its order. `topics` has the number of batches in each."""

    __slots__ = ("batches", "topics")

    def __init__(self) -> None:
        self.topics: list[tuple[_KnownTopic, int]] = []
        self.batches: list[tuple[Append | None, Partition, memoryview]] = []


class WideProduce:
    """The known requests of one connection, all of one version, with acks at the same place."""

    __slots__ = (
        "_acks_at", "_api", "_connection", "_epoch", "_flexible", "_has_access", "_heads", "_last_tail", "_slow_path",
        "_tail", "_topics_at", "_version",
    )  # fmt: skip

    def __init__(
        self, slow_path: ProduceApi, frame: memoryview, version: int, acks_at: int, context: RequestContext
    ) -> None:
        self._slow_path = slow_path
        self._version = version
        self._acks_at = acks_at
        self._topics_at = acks_at + 2 + 4
        self._connection: ClientConnection = context.connection
        self._has_access = context.access is not None
        self._epoch = slow_path.admission.epoch
        self._api = bytes(frame[:4])
        self._flexible = version in ProduceRequest.flexible
        self._heads: dict[bytes, _KnownHead] = {}
        # behind the numbers of a partition: no errors of records, no message, no tags; in the end the throttle time
        self._tail = b""
        if version >= _FIRST_VERSION_WITH_RECORD_ERRORS:
            self._tail = b"\1\0\0" if self._flexible else _int32(0) + b"\xff\xff"
        self._last_tail = self._tail + (b"\0" if self._flexible else b"")  # the topic's tags follow its last partition

    def answer(self, frame: memoryview) -> list[Part] | Pending | None:
        found = Batches()
        head = self.find(frame, found)
        if head is None:
            return None
        (correlation_id,) = _read_int32(frame, 4)
        outcomes: list[Outcome] = []
        if self._append(head.acks, found, outcomes):
            return [self._packed(found, outcomes, correlation_id)]
        return self._respond(head, found, outcomes, correlation_id)

    def find(self, frame: memoryview, found: Batches) -> _KnownHead | None:
        """Find the batches of a request; None if anything in it is not known."""
        try:
            head = self._heads[frame[_HEAD_AT : self._topics_at].tobytes()]
            if head.epoch != self._epoch.value or frame[:4] != self._api:
                return None
            split = self._split_flexible if self._flexible else self._split
            if not split(frame, head, found) or (head.is_transactional and not _is_open_in_all(found)):
                return None
        except (LookupError, struct_error, Malformed, KafkaError):
            return None
        return head

    def _split(self, frame: memoryview, head: _KnownHead, found: Batches) -> bool:
        """`find` behind the head. False, or LookupError, struct.error or Malformed if anything is not known."""
        batches, topics = found.batches, head.topics
        refuses = self._has_access and not head.is_transactional  # then a transactional batch fails the whole request
        at = self._topics_at + 4
        for _ in range(_read_int32(frame, self._topics_at)[0]):
            behind = at + 2 + (frame[at] << 8 | frame[at + 1])
            topic = topics[frame[at + 2 : behind].tobytes()]
            append, partitions = topic.append, topic.partitions
            (count,) = _read_int32(frame, behind)
            found.topics.append((topic, count))
            at = behind + 4
            for _ in repeat(None, count):
                index, size = _read_int32s(frame, at)
                start = at + 8
                at = start + size
                if size < 0 or (refuses and frame[start + ATTRIBUTES_AT + 1] & TRANSACTIONAL):
                    return False
                batches.append((append, partitions[index], frame[start:at]))
            if count <= 0:
                return False
        return bool(batches) and at == len(frame)

    def _split_flexible(self, frame: memoryview, head: _KnownHead, found: Batches) -> bool:
        """As `_split`, for versions with compact lengths and tagged fields."""
        batches, topics = found.batches, head.topics
        refuses = self._has_access and not head.is_transactional
        topic_count, at = read_uvarint(frame, self._topics_at)
        by_id = self._version >= FIRST_VERSION_BY_ID
        for _ in range(topic_count - 1):
            behind = at + _ID_BYTES
            if not by_id:
                size, at = read_uvarint(frame, at)
                behind = at + size - 1
            topic = topics[frame[at:behind].tobytes()]
            append, partitions = topic.append, topic.partitions
            count, at = read_uvarint(frame, behind)
            found.topics.append((topic, count - 1))
            for _ in repeat(None, count - 1):
                (index,) = _read_int32(frame, at)
                size = frame[at + 4]
                start = at + 5
                if size > 0x7F:
                    size, start = read_uvarint(frame, at + 4)
                at = start + size  # behind the records and the number of tags, which is 0
                if not size or frame[at - 1] or (refuses and frame[start + ATTRIBUTES_AT + 1] & TRANSACTIONAL):
                    return False
                batches.append((append, partitions[index], frame[start : at - 1]))
            if frame[at] or count <= 1:
                return False
            at += 1
        return bool(batches) and at == len(frame) - 1 and not frame[at]

    def _append(self, acks: int, found: Batches, outcomes: list[Outcome]) -> bool:
        """Append the batches one after the other. Whether all are appended and acknowledged."""
        version, now_ms = self._version, self._slow_path.runtime.clock.wall_ms()
        ends_s = monotonic_s() + WORK_MS_MAX / 1000
        is_usual = True
        for append, partition, records in found.batches:
            try:
                if monotonic_s() > ends_s and outcomes:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                if append is None:
                    outcome: Outcome = partition.append(records, now_ms, version)
                else:
                    outcome = append(partition, records, now_ms, version)
            except KafkaError as error:
                is_usual = False
                await_again(self._slow_path.replica_manager, partition.topic, partition.index, records, error)
                outcomes.append(error)
                continue
            outcomes.append(outcome)
            last_offset: int = outcome[1]  # type: ignore[index]  # there is a batch
            if last_offset >= partition.high_watermark and waits(partition, last_offset, acks):
                is_usual = False
        return is_usual

    def _packed(self, found: Batches, outcomes: list[Any], correlation_id: int) -> bytes:
        """The response to a request whose batches are all appended and acknowledged."""
        pack, tail, last_tail, flexible = _pack_partition, self._tail, self._last_tail, self._flexible
        parts = [b"", _int32(correlation_id)]
        parts.append(b"\0" + write_uvarint(len(found.topics) + 1) if flexible else _int32(len(found.topics)))
        each = zip(found.batches, outcomes, strict=True)
        for topic, count in found.topics:
            if count == 1:
                parts.append(topic.answer_head_of_one)
            else:
                parts.append(topic.answer_head)
                parts.append(write_uvarint(count + 1) if flexible else _int32(count))
                for (_, partition, _), (base_offset, _, time_ms, _) in islice(each, count - 1):
                    parts.append(pack(partition.index, 0, base_offset, time_ms, partition.log.start_offset) + tail)
            (_, partition, _), (base_offset, _, time_ms, _) = next(each)
            parts.append(pack(partition.index, 0, base_offset, time_ms, partition.log.start_offset) + last_tail)
        parts.append(b"\0\0\0\0\0" if flexible else b"\0\0\0\0")
        parts[0] = _int32(sum(map(len, parts)))
        return b"".join(parts)

    def _respond(
        self, head: _KnownHead, found: Batches, outcomes: list[Outcome], correlation_id: int
    ) -> list[Part] | Pending:
        """The handler's response, now or later."""
        each = zip(found.batches, outcomes, strict=True)
        appended = []
        for known, count in found.topics:
            of_topic = [(partition.index, partition, outcome) for (_, partition, _), outcome in islice(each, count)]
            appended.append(AppendedTopic(known.topic.name, known.topic.topic_id, known.topic, of_topic))
        response = self._slow_path.respond(appended, head.acks, head.timeout_ms, self._version, self._connection)
        assert response is not None, "no head with acks=0 is known"
        if isinstance(response, ProduceResponse):
            return response_frame(response, self._version, correlation_id)
        response.change(partial(_encoded, self._version, correlation_id))
        return response

    def learn(self, frame: memoryview, request: ProduceRequest, context: RequestContext) -> None:
        """Remember what `frame` begins with, and its topics, those that the client may write to."""
        quotas = quotas_of(context.connection)
        if quotas is not None and quotas.produce is not None:
            return
        transactional_id = request.transactional_id
        begin = frame[_HEAD_AT : self._topics_at].tobytes()
        acks, timeout_ms = _read_acks_and_timeout(frame, self._acks_at)
        known = self._heads.get(begin)
        if known is None or known.epoch != self._epoch.value:
            if known is None and len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            is_transactional = transactional_id is not None
            known = _KnownHead(self._epoch.value, acks, timeout_ms, is_transactional=is_transactional)
            self._heads[begin] = known
        topics = known.topics
        if sum(len(each.topics) for each in self._heads.values()) + len(request.topic_data) > _TOPICS_MAX:
            topics.clear()
            if len(request.topic_data) > _TOPICS_MAX:
                return
        by_name = self._slow_path.replica_manager.by_name
        for data in request.topic_data:
            key = name = data.name.encode()
            if self._version >= FIRST_VERSION_BY_ID:
                key = data.topic_id.bytes
            if key in topics and topics[key].topic is by_name.get(data.name):
                continue
            if not context.may(Operation.WRITE, TOPIC, data.name, is_logged=False):
                continue
            admitted = self._slow_path.admission.topic(
                data.name, acks, context.client_id, self._version, append_for(transactional_id)
            )
            if admitted is None:
                continue
            if self._version >= FIRST_VERSION_BY_ID:
                answer_head = key
            elif self._flexible:
                answer_head = write_uvarint(len(name) + 1) + name
            else:
                answer_head = len(name).to_bytes(2, "big") + name
            topics[key] = _KnownTopic(admitted, answer_head, b"\2" if self._flexible else _int32(1))


def _is_open_in_all(found: Batches) -> bool:
    """Whether all batches are of one transaction, which is open in their partitions. Raises StorageError."""
    identities = set()
    for _, partition, records in found.batches:
        batch = transactional_batch(records)
        if batch is None:
            return False
        producer_id, epoch = batch.producer_id, batch.epoch
        identities.add((producer_id, epoch))
        producer = partition.producers.get(producer_id)
        if producer is None or producer.txn_first_offset < 0 or producer.epoch != epoch:
            return False
    return len(identities) == 1


def _encoded(version: int, correlation_id: int, response: ProduceResponse) -> list[Part]:
    return response_frame(response, version, correlation_id)
