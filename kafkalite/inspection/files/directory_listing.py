"""Listing of a data directory, or of one partition's, and reading of its files. Nothing is opened for writing.

A path may be anything: opening a FIFO waits for a writer, perhaps without end, and a device may do anything. So files
are opened with O_NONBLOCK, and anything but a regular file is refused.
Source: kafka.log.LogManager, CleanShutdownFileHandler (which files there are); `file_names` for their names; open(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.storage import file_names
from kafkalite.log.storage.checkpoint_file import decode_offsets

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str) -> int:
    """A descriptor for reading. Raises OSError, also for anything but a regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise OSError(errno.EINVAL, f"it is {kind_of(path)}, not a file", path) from None
        raise
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise OSError(errno.EINVAL, f"it is {_KINDS[stat.S_IFMT(mode)]}, not a file", path)
    return fd


def read_file(path: str) -> bytes:
    """The content of a regular file. Raises OSError as `open_regular` does."""
    with open(open_regular(path), "rb") as file:
        return file.read()


def kind_of(path: str) -> str | None:
    """The kind of anything but a regular file; None for one. Raises FileNotFoundError, also for a link that leads
    nowhere."""
    mode = os.stat(path).st_mode
    return None if stat.S_ISREG(mode) else _KINDS[stat.S_IFMT(mode)]


_SIGNS = (file_names.META_PROPERTIES, file_names.RECOVERY_POINTS, file_names.CLEAN_SHUTDOWN, file_names.LOCK)


class PartitionDirectory(NamedTuple):
    """The directory of one partition. `files`: sizes by name; `bases`: the base offsets of its segments, ascending;
    `others`: the names of everything but files."""

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
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def is_kraft(self) -> bool:
        """Whether this is KRaft's own log: no topic, so kafkalite never opens it."""
        return self.topic == file_names.KRAFT_LOG

    @property
    def log_bytes(self) -> int:
        return sum(map(self.segment_bytes, self.bases))

    def segment_bytes(self, base: int) -> int:
        return self.files[f"{base:020d}{file_names.LOG}"]

    def file(self, base: int, suffix: str) -> str:
        return f"{self.path}/{base:020d}{suffix}"

    def has(self, base: int, suffix: str) -> bool:
        return f"{base:020d}{suffix}" in self.files


class DirectoryListing(NamedTuple):
    """`root` is the data directory, None for a partition's directory outside any; `names` are its entries.

    `whole` is False where only one partition was named on the command line.
    """

    root: str | None
    names: list[str]
    partitions: list[PartitionDirectory]
    whole: bool

    @property
    def place(self) -> str:
        """The path to show."""
        return self.root or self.partitions[0].path

    @property
    def is_locked(self) -> bool:
        """Whether a broker, kafkalite or Apache Kafka, runs on the directory."""
        return self.root is not None and _is_locked(f"{self.root}/{file_names.LOCK}")


def list_directory(path: str) -> DirectoryListing:
    """The listing of a path. Raises ConfigError if it is neither kind of directory, OSError."""
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        raise ConfigError(f"there is no directory {path}")
    names = sorted(os.listdir(path))
    if any(name.endswith(file_names.LOG) and file_names.parse_segment_file(name) for name in names) or (
        _partition_of(os.path.basename(path)) and not any(name in names for name in _SIGNS)
    ):
        parent = os.path.dirname(path)
        root = parent if any(os.path.exists(f"{parent}/{sign}") for sign in _SIGNS) else None
        return DirectoryListing(root, sorted(os.listdir(parent)) if root else [], [list_partition(path)], whole=False)
    partitions = [
        list_partition(f"{path}/{name}")
        for name in names
        if _partition_of(name) is not None and os.path.isdir(f"{path}/{name}")
    ]
    if not any(name in names for name in _SIGNS) and not any(one.bases for one in partitions):
        raise ConfigError(f"{path} is no data directory: it has no partitions and no {file_names.META_PROPERTIES}")
    return DirectoryListing(path, names, partitions, whole=True)


def list_partition(path: str) -> PartitionDirectory:
    """The files of a partition's directory. Raises OSError."""
    topic, partition = _partition_of(os.path.basename(path)) or (os.path.basename(path), -1)
    files = {}
    others = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file():
                files[entry.name] = entry.stat().st_size
            else:
                others.append(entry.name)
    found = (file_names.parse_segment_file(name) for name in files)
    bases = sorted(one[0] for one in found if one is not None and one[1:] == (file_names.LOG, ""))
    return PartitionDirectory(path, topic, partition, files, bases, sorted(others))


def _partition_of(name: str) -> TopicPartition | None:
    if name == f"{file_names.KRAFT_LOG}-0":
        return file_names.KRAFT_LOG, 0
    return file_names.parse_partition_directory(name)


def _is_locked(path: str) -> bool:
    try:
        fd = open_regular(path)
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


def checkpoint_offsets(root: str | None, name: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint of the data directory; none if it is missing or unreadable, as at a start."""
    if root is None:
        return {}
    try:
        return dict(decode_offsets(read_file(f"{root}/{name}")))
    except (OSError, ValueError):
        return {}


def read_written(path: str) -> tuple[bytes, int]:
    """The content of a file without a hole at its end, and the whole size. Raises OSError.

    Preallocation makes the indexes of 2,000 growing logs 40 GB, of which some megabytes are written.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        end = 0
        try:
            while end < size:
                end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: after the last data; else the file system reports no holes
                end = size
        return os.pread(fd, end, 0), size
    finally:
        os.close(fd)
