"""Sends answers: bytes with send, pieces of files with sendfile, strictly in order.

The usual answer, bytes that the socket takes whole, is one join and one send. Otherwise the remainder is queued and
continues whenever the socket is writable, about `TURN_BYTES` each time so that one fast reader does not hold up the
others. Bytes before a file region are sent with MSG_MORE, so that header and records leave as one packet; small regions
are read and joined, because a system call costs more than copying them. Nothing is ever refused: a client that asks for
the next answer waits until `pending` is over, which bounds the memory. sendfile of pages that are not in the page cache
waits for the disk, and with it the event loop: beside a consumer that read an old log, another client's produce took 13
ms at the 99th percentile instead of 0.4 (bench: beside-cold-8MiB). So a piece is checked before (`ColdReads.is_cold`),
and a cold one is read on a thread first (`warm`), together with the bytes that a sequential reader will want next;
meanwhile this connection waits and the others are served. Nothing is copied: sending to /dev/null makes the pages be
read, and that is all.
    a check of a page in memory, 1.1 us: two of them for each MiB, which takes 250 us or more to send
    reading 1 MiB by sendfile to /dev/null, 40 us of CPU; by pread, 370 us
Source: org.apache.kafka.common.network.{NetworkSend, PlaintextTransportLayer}, FileRecords.writeTo; preadv2(2)
(RWF_NOWAIT), sendfile(2), posix_fadvise(2).
"""

from __future__ import annotations

import os
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kafkalite.common.errors import Disconnect
from kafkalite.common.region import FileRegion, Part
from kafkalite.network.client_connection import ignore

THREADS = 4
"""Readers that wait for the disk at one time, each for one connection."""

STEP_BYTES = 64 * 1024

_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class ColdReads:
    """Reads pieces of files into the page cache on threads. Used on the event loop only."""

    __slots__ = ("_executor", "_loop", "_null_fd", "_one", "warmed_bytes")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.warmed_bytes = 0  # given to threads so far
        self._loop = loop
        self._executor: ThreadPoolExecutor | None = None  # most brokers' readers are at the end of the log
        self._null_fd = -1
        self._one = [bytearray(1)]

    def is_cold(self, region: FileRegion, size: int, *, closely: bool) -> bool:
        """Whether sending the first `size` bytes (at least one) would wait for a disk, as far as can be known: by
        the first and the last page, and `closely` by some in between, which may come later than the last."""
        fd, first = region.file.fd, region.position
        last = first + size - 1
        if self._is_away(fd, last) or self._is_away(fd, first):
            return True
        return closely and any(self._is_away(fd, at) for at in range(first + STEP_BYTES, last, STEP_BYTES))

    def _is_away(self, fd: int, position: int) -> bool:
        if not _NOWAIT:
            return False
        try:
            os.preadv(fd, self._one, position, _NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False  # the file system does not support it, or the read fails: then sending reports it
        return False

    def warm(self, piece: FileRegion, done: Callable[[], None]) -> None:
        """Read `piece` into the page cache, and start reading as many bytes after it; then call `done`, also after an
        error."""
        self.warmed_bytes += piece.size
        try:
            if self._executor is None:
                self._null_fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="kafkalite-read")
            self._executor.submit(self._read, piece, done)
        except (OSError, RuntimeError):  # no descriptor or thread is available: then the loop waits for the disk
            self._loop.call_soon(done)

    def _read(self, piece: FileRegion, done: Callable[[], None]) -> None:
        fd, position, size = piece.file.fd, piece.position, piece.size
        try:
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
            os.posix_fadvise(fd, position + size, size, os.POSIX_FADV_WILLNEED)
            end = position + size
            while position < end and (count := os.sendfile(self._null_fd, fd, position, end - position)):
                position += count
        except OSError:
            pass  # sending reports it
        finally:
            self._loop.call_soon_threadsafe(done)

    def close(self) -> None:
        """Wait for the threads to finish their current reads. Waiting pieces are dropped, and `done` is not called."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None
            os.close(self._null_fd)


TURN_BYTES = 1024 * 1024
GATHER_BYTES = 64 * 1024
COPIED_REGION_BYTES = 16 * 1024
"""Regions up to this size are read rather than sent as files. CPU per MB for 20 of them in an answer, read or sent:
464 or 700 us at 16 KiB, the same at 32 KiB, 385 or 242 us at 64 KiB."""

_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
_Bytes = bytes | bytearray | memoryview
_BLOCKED = (BlockingIOError, InterruptedError)


class Sender:
    """The outgoing half of one connection. `pending`: something of an answer has not left yet."""

    __slots__ = (
        "_cold_reads",
        "_failed",
        "_fd",
        "_loop",
        "_on_drained",
        "_on_progress",
        "_queue",
        "_send",
        "_warm",
        "_warming",
        "_was_cold",
        "pending",
    )  # fmt: skip

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        cold_reads: ColdReads,
        on_progress: Callable[[], None],
        on_drained: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`on_progress` is called when more of the queue has left, `on_drained` when `pending` ends, `failed` with the
        reason when the rest cannot be sent."""
        self._loop = loop
        self._fd = sock.fileno()
        self._send = sock.send
        self._cold_reads = cold_reads
        self._on_progress = on_progress
        self._on_drained = on_drained
        self._failed = failed
        self._queue: deque[Part] | None = None  # made when first needed: most connections never do
        self._warming: FileRegion | None = None  # the piece that another thread reads now: the socket is not asked
        self._warm: FileRegion | None = None  # the piece that was read last
        self._was_cold = False  # the last piece was cold: the next one is checked closely
        self.pending = False

    def send(self, parts: Sequence[Part]) -> None:
        """Send `parts`: what the socket takes now, the rest later. Raises OSError or Disconnect if it cannot."""
        if not self.pending:
            try:
                data = b"".join(parts)  # type: ignore[arg-type]  # a region among them is the TypeError
            except TypeError:
                pass
            else:
                try:
                    sent = self._send(data)
                except _BLOCKED:
                    sent = 0
                if sent < len(data):
                    self._wait([memoryview(data)[sent:]])
                return
            queue = deque(parts)
            if not self._pump(queue):
                self._wait(queue)
        elif self._queue is not None:
            self._queue.extend(parts)

    def drop(self) -> None:
        """Forget what has not left. `on_drained` is not called for it."""
        if self.pending:
            self.pending = False
            self._queue = self._warm = None
            if self._warming is None:
                self._loop.remove_writer(self._fd)
            self._warming = None

    def close(self) -> None:
        """Send nothing more, and call nothing back."""
        self.drop()
        # a sender and its owner refer to each other: without this, the collector would have to free both
        self._on_progress = self._on_drained = self._failed = ignore

    def _wait(self, rest: Sequence[Part] | deque[Part]) -> None:
        self._queue = rest if isinstance(rest, deque) else deque(rest)
        self.pending = True
        if self._warming is None:
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        queue = self._queue
        if queue is None:
            return
        try:
            done = self._pump(queue)
        except (OSError, Disconnect) as reason:
            self.drop()
            self._failed(reason)
            return
        self._on_progress()
        if done:
            self.drop()
            self._on_drained()
        elif self._warming is not None:
            self._loop.remove_writer(self._fd)

    def _warmed(self, piece: FileRegion) -> None:
        if self._warming is piece:  # neither dropped nor closed meanwhile
            self._warming = None
            self._warm = piece
            self._loop.add_writer(self._fd, self._writable)

    def _pump(self, queue: deque[Part]) -> bool:
        """One turn's worth of `queue`. True when all of it has left."""
        turn_bytes = TURN_BYTES
        while queue:
            if turn_bytes <= 0:
                return False
            part = queue.popleft()
            if isinstance(part, FileRegion) and part.size > COPIED_REGION_BYTES:
                size = min(part.size, TURN_BYTES)  # not less: some last bytes would cost a turn of their own
                if not part.is_fresh and not (size := self._warm_bytes(part, size)):
                    queue.appendleft(part)
                    return False
                sent = self._send_region(part, size)
                if sent < part.size:
                    queue.appendleft(FileRegion(part.file, part.position + sent, part.size - sent, part.is_fresh))
            else:
                first = part.read_at_once() if isinstance(part, FileRegion) else part
                if first is None:
                    assert isinstance(part, FileRegion)
                    if not self._warm_bytes(part, part.size):
                        queue.appendleft(part)
                        return False
                    first = _whole(part)
                data = _gather(first, queue)
                size = len(data)
                try:
                    sent = self._send(data, _MSG_MORE if queue else 0)
                except _BLOCKED:
                    sent = 0
                if sent < size:
                    queue.appendleft(memoryview(data)[sent:])
            if sent < size:
                return False  # the socket is full: another call would only confirm that
            turn_bytes -= sent
        return True

    def _warm_bytes(self, region: FileRegion, size: int) -> int:
        """The first bytes of `size` that can be sent without a wait for the disk; 0: another thread reads them now."""
        warm = self._warm
        left = -1
        if warm is not None and warm.file is region.file:
            left = warm.position + warm.size - region.position
        if warm is not None and 0 < left <= warm.size:
            size = min(size, left)
            # something of it leaves in any case; until a slow client is ready for the rest, that may be evicted
            if left == warm.size or not self._cold_reads.is_cold(region, size, closely=False):
                return size
        else:
            self._was_cold = self._cold_reads.is_cold(region, size, closely=self._was_cold)
            if not self._was_cold:
                return size
        self._warming = piece = FileRegion(region.file, region.position, size)
        self._cold_reads.warm(piece, partial(self._warmed, piece))
        return 0

    def _send_region(self, region: FileRegion, size: int) -> int:
        try:
            sent = os.sendfile(self._fd, region.file.fd, region.position, size)
        except _BLOCKED:
            return 0
        if not sent:
            raise region_ended_early(region)
        return sent


def _gather(data: _Bytes, queue: deque[Part]) -> _Bytes:
    """`data` and what follows it in `queue` as one piece of about `GATHER_BYTES`, without large or cold regions."""
    if not queue:
        return data
    pieces = [data]
    total = len(data)
    while queue and total < GATHER_BYTES:
        part = queue[0]
        if isinstance(part, FileRegion):
            read = part.read_at_once() if part.size <= COPIED_REGION_BYTES else None
            if read is None:
                break
            part = read
        del queue[0]
        pieces.append(part)
        total += len(part)
    return b"".join(pieces) if len(pieces) > 1 else data


def _whole(region: FileRegion) -> bytes:
    data = region.read()
    if len(data) != region.size:
        raise region_ended_early(region)
    return data


def region_ended_early(region: FileRegion) -> Disconnect:
    """The fault of a region that ends early: the answer's size is sent already, so the connection must close."""
    return Disconnect(f"{region.file.path} ended before {region.position + region.size}, which an answer had promised")
