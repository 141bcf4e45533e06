"""Handshakes of TLS: between an accepted socket and its connection.

A handshake costs about a millisecond, so in one turn of the loop there are only as many as fit into `TURN_SECONDS`, and
the others wait for the next. A client that sends nothing costs a socket and no more, since OpenSSL's part begins with
its first `HEAD_BYTES`; they also show whether it speaks TLS at all, and how long its first message is to be: OpenSSL
would take memory for what is claimed, 131,396 bytes at most. A handshake may take `TIMEOUT_MS`. There are at most
`HANDSHAKES_MAX`; one more closes the oldest, so that silent clients keep no others out.
Source: org.apache.kafka.common.network.SslTransportLayer.handshake.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from asyncio import AbstractEventLoop
from collections import deque

from kafkalite.common.clock import Clock, Timer, monotonic_s
from kafkalite.common.forks import close_socket, close_socket_in_children
from kafkalite.network.client_connection import ClientConnection
from kafkalite.network.listener import Tls
from kafkalite.network.processor import Processor
from kafkalite.network.tls_connection import TlsConnection, TlsSocket, explain

TIMEOUT_MS = 10_000
HANDSHAKES_MAX = 1024
TURN_SECONDS = 0.005

HEAD_BYTES = 9
"""The header of a record (type, version, length) and that of a message in it (type, length)."""
HELLO_BYTES_MAX = 16 * 1024
"""Of a client's first message. Usual ones have 200 to 2,000 bytes."""

_HANDSHAKE = 0x16  # the first byte of a record that begins one
_HELLO_BYTES_MIN = 4  # of the first record: no client splits the header of its message


class TlsHandshakes:
    """The handshakes of all listeners of a server. Invariant: `_open` has them in the order of their beginning."""

    __slots__ = ("_clock", "_is_scheduled", "_loop", "_open", "_ready", "_timer")

    def __init__(self, loop: AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._open: dict[TlsHandshake, int] = {}
        self._ready: deque[TlsHandshake] = deque()
        self._is_scheduled = False
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, sock: socket.socket, client: ClientConnection, processor: Processor, tls: Tls) -> None:
        """Take over an accepted socket; it becomes a connection of `processor`, or is closed."""
        if len(self._open) >= HANDSHAKES_MAX:
            next(iter(self._open)).fail("it has waited longest, and too many others have begun a TLS handshake")
        handshake = TlsHandshake(sock, client, processor, tls, self)
        self._open[handshake] = self._clock.monotonic_ms()
        if self._timer is None:
            self._timer = self._clock.call_later(TIMEOUT_MS, self._expire)

    def ready(self, handshake: TlsHandshake) -> None:
        """Continue with this handshake: its socket has bytes."""
        self._ready.append(handshake)
        self._schedule()

    def forget(self, handshake: TlsHandshake) -> None:
        self._open.pop(handshake, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        ends_s = monotonic_s() + TURN_SECONDS
        while self._ready and monotonic_s() < ends_s:
            self._ready.popleft().step()
        self._schedule()

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for handshake, began_ms in list(self._open.items()):
            left_ms = began_ms + TIMEOUT_MS - now_ms
            if left_ms > 0:
                self._timer = self._clock.call_later(left_ms, self._expire)
                return
            handshake.fail(f"it has not finished the TLS handshake in {TIMEOUT_MS} ms")


class TlsHandshake:
    """One handshake; to its processor it is a connection."""

    __slots__ = ("_all", "_fd", "_has_begun", "_processor", "_sock", "_terms", "_tls", "_waits", "active_ms", "client")

    def __init__(
        self, sock: socket.socket, client: ClientConnection, processor: Processor, terms: Tls, all_: TlsHandshakes
    ) -> None:
        self.client = client
        self.active_ms = processor.now_ms
        self._sock: socket.socket | None = sock  # None: over
        self._fd = sock.fileno()
        self._tls: TlsSocket | None = None  # from the first byte on
        self._terms = terms
        self._processor = processor
        self._all = all_
        self._waits = ""
        self._has_begun = False  # whether the client has sent something
        processor.connections.add(self)
        _await_bytes(sock, HEAD_BYTES)
        self._wait("reader")

    has_pending_response = False

    def drain(self) -> None:
        self.close()

    def close(self) -> None:
        self._end(linger=False)

    def fail(self, why: str) -> None:
        """Close it and log the reason. OpenSSL's alert reaches the client if that has sent anything."""
        client = self.client
        if self._sock is not None:
            message = f"closed its connection to {client.listener_name}: {why}"
            self._processor.rate_limited_log.about(client.host, why, message)
            self._end(linger=self._has_begun)

    def step(self) -> None:
        """Continue with the received bytes."""
        if self._sock is None:
            return
        try:
            tls = self._tls or self._recognise(self._sock)
            if tls is None:
                return
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._wait("reader")
        except ssl.SSLWantWriteError:
            self._wait("writer")
        except ssl.SSLEOFError:
            self.close()  # the client is gone
        except ssl.SSLError as fault:
            self.fail(explain(fault))
        except OSError:
            self.close()
        else:
            self._succeed(tls)

    def _recognise(self, sock: socket.socket) -> TlsSocket | None:
        """The socket under TLS, if its first bytes are TLS."""
        try:
            first = sock.recv(HEAD_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._wait("reader")
            return None
        if not first:
            self.close()
            return None
        self._has_begun = True
        if first[0] != _HANDSHAKE:
            self.fail(
                "the client speaks HTTP, this is a Kafka listener with TLS"
                if first[:1] in (b"G", b"P", b"H")
                else "the client does not speak TLS, this listener does: set security.protocol=SSL in the client"
            )
            return None
        if len(first) < HEAD_BYTES:
            self.close()  # the client is gone, or there would be more
            return None
        if int.from_bytes(first[3:5], "big") < _HELLO_BYTES_MIN or int.from_bytes(first[6:9], "big") > HELLO_BYTES_MAX:
            self.fail(f"the client's first message of TLS is in pieces, or longer than {HELLO_BYTES_MAX} bytes")
            return None
        _await_bytes(sock, 1)
        context = self._terms.context()
        context.sslsocket_class = TlsSocket
        wrapped = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        assert isinstance(wrapped, TlsSocket)
        self._sock = self._tls = close_socket_in_children(wrapped)
        return wrapped

    def _succeed(self, tls: TlsSocket) -> None:
        try:
            principal = self._terms.principal(tls.getpeercert(binary_form=True))
        except ValueError as fault:
            self.fail(str(fault))
            return
        self.client.principal = principal
        self._sock = None
        self._all.forget(self)
        self._processor.connections.discard(self)
        TlsConnection(tls, self.client, self._processor)

    def _wait(self, waits: str) -> None:
        self._waits = waits
        loop = self._processor.loop
        (loop.add_reader if waits == "reader" else loop.add_writer)(self._fd, self._ready)

    def _ready(self) -> None:
        self._stop_waiting()
        self._all.ready(self)

    def _stop_waiting(self) -> None:
        loop = self._processor.loop
        if self._waits:
            (loop.remove_reader if self._waits == "reader" else loop.remove_writer)(self._fd)
            self._waits = ""

    def _end(self, *, linger: bool) -> None:
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        self._stop_waiting()
        self._all.forget(self)
        if linger:
            self._processor.lingering.add(sock)
        else:
            with contextlib.suppress(OSError):
                close_socket(sock)
        self._processor.release(self)


def _await_bytes(sock: socket.socket, count: int) -> None:
    """Have the loop call back when so many bytes have come, or the end of the stream."""
    with contextlib.suppress(OSError):  # the client has disconnected already, which the next read reports
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
