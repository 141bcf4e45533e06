"""One fault: the requests that it spoils (by API, topic, client and number), its effect, and the requests it has
spoiled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from random import Random
from types import TracebackType
from typing import TypedDict

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import FileRegion, Part
from kafkalite.network.client_connection import Answer, ClientConnection
from kafkalite.server.broker_server import BrokerServer
from kafkalite.testing.records.stored_record import check_bool, check_integer, check_number, check_text
from kafkalite.testing.requests.recorded_request import RecordedRequest, api_name, suggestions


class Choice(TypedDict, total=False):
    """The arguments of all faults of requests, besides `topic`."""

    client_id: str | None
    times: int | None
    after: int
    probability: float
    seed: int
    must_fire: bool


def check_choice(given: Choice) -> None:
    """Raises TypeError for an unknown argument, or one of another type."""
    for name, value in given.items():
        if name not in Choice.__annotations__:
            raise TypeError(f"no fault takes {name!r}{suggestions(name, Choice.__annotations__)}")
        if name in ("times", "after", "seed"):
            check_integer(name, value, or_none=name == "times")
    check_text("client_id", given.get("client_id"), or_none=True)
    check_number("probability", given.get("probability", 1.0))
    check_bool("must_fire", given.get("must_fire", True))


def error_code(given: str | int | ErrorCode) -> ErrorCode:
    """One of Kafka's errors by its name or number. Raises ValueError for another and for NONE, TypeError."""
    if isinstance(given, int) and not isinstance(given, bool):
        if given not in ErrorCode._value2member_map_:
            raise ValueError(f"no error of Kafka has the number {given}")
        code = ErrorCode(given)
    else:
        check_text("error", given)
        name = given.upper()  # type: ignore[union-attr]
        if name not in ErrorCode.__members__:
            raise ValueError(f"no error is named {given!r}{suggestions(name, ErrorCode.__members__.keys() - {'NONE'})}")
        code = ErrorCode[name]
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error: a client would trust a change that was not made")
    return code


class RequestPattern:
    """`api`, `topic` and `client_id` of None match every request. Of the matching ones, the first `after` pass
    unharmed, and the next `times` are chosen (None: all), each with the `probability`, by a generator that begins with
    `seed`.
    """

    def __init__(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
        after: int = 0,
        probability: float = 1.0,
        seed: int = 0,
    ) -> None:
        if (times is not None and times < 1) or after < 0 or not 0 < probability <= 1:
            raise ValueError("times is 1 or more, or None; after is 0 or more; probability is above 0, and at most 1")
        self.api = None if api is None else api_name(api)
        self.topic = topic
        self.client_id = client_id
        self._left = times
        self._after = after
        self._probability = probability
        self._random = Random(seed)

    @property
    def is_live(self) -> bool:
        """Whether it may choose more."""
        return self._left != 0

    def fits_client(self, request: RecordedRequest) -> bool:
        """Whether API and client match."""
        is_api = self.api is None or request.api == self.api
        return is_api and (self.client_id is None or request.client_id == self.client_id)

    def chooses(self, request: RecordedRequest, *, names_topic: bool) -> bool:
        """Whether this request is chosen; it is counted. `names_topic`: it is about `topic`, if there is one."""
        if not names_topic or not self.is_live or not self.fits_client(request):
            return False
        if self._after:
            self._after -= 1
            return False
        if self._random.random() >= self._probability:
            return False
        if self._left is not None:
            self._left -= 1
        return True

    def give_back(self) -> None:
        """Takes the last choice back: it does not count."""
        if self._left is not None:
            self._left += 1

    def __str__(self) -> str:
        about = "any request" if self.api is None else self.api
        about += "" if self.topic is None else f" of {self.topic}"
        return about if self.client_id is None else f"{about} from {self.client_id}"


class Call(NamedTuple):
    """A chosen request. `execute` executes it normally, or another frame instead; its answer may come later. `hang_up`
    closes the connection after the answer. `miss` takes the choice back: there was nothing to spoil."""

    request: RecordedRequest
    server: BrokerServer
    execute: Callable[[memoryview], Answer]
    hang_up: Callable[[], None]
    connection: ClientConnection
    miss: Callable[[], None]

    @property
    def frame(self) -> memoryview:
        return memoryview(self.request.frames.request)


Spoil = Callable[[Call], "Answer"]
"""Carries a fault out; raises Disconnect to close the connection."""


class FiredFault(NamedTuple):
    """A fault that has spoiled a request, or a disruption, whose target is in `request`. `time` is the broker's."""

    time: datetime
    fault: str
    request: str

    def __str__(self) -> str:
        return f"{self.time:%H:%M:%S.%f} {self.fault}: {self.request}"


class Fault:
    """One fault. As a context manager it is active in the block, at whose end it must have fired, unless `must_fire` is
    false. `fired` counts the requests that it has spoiled."""

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
        """Remove the fault: it spoils no more requests."""
        self._remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.remove()
        if kind is None and self.must_fire and not self.fired:
            raise AssertionError(f"the fault never fired: {self}")

    def __str__(self) -> str:
        return f"{self.name} for {self.pattern}"


async def await_answer(answer: Answer) -> list[Part] | None:
    """The parts of an answer, once they are complete."""
    if answer is None or isinstance(answer, list):
        return answer
    parts: list[Part] | None = await answer
    return parts


def hang_up(server: BrokerServer, connection: ClientConnection) -> None:
    """Close a connection after the next answer has been sent."""
    for processor in server.server.processors:
        for one in processor.connections:
            if one.client is connection:
                asyncio.get_running_loop().call_soon(one.drain)


def frame_of(parts: list[Part] | None) -> bytes:
    """The whole response in one piece, with its size."""
    return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts or ())
