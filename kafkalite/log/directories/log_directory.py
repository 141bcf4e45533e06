"""One log directory: its lock, its identity, its logs and its checkpoints.

    .lock                              held while a broker runs here
    meta.properties                    cluster id and broker id that the directory belongs to
    .kafka_cleanshutdown               how the last run ended, with .kafkalite_cleanshutdown (see `meta_properties`)
    recovery-point-offset-checkpoint   each log is on the disk up to this offset
    log-start-offset-checkpoint        start offsets of the logs that begin inside a segment
    replication-offset-checkpoint      high watermarks
    cleaner-offset-checkpoint          first dirty offset of each compacted log
    kafkalite-elections                leader epochs that begin, of many logs (see `election_file`)
    <topic>-<partition>/               the logs; `file_names` has the names of logs that are being deleted

A disk failure takes only its own directory offline; the next start tries it again.
Source: kafka.log.LogManager.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from enum import Enum, auto

from kafkalite.common.clock import TimerGroup
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.forks import HomeProcess
from kafkalite.common.names import TopicPartition
from kafkalite.common.region import OpenFile
from kafkalite.log.directories import meta_properties
from kafkalite.log.directories.election_file import ElectionFile
from kafkalite.log.directories.offset_checkpoints import LogOffsets, OffsetCheckpoints
from kafkalite.log.directories.partition_directories import PartitionDirectories
from kafkalite.log.partition.log_context import remember_failed_sync
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.file_names import (
    LOCK,
    META_PROPERTIES,
)
from kafkalite.log.storage.files import Background, Done, Files, is_full

logger = logging.getLogger(__name__)

_DISK_ERRORS = frozenset(
    getattr(errno, name)
    for name in (
        "EIO", "EROFS", "ENODEV", "ENXIO", "ENOMEDIUM", "EMEDIUMTYPE", "EUCLEAN", "EBADMSG", "ESTALE", "ENOTCONN",
        "EHOSTDOWN", "EREMOTEIO", "ETIMEDOUT", "ESHUTDOWN",
    )
    if hasattr(errno, name)
)  # fmt: skip
_PATH_ERRORS = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM))
_SYNC_THREADS = 16  # fsyncs that wait together share the disk's journal commits


class DirectoryState(Enum):
    """ONLINE: locked by this broker, its logs can be served. OFFLINE: its disk has failed."""

    CLOSED = auto()
    ONLINE = auto()
    OFFLINE = auto()


# An offline directory stays so until the next start.
ENTERED_FROM = {
    DirectoryState.CLOSED: {DirectoryState.CLOSED, DirectoryState.ONLINE},
    DirectoryState.ONLINE: {DirectoryState.CLOSED},
    DirectoryState.OFFLINE: {DirectoryState.CLOSED, DirectoryState.ONLINE},
}


class LogDirectory:
    """Fields: `logs` are the open logs, `last_shutdown` is known after `open`, `failure` is the reason why the
    directory is offline.

    Belongs to the owner of the logs. `background` runs jobs of this directory one after another.
    """

    def __init__(self, path: str, files: Files, background: Background, timers: TimerGroup) -> None:
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.checkpoints = OffsetCheckpoints(path, files)
        self.elections = ElectionFile(path, files)
        self.partitions = PartitionDirectories(path, files, background, timers)
        self.background = background
        self.meta: meta_properties.MetaProperties | None = None
        self.last_shutdown = meta_properties.LastShutdown(clean=True, by_another=False)
        self.state = DirectoryState.CLOSED
        self.failure: str | None = None
        self._clean_shutdown_file = meta_properties.CleanShutdownFile(path, files)
        self._files = files
        self._lock: OpenFile | None = None
        self._home = HomeProcess()

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r})"

    @property
    def is_online(self) -> bool:
        return self.state is not DirectoryState.OFFLINE

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    # from start to stop

    def open(self) -> None:
        """Makes the directory if need be, locks it, and reads its identity and how the last run ended.

        Raises ConfigError when it is in use or its meta.properties is damaged, OSError when the disk refuses.
        """
        os.makedirs(self.path, exist_ok=True)
        self._lock = _lock(self._files, self.path_of(LOCK))
        self.meta = meta_properties.read_meta_properties(self._files, self.path_of(META_PROPERTIES))
        self.last_shutdown = self._clean_shutdown_file.read(
            lambda: self.meta is None and not self.partitions.listing().logs
        )
        self._enter(DirectoryState.ONLINE)

    def claim(self, meta: meta_properties.MetaProperties, now_ms: int) -> None:
        """Writes meta.properties, unless it says so already. Raises OSError."""
        if self.meta is None:
            self.checkpoints.create()
        if meta != self.meta:
            self._files.write_atomically(self.path_of(META_PROPERTIES), meta.encode(now_ms))
            self.meta = meta

    def mark_unclean(self, *, takes_over: bool) -> None:
        """Marks the directory as in use: from now on a stop counts as unclean until `shut_down`. Raises OSError."""
        self._clean_shutdown_file.remove(takes_over=takes_over, durable=self.last_shutdown.clean)

    def end_takeover(self) -> None:
        """The logs of another broker have been taken over. Raises OSError."""
        self._clean_shutdown_file.end_takeover()

    def shut_down(self, *, clean: bool) -> None:
        """Closes and fsyncs every log; writes the clean shutdown file if the stop is to count as `clean`.

        Raises StorageError when a log could not be closed, OSError; then the others are closed, but the file is not
        written.
        """
        paths: dict[str, None] = {}
        points: dict[TopicPartition, int] = {}
        fault: StorageError | None = None
        for key, log in self.logs.items():
            try:
                paths.update(dict.fromkeys(log.shut()))
                points[key] = log.end_offset
            except StorageError as error:
                points[key] = log.flusher.kept_recovery_point
                if fault is not None:
                    logger.error("%s", error)
                fault = fault or error
        try:
            _sync_together(self._files, list(paths))
        except OSError:
            for log in self.logs.values():  # any of them, for one failure hides the others
                remember_failed_sync(self._files, log.directory)
            raise
        # each is fsynced before it replaces the one before: this may be cut short
        self.checkpoints.write(self.offsets(points))
        self._files.sync(self.path)
        if fault is not None:
            raise fault
        if clean:
            self._clean_shutdown_file.write()

    def close(self) -> None:
        """Unlocks the directory and closes all files in it, as they are."""
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()
        if self._lock is not None and self._home.is_here:  # not the parent's lock, in a forked child
            fcntl.flock(self._lock.fd, fcntl.LOCK_UN)  # held by copies of the descriptor, too
        self._lock = None  # closes the descriptor, which releases the record lock
        if self.is_online:
            self._enter(DirectoryState.CLOSED)

    def is_failed_by(self, error: OSError) -> bool:
        """Whether `error`, met in here, means that the whole directory cannot be used any more.

        A full disk has not failed: it refuses new data, and recovers. A file that is missing or forbidden says nothing
        about the disk either, unless the directory is missing or forbidden as well. (In Kafka any IOException takes
        the directory offline.)
        """
        if error.errno in _DISK_ERRORS:
            return True
        return error.errno in _PATH_ERRORS and not os.access(self.path_of(LOCK), os.R_OK | os.W_OK)

    def fail(self, failure: str) -> None:
        """Marks the directory as offline."""
        self._enter(DirectoryState.OFFLINE)
        self.failure = failure

    def fail_with(self, error: OSError) -> None:
        """Marks the directory as offline because of `error`."""
        if is_full(error):
            self.fail(f"there is no space left to load what is in {self.path}; free some, and start again")
        else:
            self.fail(f"the disk below {self.path} has failed: {error.strerror or error}")

    def on_io_error(self, error: OSError) -> None:
        """Reports an error that was met in here: all of the disk may have failed."""
        self._files.on_io_error(self.path, error)

    def _enter(self, state: DirectoryState) -> None:
        assert self.state in ENTERED_FROM[state], (self, self.state, state)
        self.state = state

    # checkpoints

    def recovery_points(self) -> dict[TopicPartition, int]:
        return {key: log.flusher.kept_recovery_point for key, log in self.logs.items()}

    def offsets(self, recovery_points: dict[TopicPartition, int]) -> LogOffsets:
        """The next content of the checkpoints. Every record of a log that waits for no other replica is committed."""
        logs = self.logs
        starts = {key: log.start_offset for key, log in logs.items() if log.start_offset > log.segments[0].base_offset}
        high_watermarks = {key: min(log.end_offset, log.replicated_offset) for key, log in logs.items()}
        return LogOffsets(recovery_points, starts, high_watermarks)

    def checkpoint_truncation(self, key: TopicPartition, start_offset: int, end_offset: int, *, empties: bool) -> None:
        """Writes checkpoints in which the log has no more than these offsets, if the present ones may have more. Raises
        OSError.

        A log that loses all its segments (`empties`) is written down as well, since its files go one by one. If the
        broker dies in between, the next start finds a log that ends before its start, and begins it again there, or it
        checks all that is left.
        """
        log, checkpoints = self.logs[key], self.checkpoints
        if checkpoints.cleaner_offsets.get(key, 0) > end_offset:
            job, written = checkpoints.write_cleaner_offset_later(key, end_offset)
            job()
            written(None)
        high_watermark = min(log.end_offset, log.replicated_offset)
        if (
            log.flusher.recovery_point <= end_offset
            and log.start_offset <= start_offset
            and high_watermark <= end_offset
            and not (empties and log.size_bytes)
        ):
            return
        points = self.recovery_points()
        points[key] = 0 if empties else min(points[key], end_offset)
        offsets = self.offsets(points)
        checkpoints.write(
            LogOffsets(
                points,
                {**offsets.log_starts, key: start_offset},
                {**offsets.high_watermarks, key: max(start_offset, min(high_watermark, end_offset))},
            )
        )

    # compaction

    def write_cleaner_offset(self, key: TopicPartition, offset: int, done: Done) -> None:
        """Checkpoints in the background that the log is compacted below `offset`; `done` gets the outcome."""
        job, written = self.checkpoints.write_cleaner_offset_later(key, offset)

        def finish(error: Exception | None) -> None:
            written(error)
            if isinstance(error, OSError):
                self.on_io_error(error)
            done(error)

        self.background(job, finish)

    def drop_wrong_cleaner_offsets(self) -> None:
        """Forgets cleaner offsets behind the end of their log, which recovery has cut: else new records there would
        count as compacted."""
        for key, offset in list(self.checkpoints.cleaner_offsets.items()):
            log = self.logs.get(key)
            if log is not None and offset > log.end_offset:
                logger.warning(
                    "the checkpoint says that %s-%d is compacted up to offset %d, but it ends at %d: all of it is "
                    "dirty",
                    *key, offset, log.end_offset,
                )  # fmt: skip
                self.checkpoints.forget_cleaner_offset(key)


def _lock(files: Files, path: str) -> OpenFile:
    """Locks against other kafkalites (flock) and against Apache Kafka (a POSIX record lock).

    Raises ConfigError, OSError.
    """
    files.close(files.open(path, os.O_RDWR | os.O_CREAT))
    lock = files.open_file(path, os.O_RDWR)
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"{os.path.dirname(path)} is in use: another broker holds {path}; stop it, or choose another directory "
            "(log.dirs)"
        ) from error
    return lock


def _sync_together(files: Files, paths: list[str]) -> None:
    """Raises OSError."""
    if len(paths) <= _SYNC_THREADS:
        files.sync_all(paths)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="kafkalite-sync") as pool:
        for _ in pool.map(files.sync, paths):
            pass
