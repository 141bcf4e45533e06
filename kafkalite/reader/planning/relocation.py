"""Where the records of a chunk are when its file is no longer the one that was planned.

Compaction puts another file in the place of one or several: the offsets of the chunk are looked for in the segments
that are there now. A consumer that comes so late sees the same: records that others have replaced since are not there
any more. What retention took, or recovery cut off, is lost, and told by its offsets.
Source: kafka.log.LocalLog.replaceSegments, deleteSegmentFiles.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from kafkalite.log.segment.segment_file import SegmentFile
from kafkalite.reader.planning.split import Chunk
from kafkalite.reader.planning.splits import PartitionPlan, find_spans, whole
from kafkalite.reader.segments.segment_list import list_segments
from kafkalite.reader.segments.time_lookup import SegmentRange


class Relocation(NamedTuple):
    """The chunks that stand for a chunk now, and the ranges of offsets [first, end) that are lost."""

    chunks: list[Chunk]
    lost: list[tuple[int, int]]


def relocate(chunk: Chunk) -> Relocation:
    """Looks for the offsets of `chunk` in its partition's directory. Raises StorageError, Malformed."""
    start = max(chunk.start_offset, chunk.row_filter.min_offset)
    end = min(chunk.end_offset, chunk.row_filter.max_offset + 1)
    if start >= end:
        return Relocation([], [])
    try:
        return _relocated(chunk, start, end)
    except FileNotFoundError:  # with the directory, or between two looks
        return Relocation([], [(start, end)])


def _relocated(chunk: Chunk, start: int, end: int) -> Relocation:
    directory = os.path.dirname(chunk.path)
    segments = list_segments(directory)
    bases = segments.base_offsets
    if not bases:
        return Relocation([], [(start, end)])
    with SegmentFile(directory, bases[-1]) as last:
        last_position, log_end = last.end()
    first, stop = min(max(start, bases[0]), end), max(min(end, log_end), start)
    ranges = [*map(SegmentRange, bases, [*bases[1:], log_end], [*segments.sizes_bytes[:-1], last_position])]
    spans = find_spans(directory, ranges, first, stop, chunk.row_filter)
    plan = PartitionPlan((chunk.topic, chunk.partition), directory, spans, chunk.aborted, chunk.row_filter)
    lost = [(one, other) for one, other in ((start, first), (max(first, stop), end)) if one < other]
    # a mount that gives a file another inode each time must not end in an error: here the file was just looked at
    return Relocation([each._replace(file_id=-1) for each in whole(plan)], lost)
