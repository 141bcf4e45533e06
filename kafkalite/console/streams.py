"""Work of a thread for the loop to await: a call with its borrowed client, and the items that it yields.

A client stays borrowed until all items are read, or the reader has disconnected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import anyio
from starlette.concurrency import run_in_threadpool

from kafkalite.console.brokers.broker_pool import BrokerPool
from kafkalite.console.calls.route import Download, Event
from kafkalite.console.request.parameters import CLIENT_FAULTS, ApiError, of_client

_TOGETHER_S = 0.02
_TOGETHER_MAX = 200
T = TypeVar("T")


class Opened:
    """The value of a call, and the items that its iterator yields later. Closed once, by a thread that waits for the
    one that reads: a cancelled task leaves its thread at work."""

    def __init__(self, value: Any, pieces: Iterator[Any] | None, held: ExitStack) -> None:
        self.value = value
        self._pieces = pieces
        self._held = held
        self._lock = threading.Lock()
        self._is_closed = False

    def end(self) -> None:
        """Lets the reader come to an end, from any thread."""
        self._is_closed = True

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):  # its thread may still be busy when the reader has disconnected
            await run_in_threadpool(self._close)

    def _close(self) -> None:
        close = getattr(self._pieces, "close", None)
        with self._lock:
            self._is_closed = True
            try:
                if close is not None:
                    close()
            finally:
                self._held.close()

    def _take(self) -> list[Any] | None:
        with self._lock:
            return None if self._is_closed or self._pieces is None else _take(self._pieces)

    async def portions(self) -> AsyncIterator[list[Any]]:
        """Items of the iterator, some at a time."""
        try:
            while (some := await run_in_threadpool(self._take)) is not None:
                yield some
        finally:
            await self.close()


async def first_of(pool: BrokerPool, call: Callable[[Any], Any], *, fresh: bool = False) -> Opened:
    """Make a call in a thread. The first item of an iterator is read now, so that an error at its beginning is an error
    of the request."""
    return await run_in_threadpool(_open, pool, call, fresh)


def _open(pool: BrokerPool, call: Callable[[Any], Any], fresh: bool) -> Opened:
    with ExitStack() as held:
        value = call(held.enter_context(pool.borrow(fresh=fresh)))
        pieces: Iterator[Any] | None = None
        if isinstance(value, Download):
            pieces = _begun(value.pieces)
        elif isinstance(value, Iterator):
            pieces = _begun(value)
        return Opened(value, pieces, held.pop_all())


def _begun(pieces: Iterator[T]) -> Iterator[T]:
    """The same pieces, of which the first has been read."""
    first = next(pieces, None)

    def all_of_them() -> Iterator[T]:
        try:
            if first is not None:
                yield first
            yield from pieces
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    return all_of_them()


def _take(pieces: Iterator[T]) -> list[T] | None:
    """The items of a short time, at least one; None at the end. A change of threads for each would take longer than
    the work."""
    some: list[T] = []
    began_s = time.monotonic()
    for one in pieces:
        some.append(one)
        if len(some) >= _TOGETHER_MAX or time.monotonic() - began_s > _TOGETHER_S:
            break
    return some or None


async def events(opened: Opened) -> AsyncIterator[list[Event]]:
    """The events of a call; an error in between is the last one."""
    try:
        async for some in opened.portions():
            yield some
    except ApiError as fault:
        yield [Event("error", fault.body())]
    except CLIENT_FAULTS as fault:
        yield [Event("error", of_client(fault).body())]


async def content(opened: Opened) -> AsyncIterator[bytes]:
    """The pieces of a download. An error in between closes the connection, so that the client notices the cut file."""
    async for some in opened.portions():
        yield b"".join(some)
