"""The files of a ZooKeeper: a log of transactions with group commit, snapshots, and their recovery.

    snapshot.<zxid>   all nodes and sessions after that transaction; complete or absent
    log.<zxid>        the transactions behind it, in frames

    frame   magic (4)  length (4)  checksum of the rest (4)  transactions

A frame holds the transactions of one write, and is followed by another only when it is on the disk. Those that come
meanwhile share the next write and its fsync. A log of 16 MiB is followed by a new one, and what is closed is merged
into a snapshot by another thread, from the files alone.

A start reads the last snapshot and the logs behind it, writes a snapshot of what it found and begins a log: so nothing
depends on a file that an earlier process could not sync. A frame that does not hold is the last one, which no client
had an answer to; if others follow it, the file was damaged, and the start refuses.
Source: org.apache.zookeeper.server.SyncRequestProcessor, persistence.FileTxnSnapLog, whose bytes are others.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed, StorageError
from kafkalite.zk.client.wire_requests import read_fields
from kafkalite.zk.server.snapshot import decode_snapshot, encode_snapshot
from kafkalite.zk.server.transactions import Transaction, decode, encode
from kafkalite.zk.server.znode_tree import ZnodeTree

logger = logging.getLogger(__name__)

LOG_BYTES = 16 << 20

_MAGIC = b"KZL1"
_FRAME = struct.Struct("!4sII")
_SNAPSHOT, _LOG = "snapshot.", "log."
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Disk(Protocol):
    """The door to the disk: `Files` of the log."""

    def open(self, path: str, flags: int) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def listdir(self, path: str, /) -> list[str]: ...
    def read(self, path: str) -> bytes: ...
    def write_fully(self, fd: int, data: bytes, position: int) -> None: ...
    def write_atomically(self, path: str, data: bytes) -> None: ...
    def fsync(self, fd: int) -> None: ...
    def sync(self, path: str) -> None: ...
    def unlink_if_exists(self, path: str) -> None: ...


Background = Callable[[Callable[[], None], Callable[[Exception | None], None]], None]
"""Runs a job, perhaps on another thread, then calls the completion on the owner's, with the job's exception or None.
Jobs run one after another."""


class TransactionLog:
    """The files in `directory`, which exists. `commits` and `merges` run the two kinds of jobs. Call `open` first.

    `on_durable` is called with the zxid up to which everything is on the disk. After the failure of a write nothing
    else is written: `on_failure` is called once, and the process is to end.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        commits: Background,
        merges: Background,
        on_durable: Callable[[int], None],
        on_failure: Callable[[StorageError], None],
        log_bytes: int = LOG_BYTES,
    ) -> None:
        self.durable_zxid = 0
        self._disk = disk
        self._directory = directory
        self._commits = commits
        self._merges = merges
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._log_bytes = log_bytes
        self._fd = -1
        self._begun = 0  # the zxid in the name of the present log
        self._position = 0
        self._waiting: list[bytes] = []
        self._last = 0
        self._is_writing = self._is_merging = self._has_failed = False

    def open(self) -> ZnodeTree:
        """The nodes and sessions that the files hold, with a log for those to come. Raises StorageError, OSError."""
        found = recover(self._disk, self._directory)
        tree, zxid = found.tree, found.tree.zxid
        if found.is_changed:
            self._disk.write_atomically(_path(self._directory, _SNAPSHOT, zxid), encode_snapshot(tree))
        self._fd, self._position = _begin_log(self._disk, self._directory, zxid), 0
        self._begun = self._last = self.durable_zxid = zxid
        self._remove(found.names, zxid)
        return tree

    def append(self, transaction: Transaction) -> None:
        """Write the transaction as soon as the one before is on the disk. Transactions come in the order of zxids."""
        assert transaction.zxid == self._last + 1, transaction.zxid
        self._last = transaction.zxid
        self._waiting.append(encode(transaction))
        if not self._is_writing:
            self._write()

    def close(self) -> None:
        """Close the file. What is not on the disk yet is not waited for."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    # commits

    def _write(self) -> None:
        if self._has_failed:
            return
        body, zxid = b"".join(self._waiting), self._last
        self._waiting.clear()
        data = frame(body)
        position, fd = self._position, self._fd
        self._position += len(data)
        self._is_writing = True
        begins_new = self._position >= self._log_bytes
        begun: list[int] = []

        def commit() -> None:
            self._disk.write_fully(fd, data, position)
            self._disk.fsync(fd)
            if begins_new:
                begun.append(_begin_log(self._disk, self._directory, zxid))

        def done(error: Exception | None) -> None:
            self._is_writing = False
            if error is not None:
                self._fail(error)
                return
            if begun:
                self._disk.close(fd)
                self._fd, self._position, self._begun = begun[0], 0, zxid
                self._merge()
            self.durable_zxid = zxid
            self._on_durable(zxid)
            if self._waiting and not self._is_writing:
                self._write()

        self._commits(commit, done)

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self._on_failure(StorageError(f"a transaction could not be written in {self._directory}: {reason}"))

    # snapshots

    def _merge(self) -> None:
        """Merge the closed logs into a snapshot."""
        if self._is_merging:
            return
        self._is_merging = True
        disk, directory, end = self._disk, self._directory, self._begun

        def merge() -> None:
            found = recover(disk, directory, end)
            disk.write_atomically(_path(directory, _SNAPSHOT, found.tree.zxid), encode_snapshot(found.tree))
            self._remove(found.names, end)

        def done(error: Exception | None) -> None:
            self._is_merging = False
            if error is not None:
                logger.error("%s: no snapshot could be made, and the logs stay: %s", directory, error)

        self._merges(merge, done)

    def _remove(self, names: Sequence[str], zxid: int) -> None:
        """Remove files that a snapshot and a log with `zxid` replace."""
        for name in names:
            if not name.endswith(f".{zxid:016x}"):
                self._disk.unlink_if_exists(f"{self._directory}/{name}")


class Recovered:
    """`names`: the files that were read, and leftovers. `is_changed`: there is no snapshot of exactly this state."""

    def __init__(self, tree: ZnodeTree, names: list[str], is_changed: bool) -> None:
        self.tree = tree
        self.names = names
        self.is_changed = is_changed


def recover(disk: Disk, directory: str, end: int | None = None) -> Recovered:
    """Reads the last snapshot and the logs behind it; with `end`, a log that begins there or later is left alone.
    Raises StorageError for damage, OSError."""
    names = [name for name in disk.listdir(directory) if name.startswith((_SNAPSHOT, _LOG))]
    leftovers = [name for name in names if name.endswith(".tmp")]
    snapshots = sorted(name for name in names if name.startswith(_SNAPSHOT) and name not in leftovers)
    logs = sorted(name for name in names if name.startswith(_LOG))
    if end is not None:
        logs = [name for name in logs if _zxid_of(name) < end]
    tree = ZnodeTree()
    if snapshots:
        path = f"{directory}/{snapshots[-1]}"
        try:
            tree = decode_snapshot(disk.read(path))
        except Malformed as fault:
            raise StorageError(f"{path} is damaged ({fault}); restore the directory from a backup") from None
    is_changed = not snapshots
    for number, name in enumerate(logs):
        for transaction in read_log(disk.read(f"{directory}/{name}"), f"{directory}/{name}"):
            if transaction.zxid <= tree.zxid:
                continue
            if transaction.zxid != tree.zxid + 1:
                raise StorageError(
                    f"{directory}/{name} continues with transaction {transaction.zxid:#x}, and {tree.zxid:#x} is the "
                    f"last one before it (file {number + 1} of {len(logs)}); restore the directory from a backup"
                )
            tree.apply(transaction)
            is_changed = True
    # a leftover of a running merge must stay
    return Recovered(tree, [*snapshots, *logs, *(leftovers if end is None else ())], is_changed)


def read_log(data: bytes, path: str) -> Iterator[Transaction]:
    """The transactions of a log. The last frame may be incomplete, and ends it. Raises StorageError for a frame that
    is damaged: one behind it holds."""
    at = 0
    while at < len(data):
        end = _end_of_frame(data, at)
        if end is None:
            following = data.find(_MAGIC, at + 1)
            while following >= 0:
                if _end_of_frame(data, following) is not None:
                    raise StorageError(f"{path} is damaged at byte {at}; restore the directory from a backup")
                following = data.find(_MAGIC, following + 1)
            logger.warning("%s: the last %d bytes were not written whole, and no answer was", path, len(data) - at)
            return
        at += _FRAME.size
        while at < end:
            transaction, at = decode(data, at)
            yield transaction


def frame(transactions: bytes) -> bytes:
    """A frame with these transactions, which are at least one."""
    return _FRAME.pack(_MAGIC, len(transactions), crc32c(transactions)) + transactions


def _end_of_frame(data: bytes, at: int) -> int | None:
    """The position behind a frame; None if there is no whole one."""
    try:
        ((magic, size, checksum), start) = read_fields(_FRAME, data, at)
    except Malformed:
        return None
    end = start + int(size)
    if magic != _MAGIC or not size or end > len(data) or crc32c(memoryview(data)[start:end]) != checksum:
        return None
    return end


def _begin_log(disk: Disk, directory: str, zxid: int) -> int:
    """The descriptor of a new log, whose name is on the disk."""
    fd = disk.open(_path(directory, _LOG, zxid), _CREATE)
    try:
        disk.fsync(fd)
        disk.sync(directory)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def _path(directory: str, kind: str, zxid: int) -> str:
    return f"{directory}/{kind}{zxid:016x}"


def _zxid_of(name: str) -> int:
    try:
        return int(name.rpartition(".")[2], 16)
    except ValueError:
        raise StorageError(f"{name} is no file of a ZooKeeper") from None
