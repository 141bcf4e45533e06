"""Ways to spoil a request or its answer. Each function makes the one that a fault carries out (`Spoil`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalite.api.request.error_answer import error_answer, merged
from kafkalite.common.errors import Disconnect, ErrorCode
from kafkalite.protocol.apis import SERVED, Api
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame, response_frame
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.testing.faults import fetch_error
from kafkalite.testing.faults.fault import Call, Spoil, frame_of, settled
from kafkalite.testing.faults.request_split import split
from kafkalite.testing.requests.interception import changed_answer

if TYPE_CHECKING:
    from kafkalite.common.region import Part
    from kafkalite.network.client_connection import Answer

_SIZE_BYTES = 4
WHY = "a fault that a test has asked for"

Sleep = Callable[[Call, float], "asyncio.Future[None]"]


def error(code: ErrorCode, topic: str | None, *, has_effect: bool) -> Spoil:
    """Answer with an error, for that topic or for everything; what is not about it is executed and answered as ever.
    With `has_effect` all of it is executed before that."""

    def spoil(call: Call) -> Answer:
        header, request = call.request, call.request.request
        api = _api_of(call)
        if request is None or api is None:
            return call.go_on(call.frame)
        if api.name == "Produce" and getattr(request, "acks", 1) == 0:
            if has_effect:
                call.go_on(call.frame)
            raise Disconnect(WHY)  # as Kafka does, where no answer is due
        if api.name == "Metadata":
            return _answer_changed(call, lambda answer: _metadata(answer, topic, code))
        if isinstance(request, FetchRequest) and fetch_error.is_of_partitions(code, header.version):
            return _fetch_error(call, request, topic, code)
        chosen, others = (request, None) if topic is None else split(request, topic, topic_id(call, topic))
        faulty = error_answer(api.response, chosen, code, header.version)
        if others is None and not has_effect:
            return response_frame(faulty, header.version, header.correlation_id)
        if has_effect:
            return _answer_changed(call, lambda answer: _failed_as_well(answer, faulty))
        assert others is not None
        return _answer_changed(call, lambda answer: _failed_as_well(answer, faulty), others)

    return spoil


def _fetch_error(call: Call, request: FetchRequest, topic: str | None, code: ErrorCode) -> Answer:
    found = None if topic is None else topic_id(call, topic)

    def failed(answer: Message) -> Message:
        assert isinstance(answer, FetchResponse)
        return fetch_error.with_error(call.server, request, answer, topic, found, code)

    return _answer_changed(call, failed, fetch_error.at_once(request))


def _failed_as_well(answer: Message, faulty: Message) -> Message:
    if getattr(faulty, "error_code", 0) and not _has_lists(faulty):
        return faulty
    return merged(answer, faulty)


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
        return changed_answer(call.go_on(call.frame), refuse)

    return spoil


def delay(seconds: float, sleep: Sleep, *, has_effect: bool) -> Spoil:
    """Execute the request later; or at once (`has_effect`), and give the answer later."""

    async def execute_later(call: Call) -> list[Part] | None:
        await sleep(call, seconds)
        return await settled(call.go_on(call.frame))

    async def answer_later(call: Call, answer: Answer) -> list[Part] | None:
        parts = await settled(answer)
        await sleep(call, seconds)
        return parts

    def spoil(call: Call) -> Answer:
        return answer_later(call, call.go_on(call.frame)) if has_effect else execute_later(call)

    return spoil


def blackhole(hold: Callable[[], asyncio.Future[Any]], *, has_effect: bool) -> Spoil:
    """Never answer; the connection stays. `hold` makes a future that nobody answers."""

    async def never(answer: Answer) -> list[Part] | None:
        await settled(answer)
        await hold()
        return None

    def spoil(call: Call) -> Answer:
        return never(call.go_on(call.frame) if has_effect else None)

    return spoil


def truncate(size: int | None) -> Spoil:
    """Send only the first bytes of the answer (None: half of it), and close the connection."""

    def spoil(call: Call) -> Answer:
        def cut(parts: list[Part] | None) -> list[Part] | None:
            frame = frame_of(parts)
            call.hang_up()
            return [frame[: len(frame) // 2 if size is None else min(size, max(0, len(frame) - 1))]]

        return changed_answer(call.go_on(call.frame), cut)

    return spoil


def throttle(milliseconds: int, mute: Callable[[Call, int], None]) -> Spoil:
    """Say in the answer that the client is to wait, and take no request of its connection until then (KIP-219)."""

    def throttled(answer: Message) -> Message:
        if "throttle_time_ms" in answer.__fields__:
            answer.throttle_time_ms = milliseconds  # type: ignore[attr-defined]
        return answer

    def spoil(call: Call) -> Answer:
        mute(call, milliseconds)
        return _answer_changed(call, throttled)

    return spoil


def corrupt(topic: str | None) -> Spoil:
    """Turn a bit of each record batch in the answer of a Fetch, so that its checksum is wrong."""

    def damaged(call: Call) -> Callable[[Message], Message]:
        found = None if topic is None else topic_id(call, topic)

        def change(answer: Message) -> Message:
            is_any = False
            for partition in _fetched_partitions(answer, topic, found):
                records = bytearray(partition.records or b"")
                for end in _batch_ends(records):
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
        if topic is None or topic == each.topic or each.topic_id == found:
            yield from each.partitions


def _batch_ends(records: bytearray) -> Iterator[int]:
    """The end of each whole batch."""
    end = 0
    while end + 12 <= len(records):
        end += 12 + int.from_bytes(records[end + 8 : end + 12])
        if end <= len(records):
            yield end


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
    return changed_answer(call.go_on(frame), changed)
