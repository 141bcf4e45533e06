"""Requests to a broker and its answers: `broker.requests`.

    broker.requests.start()
    ...
    assert [each.api for each in broker.requests.of(client_id="shop")] == ["ApiVersions", "Metadata", "Produce"]
    print(broker.requests.diagram())

The last requests are kept, at most 10,000 and 64 MiB, and no answer that is longer than 64 KiB.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkalite.common.clock import Clock, monotonic_s
from kafkalite.common.region import FileRegion, Part
from kafkalite.network.client_connection import Answer, ClientConnection, Handler
from kafkalite.testing.requests import recorded_request
from kafkalite.testing.requests.interception import Interception, changed_answer

REQUESTS_MAX = 10_000
BYTES_MAX = 64 << 20
ANSWER_BYTES_MAX = 64 << 10
_SIZE_BYTES = 4


class RequestLog:
    """Iterating yields the requests in the order of their arrival. Nothing is recorded before `start`. Any thread may
    use it. `clock` is the broker's."""

    def __init__(self, interception: Interception, clock: Callable[[], Clock]) -> None:
        self._interception = interception
        self._clock = clock
        self._records: deque[recorded_request.Frames] = deque()
        self._bytes = 0
        self._is_recording = False
        self._next = itertools.count().__next__

    def start(self) -> None:
        """Record from now on."""
        if not self._is_recording:
            self._is_recording = True
            self._interception.add(self._record, first=True)

    def stop(self) -> None:
        """Stop recording; recorded requests stay."""
        self._is_recording = False
        self._interception.remove(self._record)

    def clear(self) -> None:
        """Drop the recorded requests."""
        self._records = deque()  # the broker's loop may be using the old one
        self._bytes = 0

    def __iter__(self) -> Iterator[recorded_request.RecordedRequest]:
        return map(recorded_request.RecordedRequest, tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "no requests"

    def of(
        self, api: str | None = None, *, client_id: str | None = None, topic: str | None = None
    ) -> list[recorded_request.RecordedRequest]:
        """The requests of an API ("Produce", or "PRODUCE"), of clients with that id, that name that topic. Raises
        ValueError if there is no such API."""
        wanted = None if api is None else recorded_request.api_name(api)
        return [
            each
            for each in self
            if (wanted is None or each.api == wanted)
            and (client_id is None or each.client_id == client_id)
            and (topic is None or topic in each.topics)
        ]

    def diagram(self) -> str:
        """A sequence diagram, as text."""
        return recorded_request.diagram_text(list(self))

    def save(self, path: str | Path) -> None:
        """Write them to a file: a trace, which `Trace.load` reads, or an HTML page if its name ends in .html. Raises
        OSError."""
        requests = list(self)
        if str(path).endswith((".html", ".htm")):
            Path(path).write_text(recorded_request.diagram_html(requests), encoding="utf-8")
        else:
            recorded_request.write_trace(Path(path), [each.frames for each in requests])

    def _record(self, connection: ClientConnection, frame: memoryview, following: Handler) -> Answer:
        began_s = monotonic_s()
        client = f"{connection.host}:{connection.port}"
        kept = recorded_request.Frames(self._next(), self._clock().wall_ms(), client, bytes(frame))
        self._keep(kept)

        def answered(parts: list[Part] | None) -> list[Part] | None:
            kept.ended = self._next()
            kept.took_ms = (monotonic_s() - began_s) * 1000
            size = sum(map(len, parts or ()))
            if parts and size <= ANSWER_BYTES_MAX:
                kept.response = b"".join(map(_bytes_of, parts))[_SIZE_BYTES:]
                records = self._records
                if records and kept.began >= records[0].began:
                    self._bytes += len(kept.response)
            else:
                kept.left_out = size
            return parts

        return changed_answer(following(connection, frame), answered)

    def _keep(self, frames: recorded_request.Frames) -> None:
        records = self._records
        records.append(frames)
        self._bytes += len(frames.request)
        while len(records) > REQUESTS_MAX or (self._bytes > BYTES_MAX and len(records) > 1):
            gone = records.popleft()
            self._bytes -= len(gone.request) + len(gone.response or b"")


def _bytes_of(part: Part) -> bytes | bytearray | memoryview:
    return part.read() if isinstance(part, FileRegion) else part
