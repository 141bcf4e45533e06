"""Answers on their way out under TLS: OpenSSL encrypts pieces of `CHUNK_BYTES`, of bytes and of files.

A piece that the socket does not take whole must be given to OpenSSL again exactly as it was, so it is kept until then.
There is no sendfile: a region is read, and one that is not in memory is read by another thread first, as without TLS.
Source: org.apache.kafka.common.network.SslTransportLayer.
"""

from __future__ import annotations

import os
import socket
import ssl
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence

from kafkalite.common.region import FileRegion, Part
from kafkalite.network.cold_reads import ColdReads
from kafkalite.network.sender import TURN_BYTES, Sender, region_ended_early

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
        moved: Callable[[], None],
        drained: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        super().__init__(loop, sock, cold_reads, moved, drained, failed)
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
        """The next bytes of `queue`, taken out of it, at least one; None if they have to wait for a disk, or there are
        none."""
        pieces: list[bytes | memoryview] = []
        left = CHUNK_BYTES
        while queue and left:
            part = queue[0]
            if not len(part):  # OpenSSL writes no record for it, and would seem to be blocked for ever
                del queue[0]
                continue
            if isinstance(part, FileRegion):
                if not part.is_fresh and not self._at_hand(part, min(part.size, TURN_BYTES)):
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
