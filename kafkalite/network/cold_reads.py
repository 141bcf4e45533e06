"""Reads pieces of files that are not in the page cache on another thread, before they are sent.

sendfile of pages that are not in the page cache waits for the disk, and with it the event loop: beside a consumer that
read an old log, another client's produce took 13 ms at the 99th percentile instead of 0.4 (bench: beside-cold-8MiB).
So a piece is looked at before (`is_cold`), and what is cold is read on a thread first (`warm`), together with what a
sequential reader will want next. Nothing is copied: sending to /dev/null makes the pages be read, and that is all.
    a look at a page in memory, 1.1 us: two of them for each MiB, which takes 250 us or more to send
    reading 1 MiB by sendfile to /dev/null, 40 us of CPU; by pread, 370 us
Source: preadv2(2) (RWF_NOWAIT), sendfile(2), posix_fadvise(2).
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kafkalite.common.region import FileRegion

THREADS = 4
"""Readers that wait for the disk at one time, each for one connection."""

STEP_BYTES = 64 * 1024

_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


class ColdReads:
    """Used on the event loop only."""

    __slots__ = ("_executor", "_loop", "_null_fd", "_one", "warmed_bytes")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.warmed_bytes = 0  # given to threads so far
        self._loop = loop
        self._executor: ThreadPoolExecutor | None = None  # most brokers' readers are at the end of the log
        self._null_fd = -1
        self._one = [bytearray(1)]

    def is_cold(self, region: FileRegion, size: int, *, closely: bool) -> bool:
        """Whether sending the first `size` bytes (at least one) would wait for a disk, as far as that can be told: by
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
        except (OSError, RuntimeError):  # no descriptor or no thread is to be had: then the loop waits for the disk
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
