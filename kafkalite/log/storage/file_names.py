"""Names of the files and directories of a log, of the directories of several brokers, and the segments in a directory.

    orders-0/                          one directory per partition
    00000000000000000042.log           .index .timeindex .txnindex: one set per segment, named by its first offset
    00000000000000000042.snapshot      producer state up to that offset
    kafkalite-record-counts            kafkalite's own: how many records each sealed segment holds
    orders-0.<32 hex digits>-delete/   a partition that is being deleted
    orders-0.<32 hex digits>-stray/    a partition of no known topic, kept for the operator
    orders-0.<32 hex digits>-future/   a partition that is being copied here from another directory

The data directories of several brokers of one machine lie in one, as `kafkalite serve --cores` and `-n` lay it out.
Readers and inspections take that as one path, which stands for the directories of its brokers:

    broker0/        the data directory of a broker, by its id: meta.properties and partitions
    zookeeper/      the data of a ZooKeeper of our own

Source: org.apache.kafka.storage.internals.log.LogFileUtils, LocalLog (directory names), LogLoader.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_FILES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
FIRST_SEGMENT = f"{0:020d}{LOG}"

DELETED = ".deleted"  # unlinked after file.delete.delay.ms
CLEANED = ".cleaned"  # the cleaner is still writing it
SWAP = ".swap"  # the cleaner has finished it; it is about to replace its sources

DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECORD_COUNTS = "kafkalite-record-counts"
ELECTIONS = "kafkalite-elections"
FAILED_SYNC = "kafkalite-failed-sync"  # empty: an fsync has failed here since the log was last recovered
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
OWN_CLEAN_SHUTDOWN = ".kafkalite_cleanshutdown"

_FILE_NAME_BYTES = 255
_OFFSET_MAX = (1 << 63) - 1  # twenty digits can hold more
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)((?:\.deleted|\.cleaned|\.swap)?)\Z")
# a name that no topic can have belongs to no log, and would corrupt the checkpoints, which are split at spaces
_PARTITION = r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})"
_PARTITION_DIRECTORY = re.compile(rf"{_PARTITION}\Z")
_FUTURE = re.compile(rf"{_PARTITION}\.[0-9a-f]{{32}}{FUTURE_DIRECTORY}\Z")
_STRAY = re.compile(rf".+-(0|[1-9][0-9]{{0,9}})\.[0-9a-f]{{32}}{STRAY_DIRECTORY}\Z")
_PARTITION_MAX = (1 << 31) - 1


def segment_stem(base_offset: int) -> str:
    """The 20 digits that the names of a segment's files begin with."""
    return f"{base_offset:020d}"


def parse_segment_file(name: str) -> tuple[int, str, str] | None:
    """(base offset, suffix such as ".log", "" or one of DELETED, CLEANED, SWAP), or None for any other file."""
    found = _SEGMENT_FILE.match(name)
    if found is None or int(found[1]) > _OFFSET_MAX:
        return None
    return int(found[1]), found[2], found[3]


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


KRAFT_LOG = "__cluster_metadata"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """(topic, partition), or None if `name` is not a live partition's directory.

    KRaft's metadata log is not a live partition: it stays as it is for the Apache Kafka that left it.
    """
    found = _PARTITION_DIRECTORY.match(name)
    if found is None or found[1] == KRAFT_LOG or int(found[2]) > _PARTITION_MAX:
        return None
    return found[1], int(found[2])


def parse_future_directory(name: str) -> TopicPartition | None:
    """(topic, partition) of a -future copy, or None for any other name."""
    found = _FUTURE.match(name)
    return (found[1], int(found[2])) if found is not None else None


def future_directory(topic: str, partition: int) -> str:
    """A new name for a -future copy."""
    return f"{partition_directory(topic, partition)}.{uuid.uuid4().hex}{FUTURE_DIRECTORY}"


def replaced_directory(future: str) -> str:
    """The name that a partition's directory gets when this -future copy takes its place."""
    return future.removesuffix(FUTURE_DIRECTORY) + DELETE_DIRECTORY


def has_future_directory(topic: str, partition: int) -> bool:
    """Whether the name of a -future copy fits into the file system. Unlike the others it is never cut (KAFKA-4893)."""
    name = f"{partition_directory(topic, partition)}.{uuid.UUID(int=0).hex}{FUTURE_DIRECTORY}"
    return len(name.encode()) <= _FILE_NAME_BYTES


def parse_stray_partition(name: str) -> int | None:
    """The partition number of a stray, whose topic name may have been cut; None for any other name."""
    found = _STRAY.match(name)
    return int(found[1]) if found is not None else None


def renamed_directory(topic: str, partition: int, suffix: str) -> str:
    """A unique name for a partition directory with `suffix`, DELETE_DIRECTORY or STRAY_DIRECTORY.

    The topic is cut to the longest name that a file system takes.
    """
    rest = f"-{partition}.{uuid.uuid4().hex}{suffix}"
    return topic[: _FILE_NAME_BYTES - len(rest)] + rest


class SegmentFiles(NamedTuple):
    """`sizes`: the bytes of each `.log` by its base offset, ascending. `offsets`: those that the indexes and snapshots
    are named by, ascending, for each suffix. `temporary`: names that end in .deleted, .cleaned or .swap."""

    sizes: dict[int, int]
    offsets: dict[str, list[int]]
    temporary: list[str]


def list_segment_files(directory: str) -> SegmentFiles:
    """The files of the segments in a directory. Raises OSError, also for a file that goes away meanwhile."""
    sizes: dict[int, int] = {}
    offsets: dict[str, list[int]] = {OFFSET_INDEX: [], TIME_INDEX: [], TXN_INDEX: [], SNAPSHOT: []}
    temporary: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            found = parse_segment_file(entry.name)
            if found is None:
                continue
            base, suffix, state = found
            if state:
                temporary.append(entry.name)
            elif suffix == LOG:
                sizes[base] = entry.stat().st_size
            elif suffix in offsets:
                offsets[suffix].append(base)
    for named in offsets.values():
        named.sort()
    return SegmentFiles(dict(sorted(sizes.items())), offsets, temporary)


ZOOKEEPER = "zookeeper"
"""The name of the directory of a ZooKeeper of our own. It has no dash, as that of a partition has."""
_BROKER = re.compile(r"broker(0|[1-9][0-9]{0,9})\Z")


def broker_directory(directory: str, broker_id: int) -> str:
    return os.path.join(directory, f"broker{broker_id}")


def broker_directories(directory: str) -> dict[int, str]:
    """The directories of brokers by id, ascending, as far as a broker has used them. Empty where there is none, and
    for a directory that cannot be read."""
    try:
        found = sorted(int(match[1]) for match in map(_BROKER.match, os.listdir(directory)) if match is not None)
    except OSError:
        return {}
    paths = {broker_id: broker_directory(directory, broker_id) for broker_id in found}
    return {broker_id: path for broker_id, path in paths.items() if is_used(path)}


def is_used(directory: str) -> bool:
    """Whether a broker, kafkalite or Apache Kafka, has its data here."""
    return os.path.exists(os.path.join(directory, META_PROPERTIES))


def check_is_not_of_several(directory: str) -> None:
    """Raises ConfigError when a single broker is given the directory of several, whose topics it would not have."""
    several = broker_directories(directory)
    if several and not is_used(directory):
        raise ConfigError(
            f"{directory} holds the data of several brokers, such as broker{next(iter(several))}: start them with -n "
            "or --cores, or give a single broker another --data-dir (log.dirs)"
        )


def expanded(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths, with that of several brokers replaced by those of its brokers."""
    return tuple(one for path in paths for one in _of_one(path))


def _of_one(path: str) -> tuple[str, ...]:
    if is_used(path):
        return (path,)
    return tuple(broker_directories(path).values()) or (path,)
