"""A connection to ZooKeeper as a session uses it, whether kazoo keeps it or a test's ZooKeeper in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kafkalite.zk.client.wire_requests import Answer, Request


class Reply:
    """Passes the answer to one request on: `done(answer, None)` or `done(None, error)`, on any thread."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Answer | None, Exception | None], None]) -> None:
        self._done = done

    def set(self, answer: Any) -> None:
        data, offset = answer  # kazoo makes a list of the answer to a multi
        self._done((data, offset), None)

    def set_exception(self, error: Exception) -> None:
        self._done(None, error)


class Connection(Protocol):
    """Opened once, closed once; in between it comes back by itself whenever it is lost. It calls back from any thread,
    one call after the other, in the order in which ZooKeeper answered."""

    session_timeout_ms: int

    @property
    def session_id(self) -> int:
        """The session id, as in the `ephemeral_owner` of a node; 0 without a session."""
        ...

    @property
    def last_fault(self) -> str:
        """Why the last attempt to connect failed; empty when none has."""
        ...

    def open(self) -> None:
        """Begin to connect."""
        ...

    def submit(self, request: Request, reply: Reply) -> bool:
        """Send a request over the present connection. Returns False, and sends nothing, when there is none. An error
        that is given to `reply` has ZooKeeper's number as its `code`."""
        ...

    def close(self) -> None:
        """End the session. May block."""
        ...
