"""Which record was the first at or after a time, and which is the latest of all: for ListOffsets.

Segments are passed over by their largest timestamps, then the time index says where to begin, and from there batches
are walked and the one that may have it is looked into, record by record.
Source: kafka.log.UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalite.errors import Malformed
from kafkalite.log.batch import MAGIC, BatchHeader
from kafkalite.log.message_set import message_times
from kafkalite.log.record import record_times
from kafkalite.log.segment import Segment

# what looking for a time may unpack: a quarter of a second of the loop at worst, far above what producers send
_LOOKUP_BYTES_MAX = 16 << 20
_LOOKUP_RECORDS_MAX = 250_000


class TimestampOffset(NamedTuple):
    """One record: its timestamp, its offset, and the epoch of the leader that wrote it (-1: unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int, limit_offset: int
) -> TimestampOffset | None:
    """The first record in [start_offset, limit_offset) that is not before `timestamp_ms`. Raises OSError, Malformed."""
    for segment in segments:
        if segment.largest_timestamp_ms() < timestamp_ms:
            continue
        position = segment.position_before(timestamp_ms, start_offset)
        for _, header, batch in segment.walk(position):
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for offset, record_ms in _times(header, batch, start_offset):
                if record_ms >= timestamp_ms and offset >= start_offset:
                    if offset >= limit_offset:
                        return None
                    return TimestampOffset(record_ms, offset, header.leader_epoch)
        # what it has of that time was deleted with the records before the start: a later one has the first that is left
    return None


def latest(segments: Sequence[Segment], start_offset: int, limit_offset: int) -> TimestampOffset | None:
    """The first record that carries the latest timestamp of all, if it lies in the range. Raises OSError, Malformed."""
    segment = max(segments, key=lambda s: s.latest()[0])  # the first of equals
    timestamp_ms, offset = segment.latest()
    found = segment.find(offset) if timestamp_ms >= 0 else None
    if found is None:
        return None
    for _, header, batch in segment.walk(found[0]):
        if header.max_timestamp == timestamp_ms:
            for offset, record_ms in _times(header, batch, start_offset):
                if record_ms == timestamp_ms and start_offset <= offset < limit_offset:
                    return TimestampOffset(timestamp_ms, offset, header.leader_epoch)
            return None
    return None


def _times(header: BatchHeader, batch: memoryview, start_offset: int) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of a batch's records, as far as they can be had at a bearable price.

    What is left is told by the header: its latest timestamp, at its first offset. So nobody who reads from there
    misses a record, and a batch that nobody can unpack is in nobody's way.
    """
    if header.record_count <= _LOOKUP_RECORDS_MAX:
        try:
            times = record_times if header.magic == MAGIC else message_times
            yield from times(batch, _LOOKUP_BYTES_MAX)
            return
        except Malformed:
            pass
    yield max(header.base_offset, start_offset), header.max_timestamp
