"""Accepts the connections of one listener and hands them out to the processors.

When the process has no descriptor left, accepting rests for a second: the waiting connection would otherwise wake the
loop for ever.
Source: kafka.network.Acceptor.
"""

from __future__ import annotations

import errno
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.throttled_log import RateLimitedLogger
from kafkalite.network.client_connection import ClientConnection
from kafkalite.network.connection import Connection
from kafkalite.network.connection_quotas import ConnectionQuotas, NetworkLimits
from kafkalite.network.listener import Listener, plain_address
from kafkalite.network.processor import Processor
from kafkalite.network.tls_handshake import TlsHandshakes

ACCEPTS_PER_TURN = 64
RETRY_MS = 1000

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts for one listener from its construction to `close`."""

    __slots__ = (
        "_clock",
        "_handshakes",
        "_limits",
        "_listener",
        "_loop",
        "_next_processor",
        "_quotas",
        "_rate_limited_log",
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
        self._listen()

    def close(self) -> None:
        """Accept no more; connections in the backlog are refused."""
        self._rest()
        if self._timer is not None:
            self._timer.cancel()
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def _listen(self) -> None:
        self._timer = None
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _rest(self) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
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
            self._admit(sock, plain_address(address[0]), address[1])

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        refusal = self._quotas.admit(host)
        if refusal is not None:
            sock.close()
            self._rate_limited_log.about(host, refusal, refusal)
            return
        try:
            self._prepare(sock)
            local = sock.getsockname()
        except OSError:  # the client is gone already
            sock.close()
            self._quotas.release(host)
            return
        listener = self._listener
        client = ClientConnection(listener.name, host, port, plain_address(local[0]), local[1])
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
