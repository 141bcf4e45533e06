"""One fault: which requests it spoils, how, and how often it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.common.region import FileRegion
from kafkalite.network.client_connection import DeferredResponse

if TYPE_CHECKING:
    from kafkalite.common.region import Part
    from kafkalite.network.client_connection import Answer, ClientConnection
    from kafkalite.server.broker_server import BrokerServer
    from kafkalite.testing.faults.request_pattern import RequestPattern
    from kafkalite.testing.requests.recorded_request import RecordedRequest


class Call(NamedTuple):
    """A request that was chosen. `go_on` has it executed as ever, or another frame instead; its answer may come later.
    `hang_up` closes the connection when the answer has been sent. `miss` takes the choice back: there was nothing to
    spoil."""

    request: RecordedRequest
    server: BrokerServer
    go_on: Callable[[memoryview], Answer]
    hang_up: Callable[[], None]
    connection: ClientConnection
    miss: Callable[[], None]

    @property
    def frame(self) -> memoryview:
        return memoryview(self.request.frames.request)


Spoil = Callable[[Call], "Answer"]
"""Carries a fault out; raises Disconnect to close the connection."""


class FiredFault(NamedTuple):
    """A fault that has spoiled a request, or a disruption: `request` says then whom it was about. `time` is the
    broker's."""

    time: datetime
    fault: str
    request: str

    def __str__(self) -> str:
        return f"{self.time:%H:%M:%S.%f} {self.fault}: {self.request}"


class Fault:
    """As a context manager it lasts as long as the block, at whose end it must have fired, unless `must_fire` is false.
    `fired` counts the requests that it has spoiled."""

    def __init__(
        self, name: str, pattern: RequestPattern, spoil: Spoil, remove: Callable[[Fault], None], must_fire: bool
    ) -> None:
        self.name = name
        self.pattern = pattern
        self.spoil = spoil
        self.must_fire = must_fire
        self.fired = 0
        self._remove = remove

    def remove(self) -> None:
        """It spoils no more requests."""
        self._remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.remove()
        if kind is None and self.must_fire and not self.fired:
            raise AssertionError(f"the fault never fired: {self}")

    def __str__(self) -> str:
        return f"{self.name} for {self.pattern}"


async def settled(answer: Answer) -> list[Part] | None:
    """The parts of an answer, when they are there."""
    if answer is None or isinstance(answer, list):
        return answer
    if not isinstance(answer, DeferredResponse):
        return await answer
    given: asyncio.Future[list[Part]] = asyncio.get_running_loop().create_future()

    def fail(reason: Exception) -> None:
        if not given.done():
            given.set_exception(reason)

    def give(parts: list[Part]) -> None:
        if not given.done():
            given.set_result(parts)

    answer.on_answer, answer.on_failure = give, fail
    try:
        return await given
    except asyncio.CancelledError:
        answer.cancel()
        raise


def hang_up(server: BrokerServer, connection: ClientConnection) -> None:
    """Close a connection when the answer that is about to be sent has been sent."""
    for processor in server.server.processors:
        for one in processor.connections:
            if one.client is connection:
                asyncio.get_running_loop().call_soon(one.drain)


def frame_of(parts: list[Part] | None) -> bytes:
    """The whole response in one piece, with its size."""
    return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts or ())
