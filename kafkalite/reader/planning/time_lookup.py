"""Look-up of the first record at or after a time in segment files, as a broker answers ListOffsets.

A segment is passed over where its time index proves that all its records are earlier: its last entry reaches the end
of the segment, or the headers behind that entry say so. Where the index is missing or short, headers are read from the
last place that it knows. A batch is decompressed only if its largest timestamp says that it may hold the record.
Source: kafka.log.UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp; KIP-33.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.log.index.sparse_index import TIME_ENTRY, IndexFile
from kafkalite.log.segment.segment_file import SegmentFile
from kafkalite.log.storage.file_names import TIME_INDEX, segment_stem
from kafkalite.record.batch import MAGIC, BatchHeader
from kafkalite.record.message_set import message_times
from kafkalite.record.record import record_times


class SegmentRange(NamedTuple):
    """A segment: its base offset, the offset behind its last record, and the position behind its last whole batch.

    `file_id` is the inode of the file that was looked at for them, -1 if none was.
    """

    base_offset: int
    end_offset: int
    end_position: int
    file_id: int = -1


def first_offset_at(
    directory: str, segments: Sequence[SegmentRange], timestamp_ms: int, start_offset: int
) -> int | None:
    """The offset of the first record at or past `start_offset` that is not earlier than `timestamp_ms`, or None.

    Raises FileNotFoundError for a segment that is gone, Malformed.
    """
    for segment in segments:
        if segment.end_offset <= start_offset:
            continue
        offset = earlier_up_to(directory, segment, timestamp_ms)
        if offset >= segment.end_offset:
            continue
        with SegmentFile(directory, segment.base_offset) as file:
            first = file.locate(max(offset, start_offset), segment.end_position)
            for position, header in file.headers(first[0], segment.end_position) if first is not None else ():
                if header.max_timestamp >= timestamp_ms:
                    found = _first_in(file, position, header, timestamp_ms, start_offset)
                    if found is not None:
                        return found
    return None


def earlier_up_to(directory: str, segment: SegmentRange, timestamp_ms: int) -> int:
    """An offset before which all records of the segment are earlier than `timestamp_ms`, as its time index knows."""
    index = IndexFile(f"{directory}/{segment_stem(segment.base_offset)}{TIME_INDEX}", TIME_ENTRY)
    try:
        entry = index.last
        if entry is None or entry[0] >= timestamp_ms:
            entry = index.last_where(lambda entry: entry[0] < timestamp_ms)
    finally:
        index.close()
    return segment.base_offset if entry is None else min(segment.base_offset + entry[1] + 1, segment.end_offset)


def _first_in(
    file: SegmentFile, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> int | None:
    batch = memoryview(os.pread(file.fd, header.size_bytes, position))
    try:
        times = record_times if header.magic == MAGIC else message_times
        for offset, record_ms in times(batch):
            if record_ms >= timestamp_ms and offset >= start_offset:
                return offset
    except Malformed as error:
        raise Malformed(f"{file.path}: the batch at position {position} cannot be read: {error}") from None
    return None
