"""File system access: everything that the log reads or writes goes through one `Files`, and so do I/O errors.

A file that must be complete or absent is written beside its place and renamed (`write_atomically`). The calls of the
hot path are the system's own, so `Files` costs nothing there. Tests replace it by one that tears writes, drops unsynced
data or reports a full disk (tests/support/log/faulty_files.py).
A broker has more segments than a process may have open files: a bounded clock cache of descriptors (`DescriptorCache`)
has the least recently used release theirs. Apache Kafka keeps every segment open.
Blocking work runs as a `Job`: it holds only paths and bytes, so any thread may run it.
Source: org.apache.kafka.common.utils.Utils (atomicMoveWithFallback, flushDir).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kafkalite.common.errors import StorageError
from kafkalite.common.region import OpenFile


class DescriptorHolder(Protocol):
    """Holds descriptors, and sets `used` whenever it uses them."""

    used: bool

    def release(self) -> None:
        """Closes every descriptor and mapping; they are opened again when they are needed."""
        ...


class DescriptorCache:
    """The holders with open descriptors, at most `capacity` of them.

    A use only sets a flag on the holder, which costs a request nothing. When room is needed, the holder at the front
    loses the flag on its first turn and its descriptors on its second (the clock algorithm).
    """

    __slots__ = ("_capacity", "_ring")

    def __init__(self, capacity: int) -> None:
        self._capacity = max(1, capacity)
        self._ring: OrderedDict[DescriptorHolder, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, holder: DescriptorHolder) -> None:
        """`holder` has opened descriptors."""
        holder.used = True
        ring = self._ring
        if holder in ring:
            return
        while len(ring) >= self._capacity:
            oldest, _ = ring.popitem(last=False)
            if oldest.used:
                oldest.used = False
                ring[oldest] = None
            else:
                oldest.release()
        ring[holder] = None

    def remove(self, holder: DescriptorHolder) -> None:
        """`holder` has closed its descriptors."""
        self._ring.pop(holder, None)


def capacity_for_limit(descriptors: int) -> int:
    """How many segments may be open in a process that may have `descriptors` files: each takes up to three."""
    return max(16, descriptors // 2 // 3)


Job = Callable[[], None]
Done = Callable[[Exception | None], None]
Background = Callable[[Job, Done], None]
"""Runs a job, perhaps on another thread, then calls `done` on the owner's thread with the exception that it raised, or
None. Jobs run one after another in the order they came."""

# a map needs no descriptor of its own, but only Python 3.13 and later can do without
_NO_DESCRIPTOR: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
_COPY_BYTES = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def outcome_of(job: Job) -> Exception | None:
    """Runs `job`; returns the exception that it raised, if any."""
    try:
        job()
    except Exception as error:
        return error
    return None


def run_inline(job: Job, done: Done) -> None:
    """The simplest `Background`: runs the job at once."""
    done(outcome_of(job))


def is_full(error: OSError) -> bool:
    """Whether the disk, or the quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def storage_error(what: str, directory: str, error: OSError) -> StorageError:
    """`error` with a message for the operator: `what` failed in which directory, and the reason."""
    if is_full(error):
        return StorageError(f"{what}: no space left in {directory}; free some, or lower retention.bytes")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageError(f"{what}: too many open files (in {directory}); raise the limit (ulimit -n)")
    return StorageError(f"{what} in {directory}: {error.strerror or error}")


def _ignore(directory: str, error: OSError) -> None:
    """The default of `on_io_error`: does nothing."""


class SyncFailed(OSError):
    """fsync itself failed. The system may have dropped the pages that it could not write: another fsync would succeed
    without them, so it must not be tried again."""


class Files:
    """File system access for all logs of a broker. Every method raises OSError as the system does, unless it says
    otherwise.

    The first group is the system itself: only there is something on a disk opened, changed or synced, and only these
    methods are overridden by tests. All others are made of them. `descriptors` bounds the open segment files;
    `on_io_error` is called with each error that `report_io_error` gets.
    """

    def __init__(self, descriptors: DescriptorCache | None = None) -> None:
        self.descriptors = DescriptorCache(256) if descriptors is None else descriptors
        self.on_io_error: Callable[[str, OSError], None] = _ignore

    def report_io_error(self, what: str, directory: str, error: OSError) -> StorageError:
        """Reports an error, for all of the disk may have failed; returns the exception for the caller to raise."""
        self.on_io_error(directory, error)
        return storage_error(what, directory, error)

    # the system

    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    close = staticmethod(os.close)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.rename)
    link = staticmethod(os.link)
    unlink = staticmethod(os.unlink)
    listdir = staticmethod(os.listdir)

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the file or directory. `flags` may create the file (O_CREAT) or empty it (O_TRUNC)."""
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def open_file(self, path: str, flags: int) -> OpenFile:
        """Opens an existing file as an object that closes the descriptor when it is no longer referenced."""
        return OpenFile(path, flags)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cuts an open file to `size_bytes`, or lengthens it with a hole."""
        os.ftruncate(fd, size_bytes)

    def set_modified(self, path: str, modified_ns: int) -> None:
        """Sets the modification time."""
        os.utime(path, ns=(modified_ns, modified_ns))

    def fsync(self, fd: int) -> None:
        """Waits until the open file or directory is on the disk."""
        os.fsync(fd)

    def map(self, fd: int, size_bytes: int) -> mmap.mmap:
        """Maps the first `size_bytes` of an open file for writing. Allocate the pages first: writing into a hole of a
        full disk would kill the process (SIGBUS)."""
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
        """Whether there is a readable small file with exactly that content."""
        try:
            return self.read(path) == data
        except OSError:
            return False

    def write_fully(self, fd: int, data: bytes | bytearray | memoryview, position: int = 0) -> None:
        """Writes all of `data` at `position`, in as many calls as it takes."""
        view = memoryview(data)
        while view:
            written = self.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def write_new(self, path: str, data: bytes) -> None:
        """Writes or replaces a file. A crash may leave a part of it."""
        fd = self.open(path, _CREATE)
        try:
            self.write_fully(fd, data)
        finally:
            self.close(fd)

    def write_range(self, path: str, source: str, start: int, end: int) -> None:
        """Writes or replaces a file: the bytes from `start` to `end` of the file `source`. A crash may leave a part of
        it."""
        source_fd = self.open(source, os.O_RDONLY)
        try:
            fd = self.open(path, _CREATE)
            try:
                for position in range(start, end, _COPY_BYTES):
                    data = self.pread(source_fd, min(_COPY_BYTES, end - position), position)
                    self.write_fully(fd, data, position - start)
            finally:
                self.close(fd)
        finally:
            self.close(source_fd)

    def write_atomically(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replaces the content of `path` so that a crash leaves the old content or the new, never a part.

        `durable` waits for the disk; without it that holds for a killed process only.
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

    def unshare(self, path: str) -> None:
        """Gives a file that another log has as well (`linked_copy`) a copy of its own, before it is changed."""
        found = os.stat(path)
        if found.st_nlink > 1:
            beside = path + ".tmp"
            self.write_range(beside, path, 0, found.st_size)
            self.sync(beside)
            self.rename(beside, path)

    def truncate_path(self, path: str, size_bytes: int) -> None:
        self.unshare(path)
        fd = self.open(path, os.O_WRONLY)
        try:
            self.truncate(fd, size_bytes)
        finally:
            self.close(fd)

    def create_empty(self, path: str) -> None:
        """Makes `path` an empty file."""
        self.close(self.open(path, _CREATE))

    def unlink_if_exists(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.unlink(path)

    def remove_directory(self, directory: str) -> None:
        """Removes a directory and the files in it."""
        for name in self.listdir(directory):
            self.unlink_if_exists(f"{directory}/{name}")
        self.rmdir(directory)

    # fsync

    def sync(self, path: str) -> None:
        """Waits until the file or directory at `path` is on the disk; returns at once if there is none.

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
