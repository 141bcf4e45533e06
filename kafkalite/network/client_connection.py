"""A client connection as handlers see it, and the kinds of answers that they give.

The network and the dispatcher share these: `ClientConnection`, `Answer` with `Pending`, and `Handler`.
"""

from __future__ import annotations

from asyncio import Future, ensure_future, get_running_loop
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Protocol

from kafkalite.common.errors import Disconnect
from kafkalite.common.region import Part

ANONYMOUS = "User:ANONYMOUS"


def ignore(*_: object) -> None:
    """A callback that does nothing."""


class FastPath(Protocol):
    """Answers requests that repeat earlier ones of the same connection."""

    def answer(self, frame: memoryview) -> list[Part] | Pending | None:
        """The answer to a request frame; None unless it repeats a known request."""
        ...


class ClientConnection:
    """One client connection, from its accept to its close.

    `local_host` and `local_port` are the address that the client dialled; without `advertised.listeners` it is the
    advertised address. ApiVersions fills in the two client_software fields. `fast_paths` belong to the dispatcher, by
    the low byte of the API key. `principal` is TYPE:NAME, `is_by_token` whether it was proven by a delegation token.
    `authenticator` gets the frames instead of the processor's handler as long as it is set; its frames are limited
    until `lift_limit`. `refused_batches` belong to the handlers of produces: topic and partition -> the error code of
    its last refusal, and how many batches may be behind it. `quotas` belong to the counting of requests against quotas
    (`api/request/throttling`). `end_sessions` belongs to the handlers of share groups: it is called when the connection
    is closed. The acceptor sets `accepted_ms`, of the monotonic clock, and `is_encrypted`.
    """

    __slots__ = (
        "accepted_ms",
        "authenticator",
        "client_software_name",
        "client_software_version",
        "end_sessions",
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
        self.end_sessions: Callable[[], None] = ignore
        self.refused_batches: dict[tuple[str, int], tuple[int, int]] | None = None
        self.quotas: Any = None
        self.accepted_ms = 0
        self.is_encrypted = False

    def fast_answer(self, frame: memoryview) -> list[Part] | Pending | None:
        """The answer to a request that repeats a known one; None to any other."""
        if not self.fast_paths or len(frame) < 2:
            return None
        fast_path = self.fast_paths.get(frame[1])
        return None if fast_path is None else fast_path.answer(frame)

    def __repr__(self) -> str:
        return f"ClientConnection({self.host}:{self.port} on {self.listener_name})"


class ThrottledAnswer(list[Part]):
    """An answer, perhaps empty, that is sent at once; then its connection is muted: no request of it is handled for
    `throttle_ms`. Source: KIP-219.
    """

    __slots__ = ("throttle_ms",)

    def __init__(self, parts: Iterable[Part], throttle_ms: int) -> None:
        super().__init__(parts)
        self.throttle_ms = throttle_ms


class Pending:
    """An answer to come. It reaches the connection in the turn of the loop in which it is given.

    It is done once, by `answer`, `fail` or `cancel`; later calls have no effect. `change` adds a step between the
    response that is given and the parts that are sent, `on_done` names the receiver, which is the connection: both come
    before it can be done.
    """

    __slots__ = ("_on_answer", "_on_failure", "_release", "_render", "is_done")

    def __init__(self, release: Callable[[], object]) -> None:
        """`release` is called once, when the answer is done in any way, to end the wait."""
        self.is_done = False
        self._render: Callable[[Any], Any] | None = None
        self._on_answer: Callable[[Any], object] = ignore
        self._on_failure: Callable[[Exception], object] = ignore
        self._release = release

    @classmethod
    def of(cls, work: Awaitable[Any], release: Callable[[], object] | None = None) -> Pending:
        """The result of a coroutine or future, which `release` (None: a cancellation) ends if the client leaves."""
        task = ensure_future(work)
        pending = cls(release or task.cancel)
        task.add_done_callback(pending._on_task_done)
        return pending

    def change(self, step: Callable[[Any], Any]) -> None:
        """Apply `step` to the answer, after the steps so far. It is not called for an answer that is never given."""
        before = self._render
        self._render = step if before is None else lambda answer: step(before(answer))

    def on_done(self, on_answer: Callable[[Any], object], on_failure: Callable[[Exception], object] = ignore) -> None:
        """Call one of these when the answer is done, but not when it is cancelled."""
        self._on_answer, self._on_failure = on_answer, on_failure

    def answer(self, response: object) -> None:
        if not self.is_done:
            render, on_answer, on_failure = self._render, self._on_answer, self._on_failure
            self.cancel()
            if render is None:
                on_answer(response)
                return
            try:
                parts = render(response)
            except Exception as reason:
                on_failure(reason)
            else:
                on_answer(parts)

    def fail(self, reason: Exception) -> None:
        if not self.is_done:
            on_failure = self._on_failure
            self.cancel()
            on_failure(reason)

    def cancel(self) -> None:
        """End the wait without an answer: the client left."""
        if not self.is_done:
            self.is_done = True
            release = self._release
            # the response and its waiters refer to each other: without this, the collector would have to free them
            self._release = self._on_answer = self._on_failure = ignore
            self._render = None
            release()

    def __await__(self) -> Generator[Any, None, Any]:
        """The answer, for a task that waits for it instead of a connection."""
        given: Future[Any] = get_running_loop().create_future()
        self.on_done(
            lambda answer: None if given.done() else given.set_result(answer),
            lambda reason: None if given.done() else given.set_exception(reason),
        )
        try:
            return (yield from given)
        finally:
            self.cancel()

    def _on_task_done(self, task: Future[Any]) -> None:
        if task.cancelled():
            self.fail(Disconnect(""))  # nothing answers this request any more
        elif isinstance(reason := task.exception(), Exception):
            self.fail(reason)
        else:
            self.answer(task.result())


class MutedPending(Pending):
    """No answer, but the time after one, for which its connection is muted."""

    __slots__ = ()


class PreemptiblePending(Pending):
    """An answer to come whose wait ends early when its client sends something else, meanwhile or together with its
    request: that of a follower's fetch, since the next one may name a partition that has become ready."""

    __slots__ = ("preempt",)

    def __init__(self, release: Callable[[], None], preempt: Callable[[], None]) -> None:
        """`preempt` is called when more has been received, perhaps several times. It answers a little later."""
        super().__init__(release)
        self.preempt = preempt


class LastAnswer(Disconnect):
    """Raised by a handler: send `parts`, then close, so that the client surely reads them. The text, if there is one,
    is for the log."""

    def __init__(self, parts: list[Part], why: str = "") -> None:
        super().__init__(why)
        self.parts = parts


Answer = list[Part] | None | Pending
"""The parts of whole response frames in order; None if no response is due; or an answer to come, for which the
connection waits."""

Handler = Callable[[ClientConnection, memoryview], Answer]
"""Called with one request frame without its size, in writable memory that stays as it is until the last byte of the
answer has left, and not longer. Raises `Malformed` or `Disconnect` to close the connection."""
