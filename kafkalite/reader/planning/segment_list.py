"""Segments of a partition's directory, from one listing: base offsets, sizes, and which other files there are.

A listing is not atomic: a file that is renamed meanwhile may appear twice, or not at all. So a listing counts only if
the directory's modification time was the same before and after, and old enough that the clock of the file system has
moved on since. A switch of segments by compaction shows by its .swap files.
Source: org.apache.kafka.storage.internals.log.LocalLog, LogSegments.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from kafkalite.common.errors import StorageError
from kafkalite.log.storage.file_names import LOG, SNAPSHOT, SWAP, TXN_INDEX, parse_segment_file

_ATTEMPTS = 50
_PAUSE_S = 0.01  # two ticks of the clock that stamps files
_DIGITS = 20
_LOG_NAME = _DIGITS + len(LOG)


class SegmentList(NamedTuple):
    """Base offsets, ascending, with the sizes of the files in bytes; the offsets that snapshots and transaction indexes
    of the directory are named by."""

    base_offsets: list[int]
    sizes_bytes: list[int]
    snapshots: list[int]
    txn_indexes: list[int]


def list_segments(directory: str) -> SegmentList:
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


def _listed(directory: str) -> SegmentList | None:
    """None while compaction is switching segments, or when one goes away meanwhile."""
    sizes: dict[int, int] = {}
    snapshots: list[int] = []
    txn_indexes: list[int] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(LOG) and len(name) == _LOG_NAME and name[:_DIGITS].isdecimal():
                try:
                    sizes[int(name[:_DIGITS])] = entry.stat().st_size
                except FileNotFoundError:
                    return None
            elif name.endswith(SWAP):
                parsed = parse_segment_file(name)
                if parsed is not None and parsed[1] == LOG:
                    return None
            elif name.endswith((SNAPSHOT, TXN_INDEX)):
                parsed = parse_segment_file(name)
                if parsed is not None:
                    (snapshots if parsed[1] == SNAPSHOT else txn_indexes).append(parsed[0])
    bases = sorted(sizes)
    return SegmentList(bases, [sizes[base] for base in bases], sorted(snapshots), sorted(txn_indexes))
