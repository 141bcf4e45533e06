"""Rebuilds the sparse indexes and the record count of a segment from its batches, after an unclean stop.

Source: org.apache.kafka.storage.internals.log.LogSegment.recover.
"""

from __future__ import annotations

import os

from kafkalite.log.segment.segment import Segment
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader

_COPY_BYTES = 1 << 20


class SegmentRebuild:
    """The constructor empties the indexes, `add` takes every batch in order, `finish` seals the segment."""

    def __init__(self, segment: Segment) -> None:
        """Raises OSError."""
        self._segment = segment
        self._added_bytes = 0
        self._has_unknown_counts = False
        segment.reset_indexes()
        segment.tally.forget(0)
        if segment.size_bytes:  # an empty segment has its final form already
            segment.open_for_append()

    def add(self, position: int, header: BatchHeader) -> None:
        """Indexes a batch that is in the file at `position`, by the rule of an append."""
        self._segment.index_batch(position, header)
        self._added_bytes = position + header.size_bytes
        if header.record_count < 0:
            self._has_unknown_counts = True  # a wrapper: it must be decompressed to count its records
        tally = self._segment.tally
        tally.record_count += header.record_count
        if header.is_control:
            tally.control_record_count += header.record_count

    def finish(self, size_bytes: int) -> None:
        """Cuts the segment to its first `size_bytes`, which are valid, and seals it. Raises OSError."""
        segment = self._segment
        segment.size_bytes = size_bytes
        if self._has_unknown_counts or size_bytes != self._added_bytes:
            segment.tally.forget(size_bytes)
        segment.seal()
        segment.forget_first_timestamp()
        segment.close_writer()


def rewrite_content(files: Files, path: str, size_bytes: int) -> None:
    """Writes the first `size_bytes` of a file again, unchanged, so that the next fsync covers them. Raises OSError."""
    fd = files.open(path, os.O_RDWR)
    try:
        for position in range(0, size_bytes, _COPY_BYTES):
            files.write_fully(fd, files.pread(fd, min(_COPY_BYTES, size_bytes - position), position), position)
    finally:
        files.close(fd)


def was_sealed(segment: Segment) -> bool:
    """Whether the last step of `Segment.seal`, which cuts the time index, was reached. Raises OSError.

    The files may not have been fsynced since, so the entries of the indexes are checked as well.
    """
    return (
        segment.time_index.ends_in_an_entry()
        and segment.time_index.is_possible(segment.size_bytes)
        and segment.offset_index.is_possible(segment.size_bytes)
    )
