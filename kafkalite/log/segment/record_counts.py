"""Exact number of records in a log, maintained without reading the log again.

    live records      data records at or past the log's start offset, including those of aborted transactions
    control records   records of control batches at or past it: the markers of transactions

An append adds the record count of its batch header. The counts of segments from before the start are read from a file
(`record_count_file.py`), or counted from the batch headers in the background at the first request (`record_counting`).
Until then the count of such a segment is None, never a wrong number.
Source: none in Apache Kafka, which knows sizes and offsets only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.segment.record_count_file import Identity, add_entries, encode_entry, identity_of, read_noted
from kafkalite.log.segment.record_counting import Stopped, Tally, count
from kafkalite.log.storage.files import Background, Files

if TYPE_CHECKING:
    from kafkalite.log.segment.segment import Segment

logger = logging.getLogger(__name__)

_Found = TypeVar("_Found")

_JOB_BYTES = 1 << 30  # counted in one job, but at least one segment; then other logs get their turn


class SegmentCounts(NamedTuple):
    """Counts of one segment. `live_records` and `control_records` are None while unknown; `size_bytes` is the size of
    the .log file."""

    base_offset: int
    size_bytes: int
    live_records: int | None
    control_records: int | None


class LogCounts(NamedTuple):
    """Counts of all segments. `is_counting`: a background job is finding the unknown counts. A count that is None
    without such a job cannot be found: the log is damaged."""

    segments: tuple[SegmentCounts, ...]
    is_counting: bool

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def live_records(self) -> int | None:
        return _sum(segment.live_records for segment in self.segments)

    @property
    def control_records(self) -> int | None:
        return _sum(segment.control_records for segment in self.segments)


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for one in counts:
        if one is None:
            return None
        total += one
    return total


LogContent = Callable[[], tuple[Sequence["Segment"], int, int]]
"""The segments, the start offset and the end offset of the log as they are now."""


class RecordCounts:
    """Record counts of one log; called by the log's owner. Known counts are kept in `Segment.tally`; this class starts
    the background jobs that find the unknown ones.

    `_below` is the count of records below the log's start offset in the segment that contains it, with that start
    offset and segment. `_round` increases when the log is truncated, which invalidates jobs in flight.
    """

    __slots__ = (
        "_background", "_below", "_content", "_directory", "_files", "_has_looked_up", "_is_closed", "_is_under_way",
        "_lost", "_round", "counted_to",
    )  # fmt: skip

    def __init__(
        self, directory: str, files: Files, background: Background, end_offset: int, content: LogContent
    ) -> None:
        self.counted_to = end_offset
        self._directory = directory
        self._files = files
        self._background = background
        self._content = content
        self._below: tuple[int, Segment, Tally] | None = None
        self._lost: set[int] = set()  # base offsets of segments that cannot be counted
        self._round = 0
        self._is_under_way = False
        self._has_looked_up = False
        self._is_closed = False

    def current(self) -> LogCounts:
        """The records and bytes of each segment. A count that must first be read from the file is None, and a
        background job finds it."""
        segments, start_offset, end_offset = self._content()
        self.count_appended(segments[-1], end_offset)
        self._start_counting(segments, start_offset, end_offset)
        found = []
        for at, segment in enumerate(segments):
            tally = self._live(segment, _end_of(segments, at, end_offset), start_offset)
            found.append(SegmentCounts(segment.base_offset, segment.size_bytes, *(tally or (None, None))))
        return LogCounts(tuple(found), self._is_under_way)

    def known(self) -> Tally | None:
        """The records of the whole log, or None while the count of a segment is unknown.

        Reads no batch headers: the first call starts a background job that reads the counts in the file, once.
        """
        segments, start_offset, end_offset = self._content()
        self.count_appended(segments[-1], end_offset)
        if not self._has_looked_up:
            self._has_looked_up = True
            self._start_counting(segments, start_offset, end_offset, only_noted=True)
        records = control_records = 0
        for at, segment in enumerate(segments):
            tally = self._live(segment, _end_of(segments, at, end_offset), start_offset)
            if tally is None:
                return None
            records += tally.records
            control_records += tally.control_records
        return Tally(records, control_records)

    def _live(self, segment: Segment, end_offset: int, start_offset: int) -> Tally | None:
        if end_offset <= start_offset:
            return Tally(0, 0)
        if segment.tally.uncounted_bytes:
            return None
        records, control_records = segment.tally.counted
        if segment.base_offset < start_offset:
            below = self._below
            if below is None or below[0] != start_offset or below[1] is not segment:
                return None
            return Tally(records - below[2].records, control_records - below[2].control_records)
        return Tally(records, control_records)

    def count_appended(self, active: Segment, end_offset: int) -> None:
        """Adds the records appended since the last call to the count of the active segment. Every offset appended is
        one record, so an append need not count (0.05 us instead of 0.2). Exceptions are control batches and batches
        with offset gaps, for which the append corrects the count."""
        active.tally.record_count += end_offset - self.counted_to
        self.counted_to = end_offset

    def cut(self) -> None:
        """The log was truncated: the results of jobs in flight are discarded."""
        self._round += 1
        self._below = None
        self._lost.clear()

    def replaced(self, segments: Iterable[Segment]) -> None:
        """Compaction has replaced these segments by another one."""
        self._lost.difference_update(segment.base_offset for segment in segments)

    def close(self) -> None:
        self._is_closed = True

    # unknown counts

    def _start_counting(
        self, segments: Sequence[Segment], start_offset: int, end_offset: int, *, only_noted: bool = False
    ) -> None:
        if self._is_under_way or self._is_closed:
            return
        unknown = []
        straddling = None
        for at, segment in enumerate(segments):
            if segment.base_offset in self._lost or _end_of(segments, at, end_offset) <= start_offset:
                continue
            if segment.tally.uncounted_bytes:
                unknown.append(segment)
            if segment.base_offset < start_offset and not only_noted:
                below = self._below
                if below is None or below[0] != start_offset or below[1] is not segment:
                    straddling = segment
        if not unknown and straddling is None:
            return
        job = _CountingJob(self._files, self._directory, unknown, straddling, start_offset, self._check, only_noted)
        round_ = self._round

        def counted(error: Exception | None) -> None:
            self._is_under_way = False
            if self._is_closed:
                return
            if error is not None:
                logger.warning("cannot count the records in %s: %s", self._directory, error)
                self._lost.update(segment.base_offset for segment in unknown)
            elif round_ == self._round:
                self._add_counted(job, segments)

        self._is_under_way = True
        self._background(job, counted)

    def _check(self) -> None:
        """On another thread. Raises Stopped."""
        if self._is_closed:
            raise Stopped

    def _add_counted(self, job: _CountingJob, segments: Sequence[Segment]) -> None:
        for segment, upto_bytes, tally, was_noted in job.found:
            if _is_in_place(segment) and segment.tally.uncounted_bytes == upto_bytes:  # not counted meanwhile
                segment.tally.add_counted(tally.records + tally.control_records, tally.control_records)
                segment.tally.is_noted = was_noted and segment is not segments[-1]
        if job.straddling is not None and job.below is not None:
            self._below = job.start_offset, job.straddling, job.below
        self._lost.update(job.lost)
        self.note(segments)

    # noting

    def note(self, segments: Sequence[Segment], *, all_are_sealed: bool = False) -> None:
        """Writes the counts of sealed segments that are not in the file yet. `segments` are all of the log's.

        A failure is harmless: the segments are counted again.
        """
        entries = []
        sealed = segments if all_are_sealed else segments[:-1]
        for segment in sealed:
            if segment.tally.is_noted or not segment.size_bytes or not _is_in_place(segment):
                continue
            if segment.tally.uncounted_bytes and segment.tally.identity is not None:
                self._read_noted(segment)
            if segment.tally.uncounted_bytes:
                continue
            try:
                identity = identity_of(os.stat(segment.path))
            except OSError:
                continue  # it was removed
            if identity.size_bytes == segment.size_bytes:
                entries.append(encode_entry(segment.base_offset, identity, segment.tally.counted))
                segment.tally.is_noted = True
        if not entries:
            return
        try:
            add_entries(self._files, self._directory, b"".join(entries), {segment.base_offset for segment in segments})
        except OSError as error:
            logger.warning("cannot note the record counts in %s: %s", self._directory, error)

    def _read_noted(self, segment: Segment) -> None:
        """Reads from the file the count of the records that the segment had at the start."""
        noted = read_noted(self._files, self._directory).get(segment.base_offset)
        if noted is not None and noted[0] == segment.tally.identity:
            segment.tally.add_counted(noted[1].records + noted[1].control_records, noted[1].control_records)
        segment.tally.identity = None


class _CountingJob:
    """A background job that finds the unknown counts of some segments. It reads only paths and numbers, not segments.

    `found` has (segment, number of bytes counted, counts, whether they came from the file); `below` is the count of
    records below `start_offset` in the segment `straddling`; `lost` are the base offsets of segments that cannot be
    counted. With `only_noted` only the counts in the file are read.
    """

    def __init__(
        self, files: Files, directory: str, unknown: Iterable[Segment], straddling: Segment | None, start_offset: int,
        check: Callable[[], None], only_noted: bool,
    ) -> None:  # fmt: skip
        self.start_offset = start_offset
        self.straddling = straddling
        self.found: list[tuple[Segment, int, Tally, bool]] = []
        self.below: Tally | None = None
        self.lost: list[int] = []
        self._files = files
        self._directory = directory
        self._unknown = [
            (segment, segment.path, segment.tally.uncounted_bytes, segment.tally.identity) for segment in unknown
        ]
        self._straddling = None if straddling is None else (straddling.path, straddling.size_bytes)
        self._check = check
        self._only_noted = only_noted

    def __call__(self) -> None:
        noted = read_noted(self._files, self._directory) if self._unknown else {}
        left_bytes = _JOB_BYTES
        for segment, path, upto_bytes, identity in self._unknown:
            if left_bytes <= 0:
                break
            find = partial(self._find, segment, upto_bytes, identity, noted.get(segment.base_offset))
            left_bytes -= self._read(segment.base_offset, path, find) or 0
        if self._straddling is not None and self.straddling is not None:
            path, size_bytes = self._straddling
            below = partial(count, position=0, end=size_bytes, limit_offset=self.start_offset, check=self._check)
            self.below = self._read(self.straddling.base_offset, path, below)

    def _find(
        self,
        segment: Segment,
        upto_bytes: int,
        identity: Identity | None,
        known: tuple[Identity, Tally] | None,
        fd: int,
    ) -> int:
        """Finds the counts of one segment; returns how many bytes were read for it."""
        # of a file that was appended to since, the identity is the one that it had with that size
        found = identity_of(os.fstat(fd)) if identity is None else identity
        if known is not None and known[0] == found and found.size_bytes == upto_bytes:
            self.found.append((segment, upto_bytes, known[1], True))
        elif not self._only_noted:
            self.found.append((segment, upto_bytes, count(fd, 0, upto_bytes, check=self._check), False))
            return upto_bytes
        return 0

    def _read(self, base_offset: int, path: str, read: Callable[[int], _Found]) -> _Found | None:
        """`read` of the open file of a segment, None after an error. It is logged, unless the segment was removed
        meanwhile."""
        try:
            fd = self._files.open(path, os.O_RDONLY)
            try:
                return read(fd)
            finally:
                self._files.close(fd)
        except FileNotFoundError:
            pass
        except (Malformed, OSError) as error:
            logger.warning("cannot count the records in %s: %s", path, error)
            if isinstance(error, Malformed):
                self.lost.append(base_offset)
        return None


def _is_in_place(segment: Segment) -> bool:
    """Neither closed nor being replaced."""
    return not segment.is_closed and segment.files.is_in_place


def _end_of(segments: Sequence[Segment], at: int, end_offset: int) -> int:
    """The end offset of the segment at index `at`: the next segment's base offset, or the log's end offset."""
    return segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
