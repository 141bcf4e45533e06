"""Partitions of one or several data directories, those of them that a read asks for, and the segments of each.

The directory of a machine with several brokers (`log/storage/file_names`) stands for those of its brokers. A live
partition's directory is `topic-partition`; a deleted log, an unfinished copy or a stray has a suffix behind it and does
not count. KRaft's metadata log is no topic unless it is asked for by name; internal topics are left out of a pattern,
as Spark's source does.
A listing of segments is not atomic: a file that is renamed meanwhile may appear twice, or not at all. So a listing
counts only if the directory's modification time was the same before and after, and old enough that the clock of the
file system has moved on since. A switch of segments by compaction shows by its .swap files.
Source: org.apache.kafka.storage.internals.log.{LocalLog, LogSegments}, org.apache.kafka.common.internals.Topic
(internal), org.apache.spark.sql.kafka010.ConsumerStrategy.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.storage.file_names import (
    KRAFT_LOG,
    LOG,
    SWAP,
    SegmentFiles,
    expanded,
    list_segment_files,
    parse_partition_directory,
)
from kafkalite.reader.planning.read_options import Limit, ReadOptions

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
_SHOWN = 20
_ATTEMPTS = 50
_PAUSE_S = 0.01  # two ticks of the clock that stamps files


class Replica(NamedTuple):
    """A partition's directory in a data directory."""

    data_directory: str
    directory: str


Found = Mapping[str, Mapping[int, Sequence[Replica]]]
"""The replicas of each partition, by topic and partition, at least one."""


def directories(options: ReadOptions) -> tuple[str, ...]:
    """The data directories that the options name, each of one broker."""
    return expanded(options.paths)


def wanted_partitions(options: ReadOptions, *limits: Limit) -> dict[TopicPartition, Sequence[Replica]]:
    """The partitions that the options ask for, in the order of topics and numbers.

    The options are checked against what is there, and the positions of `limits` must cover it. Then those are left out
    that the query's filters do not want. ConfigError names a partition that is missing.
    """
    found = _scan(directories(options))
    chosen = _chosen(options, found)
    if options.fail_on_data_loss and options.assigned is None:
        _check_whole(chosen, options.paths)
    for limit in limits:
        _check_named(limit, chosen)
    return {
        (topic, partition): found[topic][partition]
        for topic in sorted(chosen)
        for partition in sorted(chosen[topic])
        if options.selection.has(topic, partition)
    }


def _scan(paths: Iterable[str]) -> Found:
    found: dict[str, dict[int, list[Replica]]] = {}
    for path in paths:
        try:
            with os.scandir(path) as entries:
                names = [entry.name for entry in entries if entry.is_dir()]
        except OSError as error:
            raise ConfigError(f"cannot read the data directory {path}: {error.strerror}") from None
        for name in names:
            parsed = (KRAFT_LOG, 0) if name == f"{KRAFT_LOG}-0" else parse_partition_directory(name)
            if parsed is not None:
                replica = Replica(path, os.path.join(path, name))
                found.setdefault(parsed[0], {}).setdefault(parsed[1], []).append(replica)
    return found


def _chosen(options: ReadOptions, found: Found) -> dict[str, list[int]]:
    where = ", ".join(options.paths)
    if options.topic_pattern is not None:
        pattern = re.compile(options.topic_pattern)
        hidden = INTERNAL_TOPICS | {KRAFT_LOG}
        return {topic: list(found[topic]) for topic in found if topic not in hidden and pattern.search(topic)}
    if options.assigned is not None:
        chosen = {topic: list(partitions) for topic, partitions in options.assigned.items()}
    else:
        chosen = {topic: list(found.get(topic, ())) for topic in options.topics or ()}
    for topic, partitions in chosen.items():
        if topic not in found:
            known = sorted(name for name in found if name != KRAFT_LOG)
            listed = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
            raise ConfigError(f"topic {topic!r} not found in {where}; topics there: {listed or 'none'}")
        for partition in partitions:
            if partition not in found[topic]:
                raise ConfigError(f"topic {topic!r} has no partition {partition} in {where}")
    return chosen


def _check_whole(chosen: Mapping[str, Sequence[int]], paths: Sequence[str]) -> None:
    """A topic's partitions are numbered from 0: a gap means that some lie elsewhere, and would be missed silently."""
    for topic, partitions in chosen.items():
        there = set(partitions)
        missing = next((index for index in range(max(there, default=-1)) if index not in there), None)
        if missing is not None:
            raise ConfigError(
                f"topic {topic!r} has partition {max(there)} in {', '.join(paths)}, but no partition {missing}; name "
                "the data directories of all brokers in 'path', choose partitions with 'assign', or set failOnDataLoss "
                "to false to read what is there"
            )


def _check_named(limit: Limit, chosen: Mapping[str, Sequence[int]]) -> None:
    """Positions by partition must cover the partitions that are read, and name no other."""
    read = {(topic, partition) for topic, partitions in chosen.items() for partition in partitions}
    for topic, partition in sorted(limit.named() - read):
        raise ConfigError(
            f"the option {limit.option!r} names, though it is not read, partition {partition} of topic {topic!r}"
        )
    for topic, partition in sorted(read):
        if limit.position(topic, partition) is None:
            raise ConfigError(
                f"the option {limit.option!r} does not name partition {partition} of topic {topic!r}; add it, or "
                'give "*" for all that are not named'
            )


def list_segments(directory: str) -> SegmentFiles:
    """The segments of a partition. Raises FileNotFoundError, StorageError."""
    for _ in range(_ATTEMPTS):
        before_ns = os.stat(directory).st_mtime_ns
        found = _listed(directory)
        if found is not None and os.stat(directory).st_mtime_ns == before_ns:
            age_s = (time.time_ns() - before_ns) / 1e9
            if age_s > _PAUSE_S or age_s < 0:  # a directory from the future: clocks differ
                return found
        time.sleep(_PAUSE_S)
    raise StorageError(
        f"compaction is switching segments in {directory}; run the query again, "
        "and if no broker is running there, start it once so that it finishes"
    )


def _listed(directory: str) -> SegmentFiles | None:
    """None while compaction is switching segments, or when one goes away meanwhile."""
    try:
        found = list_segment_files(directory)
    except FileNotFoundError:
        return None
    return None if any(name.endswith(LOG + SWAP) for name in found.temporary) else found
