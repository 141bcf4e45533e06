"""Writes the files of a cleaned segment: `<base>.log.cleaned` with its indexes.

The retained records of a group of segments go to one file. It goes to a further one where a codec compresses less than
the producers' did, so that the first would have more than 2^31-1 bytes (KAFKA-20036), or where an offset is too far
from the first for an index.

The indexes get entries by the same rule as when each batch is appended by itself. They are written when the segment is
complete, and all files are fsynced before the segment is announced. The modification time is that of the youngest
source: retention and the tombstones of old formats depend on it.
Source: kafka.log.UnifiedLog.createNewCleanedSegment, org.apache.kafka.storage.internals.log.LogSegment.append.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from kafkalite.cleaner.job.job import CleaningFailed, CleanJob
from kafkalite.config.settings import INT_MAX
from kafkalite.log.index.transaction_index import AbortedTxn, encode_entry
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.storage.file_names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    TIME_INDEX,
    TXN_INDEX,
    segment_stem,
)
from kafkalite.log.storage.files import Files
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.compression import Buffer

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


class CleanedSegmentWriter:
    """`record_count` and `control_record_count` are counted by the caller. `remove` removes all files, at any time."""

    def __init__(self, files: Files, job: CleanJob, base_offset: int) -> None:
        """Removes files that an earlier cleaning left. Raises OSError; then no file is left."""
        self._files = files
        self._job = job
        self._written = [_SegmentFiles(files, job, base_offset)]
        self._aborted: list[AbortedTxn] = []
        self.record_count = 0
        self.control_record_count = 0

    def append(self, data: Buffer, size: Array, last_offset: Array, max_timestamp_ms: Array) -> None:
        """Append the batches in `data`, one row each. Raises CleaningFailed, OSError."""
        view, ends = memoryview(data), np.cumsum(size)
        row = start = 0
        while row < len(size):
            current = self._written[-1]
            upto = row + current.count_fitting(size[row:], last_offset[row:])
            if upto == row:
                # any base offset between the batch before and the first record will do
                base_offset = max(current.last_offset + 1, int(last_offset[row]) - INT_MAX)
                self._written.append(_SegmentFiles(self._files, self._job, base_offset))
                continue
            end = int(ends[upto - 1])
            current.append(view[start:end], size[row:upto], last_offset[row:upto], max_timestamp_ms[row:upto])
            row, start = upto, end

    def add_aborted(self, txn: AbortedTxn) -> None:
        """Its marker is retained, and follows the other markers. Raises CleaningFailed."""
        if self._aborted and txn.last_offset <= self._aborted[-1].last_offset:
            where = f"{self._job.directory}/{segment_stem(self._written[0].base_offset)}"
            raise CleaningFailed(f"{where}{TXN_INDEX} has two transactions with a marker at {txn.last_offset}")
        self._aborted.append(txn)

    def finish(self, sources: Sequence[SourceSegment]) -> CleanedSegment:
        """Write the indexes and fsync all files. Raises OSError."""
        counts = (self.record_count, self.control_record_count) if len(self._written) == 1 else (-1, -1)
        segments: list[CleanedSegment] = []
        aborted = self._aborted
        for files, behind in zip(self._written, [*self._written[1:], None], strict=True):
            here = [txn for txn in aborted if behind is None or txn.last_offset < behind.base_offset]
            aborted = aborted[len(here) :]
            segments.append(files.finish(sources, here, counts))
        return segments[0]._replace(further=tuple(segments[1:]))

    def remove(self) -> None:
        """Raises OSError."""
        for files in self._written:
            files.remove()


class _SegmentFiles:
    """The files of one segment. `size_bytes` were written, up to `last_offset`."""

    def __init__(self, files: Files, job: CleanJob, base_offset: int) -> None:
        """As `CleanedSegmentWriter`."""
        self._files = files
        self._stem = f"{job.directory}/{segment_stem(base_offset)}"
        self._interval_bytes = job.index_interval_bytes
        self._bytes_max = job.segment_bytes_max
        self._offset_entries_max = job.segment_index_bytes // _OFFSET_ENTRY.itemsize
        self._time_entries_max = job.segment_index_bytes // _TIME_ENTRY.itemsize - 1  # one slot is kept for the last
        self.base_offset = base_offset
        self.size_bytes = 0
        self.last_offset = base_offset - 1
        self._max_timestamp_ms = -1
        self._max_timestamp_offset = base_offset
        self._indexed_bytes = 0  # the position of the batch of the last index entry
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []
        self._fd = -1
        self.remove()
        self._fd = files.open(self._path(LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def count_fitting(self, size: Array, last_offset: Array) -> int:
        """How many of these batches may be appended. A segment has at least one, however large."""
        by_size = int(np.searchsorted(np.cumsum(size), self._bytes_max - self.size_bytes, side="right"))
        by_offset = int(np.searchsorted(last_offset, self.base_offset + INT_MAX, side="right"))
        return min(max(by_size, 0 if self.size_bytes else 1), by_offset)

    def append(self, data: Buffer, size: Array, last_offset: Array, max_timestamp_ms: Array) -> None:
        """As `CleanedSegmentWriter`; the batches fit."""
        position = self.size_bytes + np.cumsum(size) - size
        if last_offset[0] <= self.last_offset or (np.diff(last_offset) <= 0).any():
            raise CleaningFailed(f"the offsets of the batches that go to {self._path(LOG)} do not ascend")
        self._files.write_fully(self._fd, data, self.size_bytes)
        # the largest timestamp up to each batch, and the first batch that has it
        largest = np.maximum.accumulate(np.maximum(max_timestamp_ms, self._max_timestamp_ms))
        before = np.append(self._max_timestamp_ms, largest[:-1])
        rises = np.maximum.accumulate(np.where(largest > before, np.arange(len(largest)), -1))
        at_offset = np.where(rises >= 0, last_offset[rises], self._max_timestamp_offset)
        self._add_entries(position, last_offset, largest, at_offset)
        self._max_timestamp_ms, self._max_timestamp_offset = int(largest[-1]), int(at_offset[-1])
        self.last_offset = int(last_offset[-1])
        self.size_bytes += len(data)

    def finish(
        self, sources: Sequence[SourceSegment], aborted: Sequence[AbortedTxn], record_counts: tuple[int, int]
    ) -> CleanedSegment:
        """As `CleanedSegmentWriter`; the markers of `aborted` are in here."""
        files = self._files
        if self._max_timestamp_ms > self._indexed_timestamp_ms:
            self._times.append((self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset))
        files.write_new(self._path(OFFSET_INDEX), np.array(self._offsets, _OFFSET_ENTRY).tobytes())
        files.write_new(self._path(TIME_INDEX), np.array(self._times, _TIME_ENTRY).tobytes())
        if aborted:
            files.write_new(self._path(TXN_INDEX), b"".join(map(encode_entry, aborted)))
        files.set_modified(self._path(LOG), sources[-1].modified_ns)
        files.sync_open(self._fd, self._path(LOG))
        self._close()
        files.sync_all(self._path(suffix) for suffix in SEGMENT_FILES if suffix != LOG)
        return CleanedSegment(
            self.base_offset,
            tuple(source.base_offset for source in sources),
            self.size_bytes,
            *record_counts,
            self._max_timestamp_ms,
            self._max_timestamp_offset,
        )

    def remove(self) -> None:
        """Raises OSError."""
        self._close()
        for suffix in SEGMENT_FILES:
            self._files.unlink_if_exists(self._path(suffix))

    @property
    def _indexed_timestamp_ms(self) -> int:
        return self._times[-1][0] if self._times else -1

    def _add_entries(self, position: Array, last_offset: Array, largest: Array, at_offset: Array) -> None:
        positions = position.tolist()
        at = bisect_right(positions, self._indexed_bytes + self._interval_bytes)
        while at < len(positions):
            if len(self._offsets) >= self._offset_entries_max or len(self._times) >= self._time_entries_max:
                return
            self._offsets.append((int(last_offset[at]) - self.base_offset, positions[at]))
            if largest[at] > self._indexed_timestamp_ms:
                self._times.append((int(largest[at]), int(at_offset[at]) - self.base_offset))
            self._indexed_bytes = positions[at]
            at = bisect_right(positions, self._indexed_bytes + self._interval_bytes)

    def _path(self, suffix: str) -> str:
        return f"{self._stem}{suffix}{CLEANED}"

    def _close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1
