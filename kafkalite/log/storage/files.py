"""The door to the file system: whatever the log does to a disk goes through one `Files`, and so do its refusals.

A file that must be whole or not there is written beside its place and renamed (`write_atomically`). The calls of the
hot path are the system's own, so the door costs nothing there. Tests put another door in its place, one that tears
writes, drops what was not synced, or says that the disk is full (tests/support/log/faulty_files.py).
What may block is handed out as a `Job`: it holds only paths and bytes, so any thread may run it.
Source: org.apache.kafka.common.utils.Utils (atomicMoveWithFallback, flushDir).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from kafkalite.common.errors import StorageError
from kafkalite.common.region import OpenFile
from kafkalite.log.storage.descriptor_cache import DescriptorCache

Job = Callable[[], None]
Done = Callable[[Exception | None], None]
Background = Callable[[Job, Done], None]
"""Runs a job somewhere, then calls `done` with what it raised, or None, on the owner's thread. Jobs run one after
another in the order they came."""

# a map needs no descriptor of its own, but only Python 3.13 and later can do without
_NO_DESCRIPTOR: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def run_inline(job: Job, done: Done) -> None:
    """The plainest `Background`: here and now."""
    try:
        job()
    except Exception as error:
        done(error)
    else:
        done(None)


def is_full(error: OSError) -> bool:
    """Whether what is missing is room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def storage_error(what: str, directory: str, error: OSError) -> StorageError:
    """`error` as the operator should read it: what was being done, where, and why it did not work."""
    if is_full(error):
        return StorageError(f"{what}: no space left in {directory}; free some, or lower retention.bytes")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageError(f"{what}: too many open files (in {directory}); raise the limit (ulimit -n)")
    return StorageError(f"{what} in {directory}: {error.strerror or error}")


def _nobody(directory: str, error: OSError) -> None:
    """Wants to know."""


class SyncFailed(OSError):
    """fsync itself failed. The system may have dropped what it could not write: the next fsync would succeed without
    it, so there is no trying again."""


class Files:
    """One door for all logs of a broker. Every method raises OSError as the system does, unless it says otherwise.

    The first group is the system itself: the only places where something on a disk is opened, changed or synced, and
    what a test's door overrides. All else is made of them. `open_segments` bounds the descriptors.
    """

    def __init__(self, open_segments: DescriptorCache | None = None) -> None:
        self.open_segments = DescriptorCache(256) if open_segments is None else open_segments
        self.on_io_error: Callable[[str, OSError], None] = _nobody

    def report_io_error(self, what: str, directory: str, error: OSError) -> StorageError:
        """`error` for whoever asked; `when_refused` is told too: it may be all of a disk that has failed."""
        self.on_io_error(directory, error)
        return storage_error(what, directory, error)

    # the system

    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    close = staticmethod(os.close)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    listdir = staticmethod(os.listdir)

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the file or directory. It may create the file (O_CREAT) or empty it (O_TRUNC)."""
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def open_file(self, path: str, flags: int) -> OpenFile:
        """The same as an object, for a file that exists: it closes itself when nobody holds it any more."""
        return OpenFile(path, flags)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut an open file to `size_bytes`, or lengthen it with a hole."""
        os.ftruncate(fd, size_bytes)

    def set_modified(self, path: str, modified_ns: int) -> None:
        """Say when the file was last written."""
        os.utime(path, ns=(modified_ns, modified_ns))

    def fsync(self, fd: int) -> None:
        """Wait until the open file or directory is on the disk."""
        os.fsync(fd)

    def map(self, fd: int, size_bytes: int) -> mmap.mmap:
        """The first `size_bytes` of an open file as memory that is written through. Claim the pages before: writing
        into a hole of a full disk would kill the process (SIGBUS)."""
        return mmap.mmap(fd, size_bytes, **_NO_DESCRIPTOR)

    def map_for_reading(self, fd: int, size_bytes: int) -> mmap.mmap:
        return mmap.mmap(fd, size_bytes, access=mmap.ACCESS_READ, **_NO_DESCRIPTOR)

    # whole files

    def read(self, path: str) -> bytes:
        """All of a small file. Raises FileNotFoundError and other OSErrors as they are."""
        # 9 us instead of 21 us for open(path, "rb").read(): 2,000 partitions have 4,000 such files
        fd = self.open(path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            data = self.pread(fd, size + 1, 0)
            while len(data) < size:
                more = self.pread(fd, size - len(data), len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            self.close(fd)

    def has(self, path: str, data: bytes) -> bool:
        """Whether there is a small file with exactly that content that can be read."""
        try:
            return self.read(path) == data
        except OSError:
            return False

    def write_fully(self, fd: int, data: bytes | bytearray | memoryview, position: int = 0) -> None:
        """All of `data` at `position`, however many calls it takes."""
        view = memoryview(data)
        while view:
            written = self.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def write_new(self, path: str, data: bytes) -> None:
        """A file with that content, whatever was there. A crash may leave a part of it."""
        fd = self.open(path, _CREATE)
        try:
            self.write_fully(fd, data)
        finally:
            self.close(fd)

    def write_atomically(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Make `data` the content of `path`, so that a crash leaves the old content or the new, never a part.

        `durable` waits for the disk; without it the promise holds for a killed process only.
        """
        beside = path + ".tmp"
        fd = self.open(beside, _CREATE)
        try:
            self.write_fully(fd, data)
            if durable:
                self.fsync(fd)
        finally:
            self.close(fd)
        self.rename(beside, path)
        if durable:
            self.sync(os.path.dirname(path))

    def truncate_path(self, path: str, size_bytes: int) -> None:
        fd = self.open(path, os.O_WRONLY)
        try:
            self.truncate(fd, size_bytes)
        finally:
            self.close(fd)

    def create_empty(self, path: str) -> None:
        """An empty file at `path`, whatever was there."""
        self.close(self.open(path, _CREATE))

    def unlink_if_exists(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.unlink(path)

    def remove_directory(self, directory: str) -> None:
        """A directory and the files in it."""
        for name in self.listdir(directory):
            self.unlink_if_exists(f"{directory}/{name}")
        self.rmdir(directory)

    # waiting for the disk

    def sync(self, path: str) -> None:
        """Wait until the file or directory at `path` is on the disk. One that is gone needs nothing.

        Raises SyncFailed, and other OSErrors when it cannot be opened: then nothing is lost yet.
        """
        try:
            fd = self.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            self.sync_open(fd, path)
        finally:
            self.close(fd)

    def sync_open(self, fd: int, path: str) -> None:
        """As `sync`, for a file that is open. Raises SyncFailed."""
        try:
            self.fsync(fd)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, path) from error

    def sync_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.sync(path)
