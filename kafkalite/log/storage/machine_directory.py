"""The directory of several brokers of one machine, as `kafkalite serve --cores` and `-n` lay it out.

    broker0/        the data directory of a broker, by its id: meta.properties and partitions
    zookeeper/      the data of a ZooKeeper of our own

Readers and inspections take it as one path: it stands for the directories of its brokers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from kafkalite.common.errors import ConfigError
from kafkalite.log.storage.file_names import META_PROPERTIES

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
