"""Requests to ZooKeeper: a few at a time are in flight, the others wait. All fail when the connection is lost.

kazoo's own queue is not enough: it wakes its thread through a pipe that is full after a few hundred requests, and then
the event loop would wait for the thread.
Source: zookeeper.max.in.flight.requests of kafka.zookeeper.ZooKeeperClient.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
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
    """Opened once, closed once; in between it reconnects by itself whenever it is lost. It calls back from any thread,
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


_AT_SERVERS_MAX = 100  # upper limit of the setting

# ZooKeeper's codes for "no answer": connection lost, timed out, session expired, authentication failed, session moved.
_NO_ANSWER = frozenset({-4, -7, -112, -115, -118})


class ConnectionLost(Exception):
    """There was no connection, or it was lost before the answer."""


class RequestRefused(Exception):
    """ZooKeeper answered the whole request with an error."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class RequestQueue:
    """Serves one connection after the other: `use` a new one, `lose` all requests with it."""

    def __init__(self, count_max: int) -> None:
        self._count_max = min(count_max, _AT_SERVERS_MAX)
        self._connection: Connection | None = None
        self._queue: deque[tuple[Request, asyncio.Future[Answer]]] = deque()
        self._at_servers: dict[asyncio.Future[Answer], None] = {}

    def use(self, connection: Connection) -> None:
        """Send requests over this connection from now on."""
        self._connection = connection

    def lose(self) -> None:
        """Fail every request with `ConnectionLost`."""
        self._connection = None
        queue, self._queue = self._queue, deque()
        at_servers, self._at_servers = self._at_servers, {}
        for future in (*at_servers, *(future for _, future in queue)):
            _fail(future, ConnectionLost())

    def submit(self, request: Request) -> asyncio.Future[Answer]:
        """Returns a future of the answer, which fails with `RequestRefused` or `ConnectionLost`. A caller that stops
        waiting calls `drop`."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._connection is None:
            _fail(future, ConnectionLost())
        else:
            self._queue.append((request, future))
            self._send()
        return future

    def _send(self) -> None:
        connection = self._connection
        while connection is not None and self._queue and len(self._at_servers) < self._count_max:
            request, future = self._queue.popleft()
            if future.done():
                continue
            self._at_servers[future] = None
            if not connection.submit(request, Reply(self._reply_to(future))):
                del self._at_servers[future]
                _fail(future, ConnectionLost())  # the notification of the loss is on its way

    def _reply_to(self, future: asyncio.Future[Answer]) -> Callable[[Answer | None, Exception | None], None]:
        def done(answer: Answer | None, error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: no caller waits
                future.get_loop().call_soon_threadsafe(self._complete, future, answer, error)

        return done

    def _complete(self, future: asyncio.Future[Answer], answer: Answer | None, error: Exception | None) -> None:
        if self._at_servers.pop(future, self) is not self:
            self._send()
        if answer is None:
            code = getattr(error, "code", -4)
            _fail(future, ConnectionLost() if code in _NO_ANSWER else RequestRefused(code))
        elif not future.done():
            future.set_result(answer)


def drop(future: asyncio.Future[Answer]) -> None:
    """Discard an answer without a waiting caller."""
    if not future.cancel() and not future.cancelled():
        future.exception()  # asyncio logs exceptions that are never retrieved


def _fail(future: asyncio.Future[Answer], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
