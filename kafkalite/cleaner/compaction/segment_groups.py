"""Groups neighbouring segments that become one.

Compaction leaves little of a segment; if each were kept by itself, a log would end up as thousands of small files.
Neighbours are grouped while their present logs and indexes would fit into one segment.
Source: kafka.log.Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.log.segment.cleaned_segment import SourceSegment

RELATIVE_OFFSET_MAX = (1 << 31) - 1


def group_segments(
    segments: Sequence[SourceSegment], segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """`segments` in order, in groups of at least one. `index_bytes` is the largest size of either index.

    A segment ends where the next one begins, and the last one at `first_uncleanable_offset`.
    """
    groups: list[list[SourceSegment]] = []
    size = index = time_index = 0
    for number, segment in enumerate(segments):
        size += segment.size_bytes
        index += segment.index_bytes
        time_index += segment.time_index_bytes
        end_offset = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and size <= segment_bytes
            and index <= index_bytes
            and time_index <= index_bytes
            # an empty one has no offset that an index must express
            and (not segment.size_bytes or end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index, time_index = segment.size_bytes, segment.index_bytes, segment.time_index_bytes
    return groups
