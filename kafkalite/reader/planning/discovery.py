"""Partitions and segments that a data directory has, and those of them that a read asks for.

Source: org.apache.kafka.storage.internals.log.LocalLog (names of files and directories).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.log.storage.file_names import LOG, SWAP, parse_partition_directory, parse_segment_file
from kafkalite.reader.planning.read_options import Offsets, ReadOptions


def wanted_partitions(options: ReadOptions) -> list[TopicPartition]:
    """The topics and partitions that the options ask for. ConfigError names one that is not there."""
    try:
        names = [entry.name for entry in os.scandir(options.path) if entry.is_dir()]
    except OSError as error:
        raise ConfigError(f"cannot read the data directory {options.path}: {error.strerror}") from None
    there: dict[str, list[int]] = {}
    for name in names:
        found = parse_partition_directory(name)
        if found is not None:
            there.setdefault(found[0], []).append(found[1])
    if options.topic_pattern is not None:
        chosen = {topic: there[topic] for topic in there if re.fullmatch(options.topic_pattern, topic)}
    elif options.assigned is not None:
        chosen = {topic: list(partitions) for topic, partitions in options.assigned.items()}
    else:
        chosen = {topic: there.get(topic, []) for topic in options.topics or ()}
    for topic, partitions in chosen.items():
        if topic not in there:
            known = ", ".join(sorted(there)[:20]) or "none"
            raise ConfigError(f"there is no topic {topic!r} in {options.path}; topics there: {known}")
        for partition in partitions:
            if partition not in there[topic]:
                raise ConfigError(f"topic {topic!r} has no partition {partition} in {options.path}")
    for name, offsets in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        _check_named(name, offsets, chosen)
    return [(topic, partition) for topic in sorted(chosen) for partition in sorted(chosen[topic])]


def _check_named(name: str, offsets: Offsets, chosen: Mapping[str, list[int]]) -> None:
    """Offsets as JSON must name exactly the partitions that are read."""
    if isinstance(offsets, int):
        return
    named = {(topic, partition) for topic in offsets for partition in offsets[topic]}
    read = {(topic, partition) for topic in chosen for partition in chosen[topic]}
    for topic, partition in sorted(named ^ read):
        fault = "does not name" if (topic, partition) in read else "names, though it is not read,"
        raise ConfigError(f"the option {name!r} {fault} partition {partition} of topic {topic!r}")


def segment_bases(directory: str) -> list[int]:
    """The base offsets of a partition's segments, ascending."""
    bases = []
    for entry in os.scandir(directory):
        parsed = parse_segment_file(entry.name)
        if parsed is not None and parsed[1] == LOG:
            if parsed[2] == SWAP:
                raise StorageError(
                    f"compaction is switching segments in {directory}; run the query again, "
                    "and if no broker is running there, start it once so that it finishes"
                )
            if not parsed[2]:
                bases.append(parsed[0])
    return sorted(bases)
