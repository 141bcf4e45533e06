"""Requests on their way: some at a time at the servers, the others in line, and all of them lost with the connection.

The line is ours and not kazoo's, which wakes its thread through a pipe that is full after a few hundred requests, and
then the event loop would wait for the thread.
Source: zookeeper.max.in.flight.requests of kafka.zookeeper.ZooKeeperClient.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from kafkalite.zk.client.kazoo_connection import KazooConnection, Reply
from kafkalite.zk.client.wire_requests import Answer, Request

_AT_SERVERS_MAX = 100  # whatever the setting says

# What kazoo says when there was no answer, rather than a bad one: connection lost, timed out, expired, refused, moved.
_NO_ANSWER = frozenset({-4, -7, -112, -115, -118})


class Lost(Exception):
    """The connection went before the answer came, or was not there."""


class Refused(Exception):
    """ZooKeeper's error for the whole request."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class RequestQueue:
    """For one connection after the other: `use` the door when one is there, `lose` all when it goes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count_max: int) -> None:
        self._loop = loop
        self._count_max = min(count_max, _AT_SERVERS_MAX)
        self._door: KazooConnection | None = None
        self._line: deque[tuple[Request, asyncio.Future[Answer]]] = deque()
        self._at_servers: dict[asyncio.Future[Answer], None] = {}

    def use(self, door: KazooConnection) -> None:
        """There is a connection."""
        self._door = door

    def lose(self) -> None:
        """There is none any more. Every future fails with `Lost`."""
        self._door = None
        line, self._line = self._line, deque()
        at_servers, self._at_servers = self._at_servers, {}
        for future in (*at_servers, *(future for _, future in line)):
            _fail(future, Lost())

    def submit(self, request: Request) -> asyncio.Future[Answer]:
        """The answer to come. The future fails with `Refused` or `Lost`; whoever loses interest calls `drop`."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self._door is None:
            _fail(future, Lost())
        else:
            self._line.append((request, future))
            self._send()
        return future

    def _send(self) -> None:
        door = self._door
        while door is not None and self._line and len(self._at_servers) < self._count_max:
            request, future = self._line.popleft()
            if future.done():
                continue
            self._at_servers[future] = None
            if not door.submit(request, Reply(self._reply_to(future))):
                del self._at_servers[future]
                _fail(future, Lost())  # the loop has yet to hear of it

    def _reply_to(self, future: asyncio.Future[Answer]) -> Callable[[Answer | None, Exception | None], None]:
        def done(answer: Answer | None, error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, nobody waits any more
                self._loop.call_soon_threadsafe(self._settle, future, answer, error)

        return done

    def _settle(self, future: asyncio.Future[Answer], answer: Answer | None, error: Exception | None) -> None:
        if self._at_servers.pop(future, self) is not self:
            self._send()
        if answer is None:
            code = getattr(error, "code", -4)
            _fail(future, Lost() if code in _NO_ANSWER else Refused(code))
        elif not future.done():
            future.set_result(answer)


def drop(future: asyncio.Future[Answer]) -> None:
    """Nobody waits for it any more."""
    if not future.cancel() and not future.cancelled():
        future.exception()  # asyncio would complain of one that nobody looked at


def _fail(future: asyncio.Future[Answer], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
