"""Rebuilds the sparse indexes of a segment, and splits one whose offsets lie too far apart for them.

After an unclean stop the indexes and the record count are built again from the batches (`SegmentRebuild`).
An index entry has 31 bits for the distance from the base offset. Brokers before Kafka 1.1 left segments of compacted
topics that are too long for it (KAFKA-5413, KAFKA-6264). All batches stay as they are; each part but the first is named
by its first batch. (Kafka names the first part so, too, which moves the log's start.)

    written     <base>.log.cleaned of each part, with its indexes, fsynced
    announced   .cleaned -> .swap, the last part first and each .log last, fsynced: from then on a start completes it
    switched    the files of the source are removed; .swap -> final names, each .log first

A crash leaves the source, or all parts, to the next start (`swap_recovery`).
Source: kafka.log.LocalLog.splitOverflowedSegment, LogSegment.appendFromFile;
org.apache.kafka.storage.internals.log.LogSegment.recover.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.segment.segment import RELATIVE_OFFSET_MAX, Segment
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.log.storage.file_names import CLEANED, SWAP
from kafkalite.log.storage.files import Files, is_full
from kafkalite.record.batch import BatchHeader
from kafkalite.record.message_set import first_offset

logger = logging.getLogger(__name__)

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
        if self._has_unknown_counts or size_bytes != self._added_bytes:
            self._segment.tally.forget(size_bytes)
        self._segment.end_rebuild(size_bytes)


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


class Part(NamedTuple):
    """The batches between two positions of a segment, and the base offset of the segment that they become."""

    base_offset: int
    start: int
    end: int


def find_parts(segment: Segment, limit_offset: int) -> list[Part]:
    """The parts of a segment that overflows; none of one that does not. Nor where the first far offset is implausible:
    it is at or past `limit_offset`, where the next segment begins, or batches behind it continue from before it.

    The last part has everything behind the last batch that ascends. Raises OSError.
    """
    starts = [(segment.base_offset, 0)]
    latest = before_far = segment.base_offset - 1
    try:
        for position, header in iter_headers(segment.open_file().fd, 0, segment.size_bytes):
            last_offset = header.last_offset
            if last_offset <= latest or last_offset >= limit_offset:
                if before_far < last_offset <= segment.base_offset + RELATIVE_OFFSET_MAX or len(starts) == 1:
                    return []
                break
            if last_offset - starts[-1][0] > RELATIVE_OFFSET_MAX:
                base_offset = header.first_offset
                if base_offset is None:
                    nearest = max(latest + 1, last_offset - RELATIVE_OFFSET_MAX)
                    base_offset = _first_offset(segment, position, header.size_bytes, nearest)
                if base_offset <= latest:
                    break
                starts.append((base_offset, position))
            elif len(starts) == 1:
                before_far = last_offset
            latest = last_offset
    except Malformed:
        pass
    if len(starts) == 1:
        return []
    ends = [*(position for _, position in starts[1:]), segment.size_bytes]
    return [Part(base, start, end) for (base, start), end in zip(starts, ends, strict=True)]


def _first_offset(segment: Segment, position: int, size: int, nearest: int) -> int:
    """The first offset in a wrapper of format v0 or v1; `nearest` where it cannot be read."""
    ((_, _, wrapper),) = segment.iter_batches(position, position + size)
    try:
        return first_offset(wrapper)
    except Malformed:
        return nearest


def split(
    segment: Segment, parts: Sequence[Part], config: TopicConfig, now_ms: int, files: Files
) -> list[Segment] | None:
    """Puts a segment for each of `parts` in the place of `segment`, and fsyncs them. None if the disk has no room for
    them: the segment stays as it is, and is served without index entries. Raises OSError."""
    logger.warning(
        "%s has offsets more than %d apart; splitting it at %s",
        segment.path, RELATIVE_OFFSET_MAX, ", ".join(str(part.base_offset) for part in parts[1:]),
    )  # fmt: skip
    made: list[Segment] = []
    try:
        for part in parts:
            size_bytes = part.end - part.start
            made.append(Segment(segment.directory, part.base_offset, size_bytes, config, now_ms, files, suffix=CLEANED))
            _write(made[-1], segment, part, files)
        files.sync(segment.directory)
    except OSError as error:
        for one in reversed(made):
            one.abandon()
            one.files.delete()
        if not is_full(error):
            raise
        logger.warning("%s stays as it is: %s", segment.path, error.strerror)
        return None
    for one in reversed(made):
        one.files.rename(CLEANED, SWAP, log_last=True)
    files.sync(segment.directory)
    segment.abandon()
    segment.files.delete()
    files.sync(segment.directory)
    for one in made:
        one.files.rename(SWAP, "")
    files.sync(segment.directory)
    return made


def _write(new: Segment, source: Segment, part: Part, files: Files) -> None:
    files.write_range(new.path, source.path, part.start, part.end)
    rebuild = SegmentRebuild(new)
    last_offset = part.base_offset - 1
    try:
        for position, header, _ in source.iter_batches(part.start, part.end):
            rebuild.add(position - part.start, header)
            last_offset = header.last_offset
    except Malformed:
        pass  # after a clean stop: it is served as it is
    rebuild.finish(part.end - part.start)
    new.txn_index.size_bytes = 0
    for txn in source.txn_index.all():
        if part.base_offset <= txn.last_offset <= last_offset:
            new.txn_index.append(txn)
    files.set_modified(new.path, os.stat(source.path).st_mtime_ns)
    files.sync_all(new.files.paths())
