"""Ways to spoil a request or its answer. Each function returns the `Spoil` of a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast
from uuid import UUID

from kafkalite.api.handlers.produce import await_again
from kafkalite.api.request.error_answer import error_answer, is_of_request, merged
from kafkalite.common.errors import Disconnect, ErrorCode, KafkaError
from kafkalite.common.names import ZERO_UUID
from kafkalite.common.region import Part
from kafkalite.network.client_connection import Answer, Pending
from kafkalite.protocol.apis import SERVED, Api
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame, response_frame
from kafkalite.protocol.messages.configs import TOPIC_RESOURCE
from kafkalite.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from kafkalite.record.batches import find_bounds
from kafkalite.server.broker_server import BrokerServer
from kafkalite.testing.faults.fault import Call, Spoil, await_answer, frame_of
from kafkalite.testing.faults.share_errors import ShareErrors, session_partitions
from kafkalite.testing.requests.interception import changed_answer

_SIZE_BYTES = 4
WHY = "a fault that a test has injected"

Sleep = Callable[[Call, float], "asyncio.Future[None]"]


def error(code: ErrorCode, topic: str | None, *, has_effect: bool) -> Spoil:
    """Answer with an error, for that topic or for everything; the part about other topics is executed and answered
    normally. With `has_effect` all of it is executed first."""

    def spoil(call: Call) -> Answer:
        header, request = call.request, call.request.request
        api = _api_of(call)
        if request is None or api is None:
            return call.execute(call.frame)
        if api.name == "Produce" and getattr(request, "acks", 1) == 0:
            if has_effect:
                call.execute(call.frame)
            raise Disconnect(WHY)  # as Kafka does if no answer is due
        if api.name == "Metadata":
            return _answer_changed(call, lambda answer: _metadata(answer, topic, code))
        if isinstance(request, FetchRequest) and is_of_partitions(code, header.version):
            return _fetch_error(call, request, topic, code)
        if isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest) and not is_of_request(api.response, code):
            return _share_error(call, request, topic, code, has_effect=has_effect)
        chosen, others = (request, None) if topic is None else split(request, topic, topic_id(call, topic))
        faulty = error_answer(api.response, chosen, code, header.version)
        if not has_effect and isinstance(request, ProduceRequest):
            _await_again(call.server, request, topic, code)
        if not has_effect and (others is None or _is_whole(faulty)):
            return response_frame(faulty, header.version, header.correlation_id)
        if has_effect:
            return _answer_changed(call, lambda answer: _failed_as_well(answer, faulty))
        assert others is not None
        return _answer_changed(call, lambda answer: _failed_as_well(answer, faulty), others)

    return spoil


def _await_again(server: BrokerServer, request: ProduceRequest, topic: str | None, code: ErrorCode) -> None:
    """The broker has to know of refused batches: no later one of their producer may be appended before them."""
    for each in request.topic_data:
        name = each.name or getattr(server.replica_manager.by_id.get(each.topic_id), "name", "")
        if topic in (None, name):
            for data in each.partition_data:
                await_again(server.replica_manager, name, data.index, data.records, KafkaError(code))


def _fetch_error(call: Call, request: FetchRequest, topic: str | None, code: ErrorCode) -> Answer:
    found = None if topic is None else topic_id(call, topic)

    def failed(answer: Message) -> Message:
        assert isinstance(answer, FetchResponse)
        return fail_partitions(call.server, request, answer, topic, found, code)

    return _answer_changed(call, failed, without_wait(request))


def _share_error(
    call: Call,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    topic: str | None,
    code: ErrorCode,
    *,
    has_effect: bool,
) -> Answer:
    errors = ShareErrors(call.server, request, None if topic is None else topic_id(call, topic), code)
    if not errors.has_any:
        call.miss()
        return call.execute(call.frame)
    return _answer_changed(call, errors.fail, None if has_effect else errors.harmless_request())


def _failed_as_well(answer: Message, faulty: Message) -> Message:
    return faulty if _is_whole(faulty) else merged(answer, faulty)


def _is_whole(faulty: Message) -> bool:
    """Whether the error is that of the request, which has no parts that could fail alone."""
    return bool(getattr(faulty, "error_code", 0)) and not _has_lists(faulty)


def _has_lists(message: Message) -> bool:
    return any(isinstance(getattr(message, name), list) and getattr(message, name) for name in message.__fields__)


def _metadata(answer: Message, topic: str | None, code: ErrorCode) -> Message:
    for each in answer.topics:  # type: ignore[attr-defined]
        if topic is None or each.name == topic:
            each.error_code, each.partitions = int(code), []
    return answer


def disconnect(*, has_effect: bool) -> Spoil:
    """Close the connection instead of an answer."""

    def refuse(_: list[Part] | None) -> list[Part] | None:
        raise Disconnect(WHY)

    def spoil(call: Call) -> Answer:
        if not has_effect:
            raise Disconnect(WHY)
        return changed_answer(call.execute(call.frame), refuse)

    return spoil


def delay(seconds: float, sleep: Sleep, *, has_effect: bool) -> Spoil:
    """Execute the request later; or at once (`has_effect`), and answer later."""

    async def execute_later(call: Call) -> list[Part] | None:
        await sleep(call, seconds)
        return await await_answer(call.execute(call.frame))

    async def answer_later(call: Call, answer: Answer) -> list[Part] | None:
        parts = await await_answer(answer)
        await sleep(call, seconds)
        return parts

    def spoil(call: Call) -> Answer:
        return Pending.of(answer_later(call, call.execute(call.frame)) if has_effect else execute_later(call))

    return spoil


def blackhole(hold: Callable[[], asyncio.Future[Any]], *, has_effect: bool) -> Spoil:
    """Never answer; the connection stays. `hold` makes a future that is never answered."""

    async def never(answer: Answer) -> list[Part] | None:
        await await_answer(answer)
        await hold()
        return None

    def spoil(call: Call) -> Answer:
        return Pending.of(never(call.execute(call.frame) if has_effect else None))

    return spoil


def truncate(size: int | None) -> Spoil:
    """Send only the first bytes of the answer (None: half of it), and close the connection."""

    def spoil(call: Call) -> Answer:
        def cut(parts: list[Part] | None) -> list[Part] | None:
            frame = frame_of(parts)
            call.hang_up()
            return [frame[: len(frame) // 2 if size is None else min(size, max(0, len(frame) - 1))]]

        return changed_answer(call.execute(call.frame), cut)

    return spoil


def throttle(milliseconds: int, mute: Callable[[Call, int], None]) -> Spoil:
    """Answer with a throttle time, and mute the connection until then (KIP-219)."""

    def throttled(answer: Message) -> Message:
        if "throttle_time_ms" in answer.__fields__:
            answer.throttle_time_ms = milliseconds  # type: ignore[attr-defined]
        return answer

    def spoil(call: Call) -> Answer:
        mute(call, milliseconds)
        return _answer_changed(call, throttled)

    return spoil


def corrupt(topic: str | None) -> Spoil:
    """Flip a bit of each record batch in the response to a Fetch or a ShareFetch, so that its checksum is wrong."""

    def damaged(call: Call) -> Callable[[Message], Message]:
        found = None if topic is None else topic_id(call, topic)

        def change(answer: Message) -> Message:
            is_any = False
            for partition in _fetched_partitions(answer, topic, found):
                records = bytearray(partition.records or b"")
                for end in find_bounds(records)[0][1:]:
                    records[end - 1] ^= 1
                    is_any = True
                partition.records = bytes(records)
            if not is_any:
                call.miss()
            return answer

        return change

    return lambda call: _answer_changed(call, damaged(call))


def _fetched_partitions(answer: Message, topic: str | None, found: UUID | None) -> Iterator[Any]:
    for each in getattr(answer, "responses", ()):
        if topic is None or topic == getattr(each, "topic", None) or each.topic_id == found:
            yield from each.partitions


def topic_id(call: Call, topic: str) -> UUID | None:
    found = call.server.replica_manager.by_name.get(topic)
    return None if found is None else found.topic_id


def _api_of(call: Call) -> Api | None:
    return next((api for api in SERVED.values() if api.name == call.request.api), None)


def _answer_changed(call: Call, change: Callable[[Message], Message], request: Message | None = None) -> Answer:
    """The answer, decoded, changed and encoded again; of `request` instead of the client's own."""
    recorded, api = call.request, _api_of(call)
    assert api is not None

    def changed(parts: list[Part] | None) -> list[Part] | None:
        if not parts:
            return parts
        answer = decode_response(api, recorded.version, memoryview(frame_of(parts))[_SIZE_BYTES:])[1]
        return response_frame(change(answer), recorded.version, recorded.correlation_id)

    frame = call.frame
    if request is not None:
        sent = request_frame(request, recorded.version, recorded.correlation_id, recorded.client_id)
        frame = memoryview(sent)[_SIZE_BYTES:]
    return changed_answer(call.execute(frame), changed)


# --- fetches: one in a session names only the partitions that have changed, the others are the session's (KIP-227). A
# fetch changes nothing, so it is executed as a whole, without a wait, and partitions of its answer fail.

_OF_SESSION = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_FIRST_VERSION_OF_SESSIONS = 7


def is_of_partitions(code: ErrorCode, version: int) -> bool:
    """Whether this error belongs to partitions, and not to the fetch as a whole."""
    return version < _FIRST_VERSION_OF_SESSIONS or code not in _OF_SESSION


def is_in_session(server: BrokerServer, request: Message, topic: str, topic_id: UUID | None) -> bool:
    """Whether the topic is one of the session of a Fetch or ShareFetch."""
    keys: Iterator[object] = iter(())
    if isinstance(request, FetchRequest):
        keys = (key for key, _ in server.fetch_sessions.partitions(request.session_id))
    elif isinstance(request, ShareFetchRequest):
        keys = (each.topic_id for each in session_partitions(server, request))
    return any(key is not None and key in (topic, topic_id) for key in keys)


def without_wait(request: FetchRequest) -> Message:
    """The same fetch without a wait: one with an error does not wait."""
    request = cast(FetchRequest, copy_of(request))
    request.max_wait_ms = 0
    return request


def fail_partitions(
    server: BrokerServer,
    request: FetchRequest,
    answer: FetchResponse,
    topic: str | None,
    topic_id: UUID | None,
    code: ErrorCode,
) -> FetchResponse:
    """The answer with partitions that failed: those of the topic, or all. An answer that has failed as a whole stays
    as it is."""
    if answer.error_code:
        return answer
    wanted = {
        (each.topic or each.topic_id, part.partition): None for each in request.topics for part in each.partitions
    }
    wanted.update(dict.fromkeys(server.fetch_sessions.partitions(request.session_id)))
    failed: dict[str | UUID, list[PartitionData]] = {}
    for key, index in wanted:
        if topic is None or key in (topic, topic_id):
            data = PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
            failed.setdefault(key, []).append(data)
    answer.responses = [each for each in answer.responses if (each.topic or each.topic_id) not in failed]
    for key, partitions in failed.items():
        one = FetchableTopicResponse(partitions=partitions)
        if isinstance(key, UUID):
            one.topic_id = key
        else:
            one.topic = key
        answer.responses.append(one)
    return answer


# --- a request in two: the part about one topic, and the part about others


def split(request: Message, topic: str, topic_id: UUID | None) -> tuple[Message, Message | None]:
    """The part about the topic, and the part about others; None if there are none."""

    def is_it(element: object) -> bool:
        return _is_about(element, topic, topic_id)

    chosen, _ = _part(request, is_it, keep=True)
    others, count = _part(request, is_it, keep=False)
    return chosen, others if count else None


def names_topic(request: Message, topic: str, topic_id: UUID | None) -> bool:
    return _part(request, lambda element: _is_about(element, topic, topic_id), keep=True)[1] > 0


def _is_about(element: object, topic: str, topic_id: UUID | None) -> bool:
    if not isinstance(element, Message):
        return element == topic
    if "resource_name" in element.__fields__:
        return getattr(element, "resource_type", 0) == TOPIC_RESOURCE and getattr(element, "resource_name", "") == topic
    if topic_id is not None and getattr(element, "topic_id", ZERO_UUID) == topic_id:
        return True
    return topic in (getattr(element, "name", None), getattr(element, "topic", None))


def _part(struct: Message, is_it: Callable[[object], bool], *, keep: bool) -> tuple[Message, int]:
    """A copy with the elements for which `is_it` is true (`keep`) or false, and their number."""
    part, count = copy_of(struct), 0
    for name, field in struct.__fields__.items():
        value = getattr(struct, name)
        if not field.is_array or not value:
            continue
        if "topic" in name or name == "resources":
            left = [each for each in value if is_it(each) is keep]
            count += len(left)
            setattr(part, name, left)
        elif isinstance(value[0], Message):
            inner = [_part(each, is_it, keep=keep) for each in value]
            if any(_has_topics(each) for each in value):
                setattr(part, name, [each for each, inside in inner if inside])
                count += sum(inside for _, inside in inner)
    return part, count


def _has_topics(struct: Message) -> bool:
    return any("topic" in name and field.is_array for name, field in struct.__fields__.items())


def copy_of(message: Message) -> Message:
    """A shallow copy."""
    return type(message)(**{name: getattr(message, name) for name in message.__fields__})
