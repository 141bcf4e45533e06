"""One directory of log.dirs: who may use it, whose it is, what is in it, how it is left, and whether its disk works.

    .lock                              held while a broker runs here
    meta.properties                    whose directory it is: cluster id and broker id
    .kafka_cleanshutdown               there if the last stop was orderly; taken away before anything is loaded
    .kafkalite_cleanshutdown           there if that stop was ours: it tells whether Apache Kafka ran here since;
                                       also while what it left is being taken over
    recovery-point-offset-checkpoint   up to where each log is on the disk for sure
    log-start-offset-checkpoint        where logs begin that begin inside a segment
    replication-offset-checkpoint      high watermarks
    cleaner-offset-checkpoint          how far logs are compacted
    <topic>-<partition>/               the logs; see `names` for those on their way out

A disk that fails takes its directory out of service, and nothing else (`is_failed_by`): the next start tries it again.
Source: kafka.log.LogManager, CleanShutdownFileHandler, org.apache.kafka.storage.internals.log.LogDirFailureChannel.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.common.region import OpenFile
from kafkalite.log.directories.meta_properties import MetaProperties, read_meta_properties
from kafkalite.log.directories.offset_checkpoints import LogOffsets, OffsetCheckpoints
from kafkalite.log.partition.flusher import remember_failed_sync
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.checkpoint_file import read_topic_id
from kafkalite.log.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANED,
    DELETE_DIRECTORY,
    FIRST_SEGMENT,
    LOCK,
    LOG,
    META_PROPERTIES,
    OWN_CLEAN_SHUTDOWN,
    PARTITION_METADATA,
    STRAY_DIRECTORY,
    directory_aside,
    parse_partition_directory,
    parse_partition_on_the_move,
    partition_directory,
)
from kafkalite.log.storage.files import Background, Done, Files, is_full, storage_error

logger = logging.getLogger(__name__)


# Kafka reads the two fields that it knows; the third is how the next start knows who stopped here last.
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1,"by":"kafkalite"}'
_SYNC_THREADS = 16  # fsyncs that wait together share the disk's journal commits

_OF_THE_DISK = frozenset(
    getattr(errno, name)
    for name in (
        "EIO", "EROFS", "ENODEV", "ENXIO", "ENOMEDIUM", "EMEDIUMTYPE", "EUCLEAN", "EBADMSG", "ESTALE", "ENOTCONN",
        "EHOSTDOWN", "EREMOTEIO", "ETIMEDOUT", "ESHUTDOWN",
    )
    if hasattr(errno, name)
)  # fmt: skip
_OF_THE_PLACE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM))


class Contents(NamedTuple):
    """What a directory holds: logs, logs that are being deleted, and those that nobody serves, by their names."""

    logs: list[TopicPartition]
    deleted: list[str]
    futures: dict[TopicPartition, list[str]]
    strays: list[str]


class LogDirectory:
    """Fields: `logs` are those that live here. `was_clean`: the last stop was orderly. `was_used_by_another`: it was
    not ours, although the one before was. `failure` says why the directory is offline, None while it is not.

    Belongs to the owner of the logs. `background` runs jobs of this directory one after another.
    """

    def __init__(self, path: str, files: Files, background: Background) -> None:
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.checkpoints = OffsetCheckpoints(path, files)
        self.background = background
        self.meta: MetaProperties | None = None
        self.was_clean = True
        self.was_used_by_another = False
        self.failure: str | None = None
        self.futures: dict[TopicPartition, list[str]] = {}
        self._files = files
        self._lock: OpenFile | None = None

    def __repr__(self) -> str:
        return f"DataDirectory({self.path!r})"

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def log_path(self, key: TopicPartition) -> str:
        return f"{self.path}/{partition_directory(*key)}"

    # coming and going

    def enter(self) -> None:
        """Make the directory if need be, lock it, and read whose it is and how it was left.

        Raises ConfigError when it is in use or its meta.properties is damaged, OSError when the disk refuses.
        """
        os.makedirs(self.path, exist_ok=True)
        self._lock = _lock(self._files, self.path_of(LOCK))
        self.meta = read_meta_properties(self._files, self.path_of(META_PROPERTIES))
        self._see_how_it_was_left()

    def claim(self, meta: MetaProperties, now_ms: int) -> None:
        """Write whose directory this is, unless it says so already. Raises OSError."""
        if self.meta is None:
            self.checkpoints.begin()
        if meta != self.meta:
            self._files.write_atomically(self.path_of(META_PROPERTIES), meta.encode(now_ms))
            self.meta = meta

    def look(self) -> Contents:
        """What is in here. Raises OSError."""
        contents = Contents([], [], {}, [])
        for name in sorted(self._files.listdir(self.path)):
            key = parse_partition_directory(name)
            if key is not None:
                if os.path.isdir(self.path_of(name)):
                    contents.logs.append(key)
            elif name.endswith(DELETE_DIRECTORY):
                contents.deleted.append(name)
            elif name.endswith(STRAY_DIRECTORY):
                contents.strays.append(name)
            elif (key := parse_partition_on_the_move(name)) is not None:
                contents.futures.setdefault(key, []).append(name)
        self.futures = contents.futures
        return contents

    def topic_id(self, key: TopicPartition) -> uuid.UUID | None:
        """The topic that the log of that name belongs to, if it says so."""
        return self.topic_id_in(partition_directory(*key))

    def topic_id_in(self, name: str) -> uuid.UUID | None:
        """The same for a log that was moved aside."""
        return read_topic_id(self._files, f"{self.path_of(name)}/{PARTITION_METADATA}")

    def move_back(self, name: str, key: TopicPartition) -> None:
        """A log that was moved aside gets its name again. Raises OSError."""
        self._files.rename(self.path_of(name), self.log_path(key))
        self._files.sync(self.path)

    def was_written(self, key: TopicPartition) -> bool:
        """Whether the log of that name ever had a record. Raises StorageError."""
        path = self.log_path(key)
        try:
            segments = [name for name in self._files.listdir(path) if name.endswith(LOG)]
            return any(name != FIRST_SEGMENT or os.path.getsize(f"{path}/{name}") > 0 for name in segments)
        except OSError as error:
            raise storage_error(f"cannot look into {key[0]}-{key[1]}", path, error) from error

    def _see_how_it_was_left(self) -> None:
        own = os.path.exists(self.path_of(OWN_CLEAN_SHUTDOWN))
        try:
            content = self._files.read(self.path_of(CLEAN_SHUTDOWN))
        except FileNotFoundError:
            self.was_clean = self.meta is None and not self.look().logs  # a new one
            self.was_used_by_another = own
        else:
            self.was_clean = True
            self.was_used_by_another = content != _CLEAN_SHUTDOWN_CONTENT

    def begin(self, *, takes_over: bool = False) -> None:
        """From now on a stop that comes by itself is no orderly one. Raises OSError.

        The disk has to know it before anything changes: a mark that a power cut brought back would spare torn records
        the look at them. `takes_over`: should this start be killed, the next one is to take over too, until `settled`.
        """
        if takes_over:
            self._files.write_atomically(self.path_of(OWN_CLEAN_SHUTDOWN), b"")
        else:
            self._files.unlink_if_exists(self.path_of(OWN_CLEAN_SHUTDOWN))
        self._files.unlink_if_exists(self.path_of(CLEAN_SHUTDOWN))
        if self.was_clean:
            self._files.sync(self.path)

    def settled(self) -> None:
        """What another broker left has been taken over. Raises OSError."""
        self._files.unlink_if_exists(self.path_of(OWN_CLEAN_SHUTDOWN))
        self._files.sync(self.path)

    def shut(self, *, orderly: bool) -> None:
        """Bring every log to the disk and close it, and, if the stop is to be called `orderly`, leave the mark.

        Raises StorageError when some log is not in order, OSError: the others are, but there is no mark then.
        """
        paths: dict[str, None] = {}
        points: dict[TopicPartition, int] = {}
        fault: StorageError | None = None
        for key, log in self.logs.items():
            try:
                paths.update(dict.fromkeys(log.shut()))
                points[key] = log.end_offset
            except StorageError as error:
                points[key] = log.kept_recovery_point
                fault = fault or error
        try:
            _sync_together(self._files, list(paths))
        except OSError:
            for log in self.logs.values():  # any of them, for one failure hides the others
                remember_failed_sync(self._files, log.directory)
            raise
        # each waited for before it takes the place of the one before: this may not come to its end
        self.checkpoints.write(self.offsets(points))
        self._files.sync(self.path)
        if fault is not None:
            raise fault
        if orderly:
            self._files.write_atomically(self.path_of(CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)
            self._files.write_atomically(self.path_of(OWN_CLEAN_SHUTDOWN), b"", durable=False)

    def leave(self) -> None:
        """Let go of the directory and of what is open in it, as it is."""
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()
        self._lock = None  # the descriptor goes, and with it the lock

    # the disk

    def is_failed_by(self, error: OSError) -> bool:
        """Whether `error`, met in here, means that the directory as a whole cannot be used any more.

        A full disk does not: it refuses what is new, and heals. Nor does a file that is missing or forbidden, unless
        the directory itself is.
        """
        if error.errno in _OF_THE_DISK:
            return True
        return error.errno in _OF_THE_PLACE and not os.access(self.path_of(LOCK), os.R_OK | os.W_OK)

    def fail(self, error: OSError) -> None:
        """It is offline from now on."""
        if is_full(error):
            self.failure = f"there is no space left to load what is in {self.path}; free some, and start again"
        else:
            self.failure = f"the disk below {self.path} has failed: {error.strerror or error}"

    def met(self, error: OSError) -> None:
        """Somebody who works in here has met `error`: it may be all of the disk that has failed."""
        self._files.when_refused(self.path, error)

    # the checkpoints

    def recovery_points(self) -> dict[TopicPartition, int]:
        return {key: log.kept_recovery_point for key, log in self.logs.items()}

    def offsets(
        self, recovery_points: dict[TopicPartition, int], high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> LogOffsets:
        """What the checkpoints are to say. `high_watermarks` where they are not the ends of the logs."""
        logs = self.logs
        starts = {key: log.start_offset for key, log in logs.items() if log.start_offset > log.segments[0].base_offset}
        ends = {key: log.end_offset for key, log in logs.items()}
        known = {key: offset for key, offset in (high_watermarks or {}).items() if key in ends}
        return LogOffsets(recovery_points, starts, ends | known)

    def keep_cleaned(self, key: TopicPartition, offset: int, done: Done) -> None:
        """The log is compacted below `offset`: write that down, in the background; `done` hears how it went."""
        job, written = self.checkpoints.clean_later(key, offset)

        def heard(error: Exception | None) -> None:
            written(error)
            if isinstance(error, OSError):
                self.met(error)
            done(error)

        self.background(job, heard)

    def remove_cleaned(self, key: TopicPartition, done: Done) -> None:
        """Remove what a compaction of the log that was given up has left, in the background."""
        path = self.log_path(key)

        def job() -> None:
            try:
                names = self._files.listdir(path)
            except FileNotFoundError:
                return  # the log is gone, and its directory has another name
            for name in names:
                if name.endswith(CLEANED):
                    self._files.unlink_if_exists(f"{path}/{name}")

        self.background(job, done)

    # names

    def move_aside(self, key: TopicPartition, suffix: str) -> str:
        """Free the name of a log; its directory's new path. Raises OSError."""
        aside = self.path_of(directory_aside(*key, suffix))
        self._files.rename(self.log_path(key), aside)
        return aside

    def move_futures_aside(self, key: TopicPartition) -> list[str]:
        """What Apache Kafka was copying here of a log that is gone now: it must not meet a new one of that name."""
        moved = []
        for name in self.futures.pop(key, ()):
            aside = self.path_of(directory_aside(*key, DELETE_DIRECTORY))
            self._files.rename(self.path_of(name), aside)
            moved.append(aside)
        return moved


def _lock(files: Files, path: str) -> OpenFile:
    """Lock against our own kind (flock) and against Apache Kafka (a POSIX record lock). Raises ConfigError, OSError."""
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
    """fsync many files. Raises OSError."""
    if len(paths) <= _SYNC_THREADS:
        files.sync_all(paths)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="kafkalite-sync") as pool:
        for _ in pool.map(files.sync, paths):
            pass
