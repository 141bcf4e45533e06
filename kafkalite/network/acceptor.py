"""Accepts the connections of one listener and hands them out to the processors.

Accepting pauses at the limit of connections (`connection_quotas`): further ones wait in the backlog. A connection above
the creation rate is held here, unread, and those behind it wait. When the process has no descriptor left, accepting
pauses for a second: the waiting connection would otherwise wake the loop without end.
Source: kafka.network.Acceptor.
"""

from __future__ import annotations

import errno
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.forks import close_socket, close_socket_in_children
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.network.client_connection import ClientConnection
from kafkalite.network.connection import Connection
from kafkalite.network.connection_quotas import ConnectionQuotas, NetworkLimits
from kafkalite.network.listener import Listener, plain_address
from kafkalite.network.processor import Processor
from kafkalite.network.tls_handshake import TlsHandshakes

ACCEPTS_PER_TURN = 64
RETRY_MS = 1000
REFUSED_MAX = 1024

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _Accepted(NamedTuple):
    """An accepted connection and its remote address."""

    sock: socket.socket
    host: str
    port: int


class _RefusedSockets:
    """Rate-limited connections, which are kept unread and closed after a delay (KIP-612)."""

    __slots__ = ("_clock", "_timers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[socket.socket, Timer] = {}  # the oldest first

    def close_later(self, sock: socket.socket, delay_ms: int) -> None:
        if len(self._timers) >= REFUSED_MAX:
            self._close(next(iter(self._timers)))
        self._timers[sock] = self._clock.call_later(delay_ms, lambda: self._close(sock))

    def close(self) -> None:
        for sock in list(self._timers):
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self._timers.pop(sock).cancel()
        close_socket(sock)


class Acceptor:
    """Accepts for one listener from its construction to `close`."""

    __slots__ = (
        "_clock",
        "_handshakes",
        "_held",
        "_limits",
        "_listener",
        "_loop",
        "_next_processor",
        "_quotas",
        "_rate_limited_log",
        "_refused",
        "_sockets",
        "_timer",
    )

    def __init__(
        self,
        listener: Listener,
        sockets: Sequence[socket.socket],
        loop: AbstractEventLoop,
        limits: NetworkLimits,
        clock: Clock,
        quotas: ConnectionQuotas,
        rate_limited_log: RateLimitedLogger,
        next_processor: Callable[[], Processor],
        handshakes: TlsHandshakes,
    ) -> None:
        """`sockets` are listening already and belong to the acceptor from now on."""
        self._listener = listener
        self._sockets = list(sockets)
        self._loop = loop
        self._limits = limits
        self._clock = clock
        self._quotas = quotas
        self._rate_limited_log = rate_limited_log
        self._next_processor = next_processor
        self._handshakes = handshakes
        self._timer: Timer | None = None
        self._held: _Accepted | None = None
        self._refused = _RefusedSockets(clock)
        self._listen()

    def close(self) -> None:
        """Accept no more; connections in the backlog are refused."""
        self._rest()
        if self._timer is not None:
            self._timer.cancel()
        for sock in self._sockets:
            close_socket(sock)
        self._sockets.clear()
        if self._held is not None:
            close_socket(self._held.sock)
            self._held = None
        self._refused.close()

    def _listen(self) -> None:
        self._timer = None
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _rest(self) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._quotas.has_slot(self._listener.name):
                self._rest()
                self._quotas.when_changed(self._listen)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # the client left before it was accepted
            except OSError as reason:
                if reason.errno not in _OUT_OF_RESOURCES:
                    raise
                message = f"cannot accept connections ({reason.strerror}): raise the limit of open files (ulimit -n)"
                self._rate_limited_log.about(f"listener {self._listener.name}", "resources", message)
                self._rest()
                self._timer = self._clock.call_later(RETRY_MS, self._listen)
                return
            accepted = _Accepted(close_socket_in_children(sock), plain_address(address[0]), address[1])
            wait_ms = self._quotas.creation_wait_ms(self._listener.name)
            if wait_ms > 0:
                self._rest()
                self._held = accepted
                self._timer = self._clock.call_later(wait_ms, self._admit_held)
                return
            self._admit(accepted)

    def _admit_held(self) -> None:
        """Resume with the rate-limited connection, as soon as there may be one more."""
        self._timer = None
        held = self._held
        if held is None:
            return
        if not self._quotas.has_slot(self._listener.name):
            self._quotas.when_changed(self._admit_held)
            return
        self._held = None
        self._admit(held)
        self._listen()

    def _admit(self, accepted: _Accepted) -> None:
        sock, host, port = accepted
        listener = self._listener
        wait_ms = self._quotas.ip_wait_ms(listener.name, host)
        if wait_ms > 0:
            self._refused.close_later(sock, wait_ms)
            return
        refusal = self._quotas.admit(listener.name, host)
        if refusal is not None:
            close_socket(sock)
            self._rate_limited_log.about(host, refusal, refusal)
            return
        try:
            self._prepare(sock)
            local = sock.getsockname()
        except OSError:  # the client has disconnected already
            close_socket(sock)
            self._quotas.release(listener.name, host)
            return
        client = ClientConnection(listener.name, host, port, plain_address(local[0]), local[1])
        client.accepted_ms = self._clock.monotonic_ms()
        client.is_encrypted = listener.tls is not None
        if listener.authenticator is not None:
            client.authenticator = listener.authenticator(client)
        if listener.tls is not None:
            self._handshakes.begin(sock, client, self._next_processor(), listener.tls)
        else:
            Connection(sock, client, self._next_processor())

    def _prepare(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._limits.socket_send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.socket_send_buffer_bytes)
