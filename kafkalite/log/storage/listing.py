"""Listing of the segments in a partition's directory, with the files beside them, by kind.

Source: org.apache.kafka.storage.internals.log.{LogLoader, LocalLog}.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from kafkalite.log.storage.file_names import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, parse_segment_file


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
