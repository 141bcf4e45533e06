"""Look-up of offsets by timestamp for ListOffsets: the first record at or after a time, and the latest record.

Segments are skipped by their largest timestamps. The time index gives the position to start from, batch headers are
scanned from there, and only a batch that may hold the record is decompressed. If the records of that time were deleted,
the scan reads the remainder of a segment. So selecting the segment (by the log's owner) and reading it (by any thread)
are separate steps.
Source: kafka.log.UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafkalite.common.errors import KafkaError, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import OpenFile
from kafkalite.log.segment.segment import Segment
from kafkalite.log.segment.segment_file import iter_batches
from kafkalite.record.batch import BatchHeader
from kafkalite.record.batches import batch_times

# limits on decompressing one batch: a quarter of a second at worst, far above the batches of producers
_LOOKUP_BYTES_MAX = 16 << 20
_LOOKUP_RECORDS_MAX = 250_000


class TimestampOffset(NamedTuple):
    """One record: its timestamp, its offset, and the epoch of the leader that wrote it (-1: unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


_Search = Iterator[TimestampOffset | None]
"""Search of one segment: yields None for each skipped batch, then the record, if any. Raises OSError, Malformed."""


class TimeLookup:
    """One look-up in one log, done step by step:

        while lookup.begin():
            lookup.read()
        lookup.found

    `begin` is called by the log's owner. `read` only reads files and may run in a thread; `give_up` makes it end after
    the current batch. `found` is None if no record matches.
    """

    __slots__ = ("_fault", "_is_over", "_limit_offset", "_refusal", "_search", "_searches", "found")

    def __init__(
        self, searches: Iterator[_Search], limit_offset: int, refusal: Callable[[OSError | Malformed], KafkaError]
    ) -> None:
        """Records at or past `limit_offset` are not found. `refusal` makes the error for a log that cannot be read."""
        self.found: TimestampOffset | None = None
        self._searches = searches
        self._search: _Search = iter(())
        self._limit_offset = limit_offset
        self._refusal = refusal
        self._fault: OSError | Malformed | None = None
        self._is_over = False

    def begin(self) -> bool:
        """Whether something has to be read. Raises KafkaError."""
        search = None
        if self._fault is None and not self._is_over:
            try:
                search = next(self._searches, None)
            except (OSError, Malformed) as error:
                self._fault = error
        if self._fault is not None:
            raise self._refusal(self._fault) from self._fault
        if search is None:
            return False
        self._search = search
        return True

    def read(self) -> None:
        if self._is_over:
            return
        try:
            for found in self._search:
                if found is not None:
                    self.found = found if found.offset < self._limit_offset else None
                    self._is_over = True
                if self._is_over:
                    break
        except (OSError, Malformed) as error:
            self._fault = error
        self._search = iter(())  # the finished search would keep a file open

    def answer(self) -> TimestampOffset | None:
        """Does all steps in the caller's thread and returns the record, if any. Raises KafkaError."""
        while self.begin():
            self.read()
        return self.found

    def give_up(self) -> None:
        """Abandons the look-up: the requester is gone."""
        self._is_over = True


def first_at_or_after(segments: Sequence[Segment], timestamp_ms: int, start_offset: int) -> Iterator[_Search]:
    """Searches for the first record at or past `start_offset` with at least `timestamp_ms`. Raises OSError."""
    for segment in segments:
        if segment.largest_timestamp_ms() < timestamp_ms:
            continue
        # nothing before this position is as late as `timestamp_ms` and at or past `start_offset`
        before = segment.time_index.offset_before(timestamp_ms)
        position = segment.position_before(max(before, start_offset))
        # its records of that time may lie below the start offset; then the search continues in the next segment
        yield _first_from(segment.open_file(), position, segment.size_bytes, timestamp_ms, start_offset)


def latest(segments: Sequence[Segment], start_offset: int) -> Iterator[_Search]:
    """Searches for the first record with the largest timestamp of the log, if it was not deleted. Raises OSError."""
    segment = max(segments, key=lambda s: s.latest()[0])  # the first segment of equal ones
    timestamp_ms, offset = segment.latest()
    found = segment.find(offset) if timestamp_ms >= 0 else None
    if found is not None:
        yield _first_of(segment.open_file(), found[0], segment.size_bytes, timestamp_ms, start_offset)


def _first_from(file: OpenFile, position: int, end: int, timestamp_ms: int, start_offset: int) -> _Search:
    for _, header, batch in iter_batches(file.fd, position, end):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            for offset, record_ms in _times(header, batch, start_offset):
                if record_ms >= timestamp_ms and offset >= start_offset:
                    yield TimestampOffset(record_ms, offset, header.leader_epoch)
        yield None


def _first_of(file: OpenFile, position: int, end: int, timestamp_ms: int, start_offset: int) -> _Search:
    """Searches only the first batch whose max timestamp equals `timestamp_ms`."""
    for _, header, batch in iter_batches(file.fd, position, end):
        if header.max_timestamp == timestamp_ms:
            for offset, record_ms in _times(header, batch, start_offset):
                if record_ms == timestamp_ms and offset >= start_offset:
                    yield TimestampOffset(timestamp_ms, offset, header.leader_epoch)
            return
        yield None


def _times(header: BatchHeader, batch: memoryview, start_offset: int) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of a batch's records, within the decompression limits.

    The header stands in for the remaining records, or for a batch that cannot be decompressed: its max timestamp at its
    first offset. A consumer that starts there misses no record.
    """
    if header.record_count <= _LOOKUP_RECORDS_MAX:
        try:
            yield from batch_times(batch, _LOOKUP_BYTES_MAX)
            return
        except Malformed:
            pass
    yield max(header.base_offset, start_offset), header.max_timestamp
