"""The end of a connection whose client must read the last bytes that were sent to it.

A socket that is closed while received bytes lie unread is reset, and the reset may overtake what was sent: the client
sees a lost connection, tries again for ever, and never learns that its password is wrong. So the sending side ends
first, what still comes is thrown away until the client has closed its side, and only then the socket goes. A client
that does not close has `LINGER_SECONDS`, and may send `DISCARDED_BYTES_MAX`.
Source: RFC 1122, 4.2.2.13; org.apache.kafka.common.network.Selector.delayCloseOnAuthenticationFailure.
"""

from __future__ import annotations

import contextlib
import socket
from asyncio import AbstractEventLoop

from kafkalite.common.errors import Disconnect
from kafkalite.common.forks import close_socket
from kafkalite.common.region import Part

LINGER_SECONDS = 1.0
DISCARDED_BYTES_MAX = 1024 * 1024
LINGERING_MAX = 1024
"""Sockets that may linger at a time; those beyond are closed at once."""

_CHUNK_BYTES = 64 * 1024


class LastAnswer(Disconnect):
    """Raised by a handler: send `parts`, then close, so that the client surely reads them. The text, if there is one,
    is for the log."""

    def __init__(self, parts: list[Part], why: str = "") -> None:
        super().__init__(why)
        self.parts = parts


class LingeringSockets:
    """Sockets whose sending side has ended. Used on the event loop only."""

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
