"""Reads two clusters to their ends: the same committed records, and a mirror's state that is true of both logs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.mirror.naming import Naming
from kafkalite.client.mirror.state_records import OffsetSync, Run
from kafkalite.client.partition_scan import PartitionScan, ScannedRecord
from kafkalite.common.names import TopicPartition

TIMEOUT_S = 20.0
NAMING = Naming("west", "east")


class Pair(NamedTuple):
    """A checkpoint: the group's offset at the source, and its translation."""

    group: str
    partition: TopicPartition  # of the copy
    source: int
    target: int
    time_ms: int


def committed_records(cluster: ClusterClient, topic: str, index: int, begin: int = 0) -> list[ScannedRecord]:
    """The records of a partition that a consumer of committed ones sees, from an offset on."""
    key = topic, index
    offsets = LogOffsets(cluster, TIMEOUT_S)
    position, end = max(begin, offsets.starts([key])[key]), offsets.ends([key], committed=True)[key]
    scan = PartitionScan(cluster, topic, index, committed_only=True)
    found: list[ScannedRecord] = []
    while position < end:
        found += [one for one in scan.read(position, end) if one.marker is None]
        position = max(position + 1, scan.position)
    return found


def _translated(run: Run, offset: int) -> int:
    return run.target + min(offset - run.source, run.records)


def content(records: list[ScannedRecord]) -> list[tuple[object, ...]]:
    return [(one.timestamp, one.key, one.value, one.headers) for one in records]


def newest(records: list[ScannedRecord]) -> dict[bytes | None, tuple[object, ...]]:
    """The newest record of each key."""
    return {one.key: (one.timestamp, one.value, one.headers) for one in records}


def checkpoints(east: ClusterClient) -> list[Pair]:
    """All checkpoints of the log, in their order."""
    found = []
    for one in committed_records(east, NAMING.checkpoints, 0):
        assert one.key is not None and one.value is not None
        at, texts = 0, []
        for _ in range(2):
            (size,) = struct.unpack_from(">h", one.key, at)
            texts.append(one.key[at + 2 : at + 2 + size].decode())
            at += 2 + size
        (index,) = struct.unpack_from(">i", one.key, at)
        _, source, target = struct.unpack_from(">hqq", one.value)
        found.append(Pair(texts[0], (texts[1], index), source, target, one.timestamp))
    return found


class Committed(NamedTuple):
    """A run of records that a transaction committed, and the time at which it began to."""

    run: Run
    time_ms: int


def committed_runs(east: ClusterClient) -> dict[TopicPartition, list[Committed]]:
    """The pairs of offsets of each partition of the source, in their order."""
    found: dict[TopicPartition, list[Committed]] = {}
    for one in committed_records(east, NAMING.offset_syncs, 0):
        sync = OffsetSync.read(one.key, one.value, one.headers)
        found.setdefault(sync.partition, []).append(Committed(sync.run, one.timestamp))
    return found


class Audit:
    """Both clusters, read to their ends. `behind_max`: the most records that a translated offset was too early."""

    def __init__(self, west: str, east: str, topics: dict[str, int], tables: Sequence[str] = ()) -> None:
        """`tables` are compacted, by each cluster at its own time: the newest record of each key counts."""
        self.behind_max = 0
        self._tables = tables
        with ClusterClient(west, TIMEOUT_S) as source, ClusterClient(east, TIMEOUT_S) as target:
            self._source = {
                (topic, index): committed_records(source, topic, index)
                for topic, count in topics.items()
                for index in range(count)
            }
            self._target = {
                (NAMING.copy_of(topic), index): committed_records(target, NAMING.copy_of(topic), index)
                for topic, index in self._source
            }
            self._pairs = checkpoints(target)
            self._runs = committed_runs(target)
            here, there = GroupAdmin(source, TIMEOUT_S), GroupAdmin(target, TIMEOUT_S)
            groups = [one.group_id for one in here.list_groups() if one.group_id in ("app", "early")]
            self._groups = {group: (here.offsets(group), there.offsets(group)) for group in groups}

    def check(self) -> None:
        """Every record once and in its order; every pair of offsets is of the same record."""
        for (topic, index), records in self._source.items():
            copy = self._target[NAMING.copy_of(topic), index]
            if topic in self._tables:
                assert newest(copy) == newest(records), topic
            else:
                assert content(copy) == content(records), f"{topic}-{index}: {len(copy)} of {len(records)} records"
        for partition, runs in self._runs.items():
            if partition[0] in self._tables:
                continue
            here = {one.offset: one.value for one in self._source[partition]}
            there = {one.offset: one.value for one in self._target[NAMING.copy_of(partition[0]), partition[1]]}
            for run, _ in runs:
                for at in range(run.records):
                    assert here[run.source + at] == there[run.target + at], (partition, run)
        assert self._pairs, "no checkpoint at all"
        for pair in self._pairs:
            self._check_pair(pair.partition, pair.source, pair.target)

    def check_pace(self) -> int:
        """Every checkpoint that was ever written, through all kills, was at most one transaction behind: its offset is
        the translation of the source's, as far as the copy went when the last transaction but one had been committed.
        Returns how many of them the copy's end held back."""
        held_back = 0
        for pair in self._pairs:
            original = pair.partition[0].removeprefix(f"{NAMING.source}."), pair.partition[1]
            times = sorted({one.time_ms for one in self._runs[original] if one.time_ms <= pair.time_ms})
            known = [one.run for one in self._runs[original] if one.time_ms in times[:-1]]
            end = max((run.target + run.records for run in known), default=0)
            exact = max((_translated(run, pair.source) for run in known if run.source <= pair.source), default=0)
            assert pair.target >= min(exact, end), f"{pair}: {exact} was known, in a copy up to {end}"
            held_back += exact == end
        return held_back

    def check_groups(self) -> None:
        """The offsets of groups at the target are those of the source, to the record."""
        assert self._groups
        for group, (here, there) in self._groups.items():
            for (topic, index), offset in here.items():
                copy = NAMING.copy_of(topic), index
                assert copy in there, (group, copy)
                assert self._check_pair(copy, offset, there[copy]) == 0, (group, copy, offset, there[copy])

    def _check_pair(self, copy: TopicPartition, source: int, target: int) -> int:
        """How many records a consumer would read again; it must not miss one."""
        original = copy[0].removeprefix(f"{NAMING.source}."), copy[1]
        read_here = sum(one.offset < source for one in self._source[original])
        passed_there = sum(one.offset < target for one in self._target[copy])
        assert passed_there <= read_here, f"{copy}: {source} became {target}, which is ahead"
        self.behind_max = max(self.behind_max, read_here - passed_there)
        return read_here - passed_there
