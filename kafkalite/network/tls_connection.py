"""A client connection under TLS: the same turns as without, over a socket that OpenSSL reads and writes.

OpenSSL works on the descriptor itself. Going through memory instead (ssl.MemoryBIO) receives no faster, 1.0 GB per
second of CPU either way, and would copy every answer twice more. What OpenSSL has decrypted and not handed out is no
longer in the kernel, so the loop does not report it: a turn that leaves some schedules the next one.

Answers are encrypted in pieces of `CHUNK_BYTES`, of bytes and of files. A piece that the socket does not take whole
must be given to OpenSSL again exactly as it was, so it is kept until then. There is no sendfile: a region is read, and
one that is not in memory is read by another thread first, as without TLS.
Source: org.apache.kafka.common.network.SslTransportLayer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from kafkalite.common.errors import Disconnect
from kafkalite.common.region import FileRegion, Part
from kafkalite.network.client_connection import ClientConnection
from kafkalite.network.connection import Connection
from kafkalite.network.processor import Processor
from kafkalite.network.sender import TURN_BYTES, ColdReads, Sender, region_ended_early

CHUNK_BYTES = 64 * 1024
"""Four records of TLS: larger pieces are no faster, and a slow client holds one of them."""


class TlsSender(Sender):
    """The outgoing half of one connection under TLS."""

    __slots__ = ("_chunk",)

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        cold_reads: ColdReads,
        on_progress: Callable[[], None],
        on_drained: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        super().__init__(loop, sock, cold_reads, on_progress, on_drained, failed)
        self._chunk: bytes | None = None  # given to OpenSSL and not taken: it must see the same bytes again

    def send(self, parts: Sequence[Part]) -> None:
        if self.pending:
            if self._queue is not None:
                self._queue.extend(parts)
            return
        queue = deque(parts)
        if not self._pump(queue):
            self._wait(queue)

    def _pump(self, queue: deque[Part]) -> bool:
        turn_bytes = TURN_BYTES
        while self._chunk is not None or queue:
            if turn_bytes <= 0:
                return False
            if self._chunk is None and self._warming is None:
                self._chunk = self._next_chunk(queue)
            if self._chunk is None:
                return not queue  # if something follows, it is cold, and another thread reads it now
            try:
                self._send(self._chunk)  # all or nothing
            except (ssl.SSLWantWriteError, BlockingIOError):
                return False
            turn_bytes -= len(self._chunk)
            self._chunk = None
        return True

    def _next_chunk(self, queue: deque[Part]) -> bytes | None:
        """Takes the next bytes out of `queue`, at least one; None if they wait for a disk, or there are none."""
        pieces: list[bytes | memoryview] = []
        left = CHUNK_BYTES
        while queue and left:
            part = queue[0]
            if not len(part):  # OpenSSL writes no record for it, and would seem to be blocked
                del queue[0]
                continue
            if isinstance(part, FileRegion):
                if not part.is_fresh and not self._warm_bytes(part, min(part.size, TURN_BYTES)):
                    break
                size = min(part.size, left)
                piece: bytes | memoryview = os.pread(part.file.fd, size, part.position)
                if len(piece) != size:
                    raise region_ended_early(part)
                rest: Part = FileRegion(part.file, part.position + size, part.size - size, part.is_fresh)
            else:
                whole = memoryview(part)
                piece, rest = whole[:left], whole[left:]
                size = len(piece)
            pieces.append(piece)
            left -= size
            if len(rest):
                queue[0] = rest
            else:
                del queue[0]
        return b"".join(pieces) if pieces else None


_NOT_TRUSTED = (
    "the client does not accept this broker's certificate: does its truststore have the authority that signed it, is "
    "it still valid, and does it name the host that the client dialled?"
)
_NOTHING_SHARED = "client and broker have no version or cipher suite of TLS in common: see ssl.enabled.protocols and "
_HINTS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sends no certificate, and ssl.client.auth=required",
    "HTTP_REQUEST": "the client speaks HTTP, this is a Kafka listener with TLS",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS as it should",
    "NO_SHARED_CIPHER": _NOTHING_SHARED + "ssl.cipher.suites",
    "UNSUPPORTED_PROTOCOL": _NOTHING_SHARED + "ssl.cipher.suites",
    "NO_SHARED_SIGNATURE_ALGORITHMS": _NOTHING_SHARED + "ssl.cipher.suites",
    "TLSV1_ALERT_PROTOCOL_VERSION": _NOTHING_SHARED + "ssl.cipher.suites",
    **dict.fromkeys(
        (
            "TLSV1_ALERT_UNKNOWN_CA",
            "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
            "SSLV3_ALERT_BAD_CERTIFICATE",
            "SSLV3_ALERT_CERTIFICATE_EXPIRED",
            "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        ),
        _NOT_TRUSTED,
    ),
}


def explain(fault: ssl.SSLError) -> str:
    """One line about a fault, with what OpenSSL calls it."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused ({fault.verify_message}): see ssl.truststore.location"
    name = fault.reason or type(fault).__name__
    hint = _HINTS.get(name)
    return f"{hint} ({name})" if hint else f"TLS failed ({name})"


class TlsSocket(ssl.SSLSocket):
    """An accepted socket under TLS that does not block. `recv_into` takes as much as there is, in one call."""

    has_more = False
    """Whether the next `recv_into` returns at once, though the kernel has nothing: decrypted bytes, or the end."""

    def recv_into(self, buffer: memoryview, nbytes: int | None = None, flags: int = 0) -> int:  # type: ignore[override]
        """Receive; returns the number of bytes, 0 at the end. Raises BlockingIOError if there is nothing yet."""
        count, size = 0, len(buffer)
        self.has_more = False
        try:
            while count < size:
                got = self.read(size - count, buffer[count:])
                if not got:
                    self.has_more = count > 0
                    return count
                count += got  # type: ignore[operator]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not count:
                raise BlockingIOError from None
            return count
        except OSError:
            if not count:
                raise
            self.has_more = True  # it will be raised again
            return count
        self.has_more = self.pending() > 0
        return count


class TlsConnection(Connection):
    """Serves one connection whose handshake is over."""

    __slots__ = ("_is_more_scheduled", "_tls")

    sender_type: ClassVar[type[Sender]] = TlsSender

    def __init__(self, sock: TlsSocket, client: ClientConnection, processor: Processor) -> None:
        self._tls = sock
        self._is_more_scheduled = False
        super().__init__(sock, client, processor)
        # OpenSSL may have requests that were received with the end of the handshake
        sock.has_more = True
        self._look_for_more()

    def _readable(self) -> None:
        super()._readable()
        self._look_for_more()

    def _resume(self) -> None:
        super()._resume()
        self._look_for_more()

    def _look_for_more(self) -> None:
        if self._tls.has_more and self._reading and self._sock is not None and not self._is_more_scheduled:
            self._is_more_scheduled = True
            self._loop.call_soon(self._read_more)

    def _read_more(self) -> None:
        self._is_more_scheduled = False
        if self._reading and self._sock is not None:
            self._readable()

    def _failed(self, reason: Exception) -> None:
        if isinstance(reason, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            reason = ConnectionError()  # the client is gone
        elif isinstance(reason, ssl.SSLError):
            reason = Disconnect(explain(reason))
        super()._failed(reason)

    def _close_socket(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()  # sends close_notify, and does not wait for the answer
        super()._close_socket(sock)
