"""A recorded trace, and its replay at another broker.

    trace = Trace.load("orders.trace")
    for each in trace.replay("127.0.0.1:9092"):
        assert each.now.errors == each.then.errors

Requests keep their order: one that was sent after an answer is sent after that answer arrives again. Values that
brokers choose (ids of producers, members, topics and fetch sessions, generations of groups) are replaced by those of
the other broker, also in record batches. All connections go to the one address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalite.common.clock import monotonic_s
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.codec.schema import RECORDS, Message
from kafkalite.protocol.header import request_frame
from kafkalite.record.batch import CRC_FROM, compute_crc
from kafkalite.testing.requests.recorded_request import Frames, RecordedRequest, diagram_text, read_trace

TIMEOUT_S = 30.0
_SIZE_BYTES = 4
_ANSWER_BYTES_MAX = 1 << 30
_FAMILIES = {
    "producer_id": "producer",
    "v3_and_below_producer_id": "producer",
    "member_id": "member",
    "leader": "member",
    "session_id": "session",
    "topic_id": "topic",
    "generation_id": "generation",
    "generation_id_or_member_epoch": "generation",
}
"""Field -> the kind of id in it. Another broker has other ids."""

_NO_ID: dict[str, Any] = {"producer": -1, "member": "", "session": 0, "topic": UUID(int=0), "generation": -1}
"""The values for "no id", also in responses with an error. They are the same at every broker."""

_LENGTH_AT, _MAGIC_AT, _CRC_AT, _PRODUCER_ID_AT, _HEAD_BYTES = 8, 16, 17, 43, 61  # of a record batch v2


class Replayed(NamedTuple):
    """A recorded request, and the same request with its new answer."""

    then: RecordedRequest
    now: RecordedRequest

    @property
    def is_alike(self) -> bool:
        """Whether both were answered, or neither was, with the same errors."""
        return self.then.errors == self.now.errors and (self.then.response is None) == (self.now.response is None)


class Trace:
    """Recorded requests, in their order."""

    def __init__(self, frames: Sequence[Frames]) -> None:
        self._frames = list(frames)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Reads a file of `broker.requests.save`. Raises OSError, ValueError if it is no trace."""
        return cls(read_trace(Path(path)))

    def __iter__(self) -> Iterator[RecordedRequest]:
        return map(RecordedRequest, self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def diagram(self) -> str:
        """A sequence diagram, as text."""
        return diagram_text(list(self))

    def replay(self, bootstrap_servers: str, *, timeout: float = TIMEOUT_S) -> list[Replayed]:
        """Send the requests to another broker. Waits for each answer that the trace has, at most `timeout` seconds.
        Raises OSError if the broker cannot be reached, ValueError for an invalid address. Not from a running event
        loop: there, await `replay_async`."""
        return asyncio.run(self.replay_async(bootstrap_servers, timeout=timeout))

    async def replay_async(
        self,
        bootstrap_servers: str,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  the name that everybody expects
    ) -> list[Replayed]:
        """As `replay`."""
        host, _, port = bootstrap_servers.partition(",")[0].strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{bootstrap_servers!r} is no host:port")
        replay = _Replay(host.strip("[]"), int(port), timeout)
        try:
            for event in _events(self._frames):
                await replay.step(*event)
        finally:
            await replay.close()
        return [Replayed(RecordedRequest(then), RecordedRequest(now)) for then, now in replay.done]


def _events(frames: Sequence[Frames]) -> list[tuple[Frames, bool]]:
    """Each request, and again at its answer, in the order in which they passed."""
    events = [(each.began, each, False) for each in frames]
    events += [(each.ended, each, True) for each in frames if each.ended is not None and _is_answered(each)]
    return [(each, is_answer) for _, each, is_answer in sorted(events, key=lambda event: event[0])]


def _is_answered(frames: Frames) -> bool:
    return frames.response is not None or frames.left_out > 0


class _Connection:
    """One connection of the trace. Answers find their requests by the correlation id."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        self.reading = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(_SIZE_BYTES), signed=True)
                if not 0 < size <= _ANSWER_BYTES_MAX:
                    break
                answer = await reader.readexactly(size)
                waiting = self.waiting.pop(int.from_bytes(answer[:4], signed=True), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        for waiting in self.waiting.values():
            waiting.cancel()


class _Replay:
    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._address = host, port
        self._timeout_s = timeout_s
        self._connections: dict[str, _Connection] = {}
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._began_s: dict[int, float] = {}
        self._now: dict[int, Frames] = {}
        self._ids: dict[tuple[str, Any], Any] = {}
        self._order = 0
        self.done: list[tuple[Frames, Frames]] = []

    async def step(self, then: Frames, is_answer: bool) -> None:
        self._order += 1
        await (self._receive(then) if is_answer else self._send(then))

    async def _send(self, then: Frames) -> None:
        connection = self._connections.get(then.client)
        if connection is None or connection.reading.done():  # a new one, or the broker has closed it
            streams = await asyncio.open_connection(*self._address)
            connection = self._connections[then.client] = _Connection(*streams)
        request = with_ids(RecordedRequest(then), lambda family, value: self._ids.get((family, value), value))
        now = Frames(self._order, time.time_ns() // 1_000_000, then.client, request)
        self._now[then.began] = now
        self.done.append((then, now))
        if _is_answered(then):
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._answers[then.began] = connection.waiting[RecordedRequest(now).correlation_id] = answer
        self._began_s[then.began] = monotonic_s()
        connection.writer.write(len(request).to_bytes(_SIZE_BYTES) + request)

    async def _receive(self, then: Frames) -> None:
        now = self._now[then.began]
        try:
            response = await asyncio.wait_for(self._answers[then.began], self._timeout_s)
        except (TimeoutError, asyncio.CancelledError):
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return
        now.ended, now.response = self._order, response
        now.took_ms = (monotonic_s() - self._began_s[then.began]) * 1000
        before, after = RecordedRequest(then).response, RecordedRequest(now).response
        if before is not None and after is not None:
            self._learn(before, after)

    def _learn(self, before: Message, after: Message) -> None:
        """Maps the ids in a recorded answer to those in the new one."""
        for name in before.__fields__:
            was, is_now = getattr(before, name), getattr(after, name)
            if name in _FAMILIES:
                if was != _NO_ID[_FAMILIES[name]]:
                    self._ids[_FAMILIES[name], was] = is_now
            elif isinstance(was, Message) and isinstance(is_now, Message):
                self._learn(was, is_now)
            elif isinstance(was, list) and isinstance(is_now, list):
                for one, other in zip(was, is_now, strict=False):
                    if isinstance(one, Message):
                        self._learn(one, other)

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.reading.cancel()
            connection.writer.close()
        await asyncio.gather(*(one.reading for one in self._connections.values()), return_exceptions=True)


def with_ids(recorded: RecordedRequest, id_of: Callable[[str, Any], Any]) -> bytes:
    """The request's frame with other ids, as `id_of(family, value)` maps them."""
    request = recorded.request
    if request is None or not _replace(request, id_of):
        return recorded.frames.request
    frame = request_frame(request, recorded.version, recorded.correlation_id, recorded.client_id)
    return frame[_SIZE_BYTES:]


def _replace(message: Message, id_of: Callable[[str, Any], Any]) -> bool:
    """Replaces ids in a message. Returns whether any was replaced."""
    changed = False
    for name, field in message.__fields__.items():
        value = getattr(message, name)
        if name in _FAMILIES:
            new = id_of(_FAMILIES[name], value)
            changed = changed or new != value
            setattr(message, name, new)
        elif field.kind is RECORDS and value:
            new = _with_producers(bytearray(value), id_of)
            changed = changed or new != value
            setattr(message, name, new)
        elif isinstance(value, list):
            for each in value:
                changed = (isinstance(each, Message) and _replace(each, id_of)) or changed
    return changed


def _with_producers(records: bytearray, id_of: Callable[[str, Any], Any]) -> bytearray:
    """Record batches with other producer ids, and the checksums for them."""
    at = 0
    while at + _HEAD_BYTES <= len(records):
        end = at + _LENGTH_AT + 4 + int.from_bytes(records[at + _LENGTH_AT : at + _LENGTH_AT + 4])
        place = slice(at + _PRODUCER_ID_AT, at + _PRODUCER_ID_AT + 8)
        producer_id = int.from_bytes(records[place], signed=True)
        if records[at + _MAGIC_AT] == 2 and producer_id >= 0 and end <= len(records):
            records[place] = id_of("producer", producer_id).to_bytes(8, signed=True)
            records[at + _CRC_AT : at + CRC_FROM] = compute_crc(memoryview(records)[at:end].tobytes()).to_bytes(4)
        at = end
    return records
