"""A client connection as handlers see it, and the kinds of answers that they give.

The network and the dispatcher share these: `ClientConnection`, `Answer` with `DeferredResponse`, and `Handler`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from kafkalite.common.region import Part

ANONYMOUS = "User:ANONYMOUS"


class FastPath(Protocol):
    """Answers requests that repeat earlier ones of the same connection."""

    def answer(self, frame: memoryview) -> list[Part] | DeferredResponse | None:
        """The answer to a request frame; None if the request repeats none that is known."""
        ...


class ClientConnection:
    """One client connection, from its accept to its close.

    `local_host` and `local_port` are the address that the client dialled; without `advertised.listeners` it is the
    advertised address. ApiVersions fills in the two client_software fields. `fast_paths` belong to the dispatcher, by
    the low byte of the API key. `principal` is TYPE:NAME, `is_by_token` whether it was proven by a delegation token.
    `authenticator` gets the frames instead of the processor's handler as long as it is set; its frames are limited
    until `lift_limit`. `refused_batches` belong to the handlers of produces: topic and partition -> the error code of
    its last refusal, and how many batches may be behind it. `quotas` belong to whoever counts requests against quotas
    (`api/request/request_quotas`). The acceptor tells `accepted_ms`, of the monotonic clock, and `is_encrypted`.
    """

    __slots__ = (
        "accepted_ms",
        "authenticator",
        "client_software_name",
        "client_software_version",
        "fast_paths",
        "host",
        "is_by_token",
        "is_encrypted",
        "lift_limit",
        "listener_name",
        "local_host",
        "local_port",
        "port",
        "principal",
        "quotas",
        "refused_batches",
    )

    def __init__(self, listener_name: str, host: str, port: int, local_host: str, local_port: int) -> None:
        self.listener_name = listener_name
        self.host = host
        self.port = port
        self.local_host = local_host
        self.local_port = local_port
        self.client_software_name: str | None = None
        self.client_software_version: str | None = None
        self.fast_paths: dict[int, FastPath] = {}
        self.principal = ANONYMOUS
        self.is_by_token = False
        self.authenticator: Handler | None = None
        self.lift_limit: Callable[[], None] = ignore
        self.refused_batches: dict[tuple[str, int], tuple[int, int]] | None = None
        self.quotas: Any = None
        self.accepted_ms = 0
        self.is_encrypted = False

    def __repr__(self) -> str:
        return f"ClientConnection({self.host}:{self.port} on {self.listener_name})"


class ThrottledAnswer(list[Part]):
    """An answer, perhaps empty, that is sent at once; then its connection rests, and handles nothing for `throttle_ms`.
    Source: KIP-219.
    """

    __slots__ = ("throttle_ms",)

    def __init__(self, parts: Iterable[Part], throttle_ms: int) -> None:
        super().__init__(parts)
        self.throttle_ms = throttle_ms


class DeferredResponse:
    """An answer to come. It reaches the connection in the turn of the loop in which it is given; a future and the task
    that awaits it take two turns more and 12 us.

    It is settled once, by `answer`, `fail` or `cancel`; later calls have no effect. `render` turns a response into the
    parts of its frame, `on_answer` and `on_failure` belong to the connection: all are set before it can be settled.
    """

    __slots__ = ("_release", "on_answer", "on_failure", "render", "settled")

    def __init__(self, release: Callable[[], None]) -> None:
        """`release` is called once, when the response is settled in any way, to end the wait."""
        self.settled = False
        self.render: Callable[[Any], list[Part]] = list
        self.on_answer: Callable[[list[Part]], None] = ignore
        self.on_failure: Callable[[Exception], None] = ignore
        self._release = release

    def answer(self, response: object) -> None:
        if not self.settled:
            render, on_answer, on_failure = self.render, self.on_answer, self.on_failure
            self.cancel()
            try:
                parts = render(response)
            except Exception as reason:
                on_failure(reason)
            else:
                on_answer(parts)

    def fail(self, reason: Exception) -> None:
        if not self.settled:
            on_failure = self.on_failure
            self.cancel()
            on_failure(reason)

    def cancel(self) -> None:
        """End the waiting without an answer: the client left."""
        if not self.settled:
            self.settled = True
            release = self._release
            # the response and its waiters refer to each other: without this, the collector would have to free them
            self._release = self.on_answer = self.on_failure = ignore
            release()


class Rest(DeferredResponse):
    """No answer, but the time after one, for which its connection rests."""

    __slots__ = ()


class HurriedResponse(DeferredResponse):
    """An answer to come whose wait ends early when its connection sends something else, meanwhile or together with its
    request: that of a follower's fetch, since the next one may name a partition that has become ready."""

    __slots__ = ("hurry",)

    def __init__(self, release: Callable[[], None], hurry: Callable[[], None]) -> None:
        """`hurry` is called when more has been received, perhaps several times. It answers a little later."""
        super().__init__(release)
        self.hurry = hurry


def ignore(*_: object) -> None:
    """A callback that does nothing."""


Answer = list[Part] | None | DeferredResponse | Awaitable[list[Part] | None]
"""The parts of whole response frames in order; None if no response is due; or an answer to come, for which the
connection waits."""

Handler = Callable[[ClientConnection, memoryview], Answer]
"""Called with one request frame without its size, in writable memory that stays as it is until the last byte of the
answer has left, and not longer. Raises `Malformed` or `Disconnect` to close the connection."""
