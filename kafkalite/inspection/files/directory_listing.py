"""What stands in a data directory, or in the directory of one partition, as it is found: nothing is opened for writing.

Source: kafka.log.LogManager, CleanShutdownFileHandler (which files there are); `file_names` for their names.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import NamedTuple

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.inspection.files.regular_file import open_regular, read_file
from kafkalite.log.storage.checkpoint_file import decode_entries
from kafkalite.log.storage.file_names import (
    CLEAN_SHUTDOWN,
    KRAFT_LOG,
    LOCK,
    LOG,
    META_PROPERTIES,
    RECOVERY_POINTS,
    parse_partition_directory,
    parse_segment_file,
)

_SIGNS = (META_PROPERTIES, RECOVERY_POINTS, CLEAN_SHUTDOWN, LOCK)


class PartitionDirectory(NamedTuple):
    """The files of one partition by name, with their sizes. `bases` are those of its segments, ascending; `others` is
    what is there beside files."""

    path: str
    topic: str
    partition: int
    files: dict[str, int]
    bases: list[int]
    others: list[str]

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def is_kraft(self) -> bool:
        """KRaft's own log: no topic, so no broker of ours ever opens it."""
        return self.topic == KRAFT_LOG

    @property
    def log_bytes(self) -> int:
        return sum(self.files[f"{base:020d}{LOG}"] for base in self.bases)

    def file(self, base: int, suffix: str) -> str:
        return f"{self.path}/{base:020d}{suffix}"

    def has(self, base: int, suffix: str) -> bool:
        return f"{base:020d}{suffix}" in self.files


class Place(NamedTuple):
    """A directory that was named on the command line. `root` is the data directory, None where a partition's directory
    was named that lies in none; `names` are what is in it. `whole` is False where only one partition was named."""

    root: str | None
    names: list[str]
    partitions: list[PartitionDirectory]
    whole: bool


def look(path: str) -> Place:
    """Raises ConfigError for what is no such directory, OSError."""
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        raise ConfigError(f"there is no directory {path}")
    names = sorted(os.listdir(path))
    if any(name.endswith(LOG) and parse_segment_file(name) for name in names) or (
        _partition_of(os.path.basename(path)) and not any(name in names for name in _SIGNS)
    ):
        parent = os.path.dirname(path)
        root = parent if any(os.path.exists(f"{parent}/{sign}") for sign in _SIGNS) else None
        return Place(root, sorted(os.listdir(parent)) if root else [], [look_at_partition(path)], whole=False)
    partitions = [
        look_at_partition(f"{path}/{name}")
        for name in names
        if _partition_of(name) is not None and os.path.isdir(f"{path}/{name}")
    ]
    if not any(name in names for name in _SIGNS) and not any(one.bases for one in partitions):
        raise ConfigError(f"{path} is no data directory: it has no partitions and no {META_PROPERTIES}")
    return Place(path, names, partitions, whole=True)


def look_at_partition(path: str) -> PartitionDirectory:
    """Raises OSError."""
    topic, partition = _partition_of(os.path.basename(path)) or (os.path.basename(path), -1)
    files = {}
    others = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file():
                files[entry.name] = entry.stat().st_size
            else:
                others.append(entry.name)
    found = (parse_segment_file(name) for name in files)
    bases = sorted(one[0] for one in found if one is not None and one[1:] == (LOG, ""))
    return PartitionDirectory(path, topic, partition, files, bases, sorted(others))


def _partition_of(name: str) -> TopicPartition | None:
    if name == f"{KRAFT_LOG}-0":
        return KRAFT_LOG, 0
    return parse_partition_directory(name)


def is_locked(root: str) -> bool:
    """Whether a broker, ours or Apache Kafka, runs on the directory."""
    try:
        fd = open_regular(f"{root}/{LOCK}")
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """What a checkpoint says; nothing for one that is missing or cannot be read, as a broker takes it at start."""
    try:
        entries = decode_entries(read_file(path), 3)
        return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}
    except (OSError, ValueError):
        return {}


def read_written(path: str) -> tuple[bytes, int]:
    """What was ever written to a file, without a hole at its end, and its whole size. Raises OSError.

    The indexes of 2,000 logs that grow are 40 GB of room, and some megabytes that were written.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        end = 0
        try:
            while end < size:
                end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # behind the last data; anything else: holes are not known here
                end = size
        return os.pread(fd, end, 0), size
    finally:
        os.close(fd)


def offsets_of(root: str | None, name: str) -> dict[TopicPartition, int]:
    """A checkpoint of the data directory; nothing without one."""
    return read_offsets(f"{root}/{name}") if root else {}
