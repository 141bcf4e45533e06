"""A group of connections: their receive memory, their counters, and the sweep that closes the idle ones.

In Kafka a processor is a thread with a selector. Here the event loop is the selector of all of them, and
`num.network.threads` says over how many groups the connections are spread.
Source: kafka.network.Processor; idle expiry: org.apache.kafka.common.network.Selector.IdleExpiryManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Protocol

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.forks import close_socket
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.network.client_connection import ClientConnection, Handler
from kafkalite.network.connection_quotas import ConnectionQuotas, NetworkLimits
from kafkalite.network.framing import FrameMemory
from kafkalite.network.sender import ColdReads

if sys.platform == "linux":

    class DisconnectWatcher:
        """Calls back once for each watched socket whose client has disconnected.

        A connection that holds enough unread requests stops reading, and so would not see the end of the stream behind
        them. One epoll set for such sockets, watched by the loop like any descriptor, reports it (EPOLLRDHUP). Without
        epoll a disconnect is noticed when the connection reads or writes again.
        """

        __slots__ = ("_callbacks", "_epoll", "_loop")

        def __init__(self, loop: AbstractEventLoop) -> None:
            self._loop = loop
            self._epoll: select.epoll | None = None  # made when first needed
            self._callbacks: dict[int, Callable[[], None]] = {}

        def watch(self, fd: int, callback: Callable[[], None]) -> None:
            if self._epoll is None:
                self._epoll = select.epoll()
                self._loop.add_reader(self._epoll.fileno(), self._ready)
            self._epoll.register(fd, select.EPOLLRDHUP)
            self._callbacks[fd] = callback

        def forget(self, fd: int) -> None:
            """Call it before `fd` is closed. Harmless if `fd` is not watched."""
            if self._callbacks.pop(fd, None) is not None and self._epoll is not None:
                self._epoll.unregister(fd)

        def close(self) -> None:
            if self._epoll is not None:
                self._loop.remove_reader(self._epoll.fileno())
                self._epoll.close()
                self._epoll = None
            self._callbacks.clear()

        def _ready(self) -> None:
            if self._epoll is None:
                return
            for fd, _ in self._epoll.poll(0):
                callback = self._callbacks.get(fd)
                if callback is not None:
                    self.forget(fd)
                    callback()

else:

    class DisconnectWatcher:
        """Watches nothing: this system has no epoll."""

        __slots__ = ()

        def __init__(self, loop: AbstractEventLoop) -> None: ...

        def watch(self, fd: int, callback: Callable[[], None]) -> None: ...

        def forget(self, fd: int) -> None: ...

        def close(self) -> None: ...


SWEEPS_PER_IDLE_TIME = 8
SWEEP_MS_MAX = 30_000


LINGER_SECONDS = 1.0
DISCARDED_BYTES_MAX = 1024 * 1024
LINGERING_MAX = 1024
"""Sockets that may linger at a time; those beyond are closed at once."""

_CHUNK_BYTES = 64 * 1024


class LingeringSockets:
    """Sockets whose sending side has ended, so that the client reads the last bytes. Used on the event loop only.

    A socket that is closed while received bytes lie unread is reset, and the reset may overtake what was sent: the
    client sees a lost connection, retries without end, and never learns that its password is wrong. So the sending side
    ends first, received bytes are discarded until the client has closed its side, and only then the socket is closed. A
    client that does not close has `LINGER_SECONDS`, and may send `DISCARDED_BYTES_MAX`.
    Source: RFC 1122, 4.2.2.13; org.apache.kafka.common.network.Selector.delayCloseOnAuthenticationFailure.
    """

    __slots__ = ("_discarded", "_loop")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._discarded: dict[socket.socket, int] = {}

    def add(self, sock: socket.socket) -> None:
        """Take over a non-blocking socket: nothing of it may be registered with the loop."""
        try:
            if len(self._discarded) >= LINGERING_MAX:
                raise ConnectionAbortedError
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            close_socket(sock)
            return
        self._discarded[sock] = 0
        self._loop.add_reader(sock.fileno(), self._readable, sock)
        self._loop.call_later(LINGER_SECONDS, self._end, sock)

    def close(self) -> None:
        for sock in list(self._discarded):
            self._end(sock)

    def _readable(self, sock: socket.socket) -> None:
        try:
            count = len(sock.recv(_CHUNK_BYTES))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        self._discarded[sock] += count
        if not count or self._discarded[sock] > DISCARDED_BYTES_MAX:
            self._end(sock)

    def _end(self, sock: socket.socket) -> None:
        if self._discarded.pop(sock, None) is not None:
            self._loop.remove_reader(sock.fileno())
            with contextlib.suppress(OSError):
                close_socket(sock)


class ProcessedConnection(Protocol):
    """A connection as its processor sees it."""

    @property
    def client(self) -> ClientConnection: ...

    @property
    def active_ms(self) -> int:
        """The processor's `now_ms` when bytes last moved."""
        ...

    @property
    def has_pending_response(self) -> bool:
        """Whether a response is pending."""
        ...

    def drain(self) -> None:
        """Take no more requests; close when the one in flight is answered."""
        ...

    def close(self) -> None: ...


class Processor:
    """The state that its connections share, and their counters.

    Invariants: a connection is in `connections` from its start to its `close`; a future is in `pending_responses` until
    it is done, also when its connection is closed.
    """

    __slots__ = (
        "_draining",
        "_idle_ms_max",
        "_quotas",
        "_sweep_ms",
        "_timer",
        "bytes_in",
        "bytes_out",
        "clock",
        "cold_reads",
        "connections",
        "connections_accepted",
        "disconnect_watcher",
        "emptied",
        "frame_bytes_max",
        "handler",
        "lingering",
        "loop",
        "memory",
        "now_ms",
        "number",
        "rate_limited_log",
        "request_memory",
        "requests",
    )

    def __init__(
        self,
        number: int,
        loop: AbstractEventLoop,
        handler: Handler,
        limits: NetworkLimits,
        clock: Clock,
        quotas: ConnectionQuotas,
        rate_limited_log: RateLimitedLogger,
        cold_reads: ColdReads,
    ) -> None:
        self.number = number
        self.loop = loop
        self.handler = handler
        self.clock = clock
        self.rate_limited_log = rate_limited_log
        self.cold_reads = cold_reads
        self.memory = FrameMemory()
        self.request_memory = quotas.request_memory
        self.disconnect_watcher = DisconnectWatcher(loop)
        self.lingering = LingeringSockets(loop)
        self.frame_bytes_max = limits.socket_request_max_bytes
        self.connections: set[ProcessedConnection] = set()
        self.connections_accepted = 0
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0  # of answers begun
        self.emptied = asyncio.Event()
        self._draining = False
        self._quotas = quotas
        self._idle_ms_max = limits.connections_max_idle_ms
        self._sweep_ms = max(1, min(self._idle_ms_max // SWEEPS_PER_IDLE_TIME, SWEEP_MS_MAX))
        self._timer: Timer | None = None
        # A coarse clock: asking the real one for each request costs more than counting the request.
        self.now_ms = clock.monotonic_ms()
        if self._idle_ms_max >= 0:
            self._timer = clock.call_later(self._sweep_ms, self._sweep)

    def add(self, connection: ProcessedConnection) -> None:
        self.connections.add(connection)
        self.connections_accepted += 1

    def release(self, connection: ProcessedConnection) -> None:
        """`connection` is closed."""
        self.connections.discard(connection)
        self._quotas.release(connection.client.listener_name, connection.client.host)
        if self._draining and not self.connections:
            self.emptied.set()

    def drain(self) -> None:
        """Let each connection finish the request in flight and close; `emptied` is set when the last one has."""
        self._draining = True
        for connection in list(self.connections):
            connection.drain()
        if not self.connections:
            self.emptied.set()

    def close(self) -> None:
        """Close all connections, which cancels pending responses (but does not wait for them), and the sweep."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self.connections):
            connection.close()
        self.disconnect_watcher.close()
        self.lingering.close()

    def renew_clock(self) -> None:
        """Read the real clock, for reports of silent connections: the coarse one may be a sweep behind."""
        self.now_ms = self.clock.monotonic_ms()

    def _sweep(self) -> None:
        """Close connections that were silent for the idle time; at the latest two sweeps after it, never before it."""
        self._timer = self.clock.call_later(self._sweep_ms, self._sweep)
        self.renew_clock()
        # `active_ms` was read from a clock that may have been one sweep behind
        expired_ms = self.now_ms - self._idle_ms_max - self._sweep_ms
        for connection in list(self.connections):
            if connection.active_ms <= expired_ms and not connection.has_pending_response:
                connection.close()
