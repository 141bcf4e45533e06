"""The directory of a single broker becomes that of several: its files move into `broker<id>` below it, by renames.

`meta.properties` moves first. From then on the directory belongs to several brokers and no single one starts on it; a
start after a crash moves the rest. Files of no broker's stay. With a ZooKeeper beside the single broker its topics are
known already; without, the first start adopts them from its journal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.log.directories.meta_properties import read_meta_properties
from kafkalite.log.storage import file_names
from kafkalite.log.storage.file_names import ZOOKEEPER, broker_directories, broker_directory, is_used
from kafkalite.log.storage.files import Files
from kafkalite.zk.cluster.standalone_migration import JournalMigration

_PARTITION = re.compile(r".+-[0-9]+(\.[0-9a-f]{32}-(delete|future|stray))?\Z")
_FILES = (
    file_names.META_PROPERTIES,
    file_names.CLEAN_SHUTDOWN,
    file_names.OWN_CLEAN_SHUTDOWN,
    "bootstrap.checkpoint",
)

Moves = tuple[tuple[str, str], ...]


def first_broker(properties: Mapping[str, str], config: BrokerConfig, *, adopts: bool) -> tuple[int, Moves]:
    """The id of the first of several brokers, and the moves that make it the owner of the data of a single one. Raises
    ConfigError."""
    directories, is_said = config.data_dirs, bool({"broker.id", "node.id"} & properties.keys())
    there = broker_directories(directories[0])
    single = [directory for directory in directories if is_used(directory)]
    if single and there:
        raise ConfigError(
            f"{single[0]} holds the data of a single broker and of several, such as {next(iter(there.values()))}: move "
            "those that are not wanted to another place"
        )
    if single:
        stored = _stored_id(single[0])
        first_id = config.broker_id if is_said or stored is None else stored
        if not (adopts or _has_journal(directories) or _has_zookeeper(directories[0])):
            raise ConfigError(
                f"{single[0]} holds the data of another broker, such as Apache Kafka: --adopt takes it over"
            )
    else:
        first_id = config.broker_id if is_said else next(iter(there), 0)
        if adopts and not there:
            raise ConfigError(f"--adopt: there is nothing to take over in {','.join(directories)}")
    first_id = max(0, first_id)
    moves = tuple((directory, broker_directory(directory, first_id)) for directory in directories)
    return first_id, tuple(each for each in moves if single or (is_used(each[1]) and _movable(each[0])))


def needs_adoption(properties: Mapping[str, str], moves: Moves) -> bool:
    """Whether the first broker finds topics in its directories that the new ZooKeeper does not know."""
    own = properties["log.dirs"].split(",")
    if _has_journal((*own, *(source for source, _ in moves))):
        return True
    return bool(moves) and not _has_zookeeper(moves[0][0])


def carry_out(moves: Moves, files: Files) -> None:
    """Move the data. Both directories are locked by the caller's lock on the first one. Raises StorageError."""
    for source, target in moves:
        try:
            names = _movable(source)
            if not os.path.isdir(target):
                files.mkdir(target)
                files.sync(source)
            for name in names:
                files.rename(os.path.join(source, name), os.path.join(target, name))
                if name == file_names.META_PROPERTIES:
                    files.sync(target)
                    files.sync(source)
            files.sync(target)
            files.sync(source)
        except OSError as error:
            raise StorageError(f"cannot move the data of {source} to {target}: {error.strerror}") from error


def _movable(directory: str) -> list[str]:
    """The names in a directory that are of a broker, meta.properties first."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    found = [name for name in names if _is_file_of_broker(name) or _is_partition(directory, name)]
    return sorted(found, key=lambda name: name != file_names.META_PROPERTIES)


def _is_file_of_broker(name: str) -> bool:
    return name in _FILES or name.endswith("-checkpoint") or name.startswith(("kafkalite-", ".kafkalite"))


def _is_partition(directory: str, name: str) -> bool:
    return _PARTITION.match(name) is not None and os.path.isdir(os.path.join(directory, name))


def _has_journal(directories: Sequence[str]) -> bool:
    return JournalMigration(directories, adopts=False).has_journal


def _has_zookeeper(directory: str) -> bool:
    place = os.path.join(directory, ZOOKEEPER)
    return os.path.isdir(place) and any(name.startswith(("snapshot.", "version-2")) for name in os.listdir(place))


def _stored_id(directory: str) -> int | None:
    path = os.path.join(directory, file_names.META_PROPERTIES)
    try:
        meta = read_meta_properties(Files(), path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check its owner and rights") from error
    return None if meta is None else meta.broker_id


def partitions_in(directories: Sequence[str]) -> list[str]:
    """The names of the partitions that have a log in one of the directories."""
    return sorted(
        name
        for directory in directories
        if os.path.isdir(directory)
        for name in os.listdir(directory)
        if file_names.parse_partition_directory(name) is not None
    )
