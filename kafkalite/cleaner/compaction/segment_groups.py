"""Which neighbouring segments become one.

Compaction leaves little of a segment; if each were kept by itself, a log would end up as thousands of small files.
Neighbours are put together while what they hold now would fit into one, logs and indexes alike.
Source: kafka.log.Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.cleaner.job.job import SourceSegment

RELATIVE_OFFSET_MAX = (1 << 31) - 1


def group_segments(
    segments: Sequence[SourceSegment], segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """`segments` in order, in groups of one at least. `index_bytes` is the most that either index may have.

    Where the last segment of a group ends is told by the one that follows; the very last one may reach up to
    `first_uncleanable_offset`.
    """
    groups: list[list[SourceSegment]] = []
    size = index = time_index = 0
    for number, segment in enumerate(segments):
        size += segment.size_bytes
        index += segment.index_bytes
        time_index += segment.time_index_bytes
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and size <= segment_bytes
            and index <= index_bytes
            and time_index <= index_bytes
            # an empty one adds nothing that must be reached
            and (not segment.size_bytes or behind - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index, time_index = segment.size_bytes, segment.index_bytes, segment.time_index_bytes
    return groups
