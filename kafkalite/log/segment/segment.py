"""A segment: one file of batches with its indexes, all named by the first offset.

    <base>.log        batches back to back        <base>.timeindex  timestamp -> offset, sparse
    <base>.index      offset -> position, sparse  <base>.txnindex   aborted transactions, only if there are any

The active segment grows: an append is one pwrite at `size_bytes`, which moves only when every byte was written, so
memory follows the disk. A sealed segment never changes. Files are opened on demand and closed when other segments need
the descriptors (`DescriptorCache`). The positions of the latest appends are kept in memory, so look-ups at the end, the
most frequent ones, touch neither index nor file.
Source: org.apache.kafka.storage.internals.log.LogSegment, org.apache.kafka.common.record.FileRecords.
"""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kafkalite.common.errors import Malformed
from kafkalite.common.region import OpenFile
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.sparse_index import OffsetIndex, TimeIndex
from kafkalite.log.index.transaction_index import TransactionIndex
from kafkalite.log.segment import segment_file
from kafkalite.log.segment.record_count_file import SegmentTally
from kafkalite.log.segment.segment_files import SegmentFiles, SegmentTimes
from kafkalite.log.storage.file_names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_stem
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import PREFIX_BYTES, BatchHeader

logger = logging.getLogger(__name__)

NEVER = (1 << 63) - 1
RELATIVE_OFFSET_MAX = (1 << 31) - 1

_TAIL_MAX = 256  # appends remembered; half of them are dropped at a time


class Segment:
    """Fields: `fd` is the .log file open for appending, else -1. `max_timestamp_ms` is the largest in the segment and
    `max_timestamp_offset` the last offset of the first batch that has it; -2 and -1 until they are known.
    `roll_timestamp_ms`, `roll_wall_ms`, `roll_offset`: a batch with a larger timestamp, at a later wall-clock time or
    with a higher last offset begins a new segment. `roll_offset` is -1 when an index is full. `is_touched`: the segment
    was opened for appending since it was last sealed. `is_closed`: it is abandoned for good.

    Invariant: the first `size_bytes` of the file are whole batches, except for a torn end before recovery.
    """

    __slots__ = (
        "_files", "_first_timestamp_ms", "_indexed_timestamp_ms", "_jitter_ms", "_pwrite", "_roll_age_ms",
        "_tail_ends", "_tail_positions", "_unindexed_bytes", "base_offset", "created_ms", "directory", "fd", "file",
        "index_interval_bytes", "is_closed", "is_touched", "max_timestamp_ms", "max_timestamp_offset", "offset_index",
        "path", "roll_offset", "roll_timestamp_ms", "roll_wall_ms", "size_bytes", "tail_from", "tally", "time_index",
        "txn_index", "used",
    )  # fmt: skip

    def __init__(
        self, directory: str, base_offset: int, size_bytes: int, config: TopicConfig, now_ms: int,
        files: Files, jitter_ms: int = 0, suffix: str = "",
    ) -> None:  # fmt: skip
        """`suffix`, such as ".swap", is appended to the names of the files until they are renamed."""
        stem = f"{directory}/{segment_stem(base_offset)}"
        self.directory = directory
        self.path = stem + LOG + suffix
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.tally = SegmentTally(size_bytes)
        self.created_ms = now_ms
        self.offset_index = OffsetIndex(stem + OFFSET_INDEX + suffix, base_offset, config.segment_index_bytes, files)
        self.time_index = TimeIndex(stem + TIME_INDEX + suffix, base_offset, config.segment_index_bytes, files)
        self.txn_index = TransactionIndex(stem + TXN_INDEX + suffix, base_offset, files)
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_offset = base_offset + RELATIVE_OFFSET_MAX
        self.max_timestamp_ms = -2
        self.max_timestamp_offset = -1
        self.file: OpenFile | None = None
        self.fd = -1
        self.used = False
        self.roll_timestamp_ms = NEVER
        self.roll_wall_ms = NEVER
        self._roll_age_ms = NEVER
        self._jitter_ms = jitter_ms
        self._first_timestamp_ms = -2
        self._indexed_timestamp_ms = -1
        self._unindexed_bytes = 0
        self._tail_ends: list[int] = []  # last offsets of the latest appends, and the positions of their batches
        self._tail_positions: list[int] = []
        self.tail_from = NEVER  # the tail has the offsets from here on
        self._files = files
        self._pwrite = files.pwrite
        self.is_touched = False
        self.is_closed = False

    def make_files(self, config: TopicConfig) -> None:
        """Creates empty files. Raises OSError; then no file is left."""
        self.is_touched = config.preallocate
        self.files.create(config.segment_bytes if config.preallocate else 0)
        self.offset_index.entries = self.time_index.entries = 0
        self.max_timestamp_ms = self._first_timestamp_ms = -1
        self.max_timestamp_offset = self.base_offset

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, size_bytes={self.size_bytes})"

    # growing

    def append(
        self, records: memoryview, size: int, base_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> None:
        """Writes `size` bytes, one stamped batch; the segment must be open for appending (`fd` >= 0). Raises OSError;
        then the segment is unchanged."""
        position = self.size_bytes
        try:
            written = self._pwrite(self.fd, records, position)
        except OSError:
            self._cut_back()
            raise
        if written != size:
            self._cut_back()
            raise OSError(errno.ENOSPC, f"{written} of {size} bytes were written")
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        unindexed = self._unindexed_bytes
        if unindexed > self.index_interval_bytes and self._add_entries(last_offset, position):
            unindexed = 0
        self._unindexed_bytes = unindexed + size
        ends = self._tail_ends
        if not ends:
            self.tail_from = base_offset
        elif len(ends) == _TAIL_MAX:
            self.tail_from = ends[_TAIL_MAX // 2 - 1] + 1
            del ends[: _TAIL_MAX // 2], self._tail_positions[: _TAIL_MAX // 2]
        ends.append(last_offset)
        self._tail_positions.append(position)
        self.size_bytes = position + size
        if not position:
            self._first_timestamp_ms = max_timestamp_ms
            self.created_ms = now_ms
            self.set_roll_age(self._roll_age_ms)

    def append_run(self, records: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """As `append`, for several batches with one write; the indexes have room for them. Raises OSError."""
        start = position = self.size_bytes
        try:
            written = self._pwrite(self.fd, records, position)
            if written != len(records):
                raise OSError(errno.ENOSPC, f"{written} of {len(records)} bytes were written")
        except OSError:
            self._cut_back()
            raise
        ends, positions = self._tail_ends, self._tail_positions
        if not ends:
            self.tail_from = headers[0][0]
        for header in headers:
            self.index_batch(position, header)
            ends.append(header[0] + header[6])
            positions.append(position)
            position += header[1] + PREFIX_BYTES
        if len(ends) > _TAIL_MAX:
            forgotten = len(ends) - _TAIL_MAX // 2
            self.tail_from = ends[forgotten - 1] + 1
            del ends[:forgotten], positions[:forgotten]
        self.size_bytes = position
        if not start:
            self._first_timestamp_ms = headers[0].max_timestamp
            self.created_ms = now_ms
            self.set_roll_age(self._roll_age_ms)

    def _add_entries(self, last_offset: int, position: int) -> bool:
        if self.roll_offset < 0:
            return False
        try:
            timestamp_ms = self.max_timestamp_ms
            if timestamp_ms > self._indexed_timestamp_ms:
                self.time_index.append(timestamp_ms, self.max_timestamp_offset)
                self._indexed_timestamp_ms = timestamp_ms
            self.offset_index.append(last_offset, position)
        except OSError as error:
            # the records are written; the next append tries again to add an entry
            logger.warning("no index entry for %s: %s", self.path, error)
            return False
        finally:
            self._check_index_room()
        return True

    def _check_index_room(self) -> None:
        if self.offset_index.is_full or self.time_index.is_full:
            self.roll_offset = -1
        else:
            self.roll_offset = self.base_offset + RELATIVE_OFFSET_MAX

    def _cut_back(self) -> None:
        try:
            self._files.truncate(self.fd, self.size_bytes)
        except OSError as error:
            # the next append overwrites the torn end; sealing or recovery cuts it off
            logger.warning("%s has a torn end behind %d bytes: %s", self.path, self.size_bytes, error)

    def open_for_append(self) -> None:
        """Opens the file and maps the indexes, preallocated. Raises OSError."""
        self._refuse_if_closed()
        self._files.unshare(self.path)
        file = self._files.open_file(self.path, os.O_RDWR)
        self.tally.identify(file.fd, self.size_bytes)
        self.is_touched = True
        self.offset_index.open_writable()
        self.time_index.open_writable()
        if self.max_timestamp_ms == -2:
            self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last()
        self._indexed_timestamp_ms = self.time_index.last()[0]
        if self._first_timestamp_ms == -2:
            self._first_timestamp_ms = segment_file.first_timestamp_ms(file.fd, self.size_bytes)
        self._check_index_room()
        self.set_roll_age(self._roll_age_ms)
        self.file = file
        self.fd = file.fd
        self._files.descriptors.add(self)

    def set_roll_age(self, age_ms: int) -> None:
        """Sets the age at which the segment rolls: `age_ms` minus jitter, from the time of its first batch."""
        self._roll_age_ms = age_ms
        self.roll_timestamp_ms = self.roll_wall_ms = NEVER
        if not self.size_bytes or self._first_timestamp_ms == -2:
            return
        if self._first_timestamp_ms >= 0:
            self.roll_timestamp_ms = self._first_timestamp_ms + age_ms - self._jitter_ms
        else:
            self.roll_wall_ms = self.created_ms + age_ms - self._jitter_ms

    def seal(self) -> None:
        """Ends the appends: adds the largest timestamp to the time index and cuts every file to its size. Raises
        OSError; the segment can still be appended to then."""
        if not self.is_touched:
            return
        if self.fd < 0:
            self.open_for_append()
        if self.max_timestamp_ms > self._indexed_timestamp_ms:
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._indexed_timestamp_ms = self.max_timestamp_ms
        if os.fstat(self.fd).st_size != self.size_bytes:
            self._files.truncate(self.fd, self.size_bytes)
        self.fd = -1  # appending begins with opening the indexes again
        self.offset_index.trim()
        self.time_index.trim()
        self.is_touched = False

    def abandon(self) -> None:
        """Closes the segment for good; the files stay as they are, as after a crash."""
        self.is_closed = True
        self.close_writer()

    def close_writer(self) -> None:
        """Closes the descriptors until they are needed again."""
        self.release()
        self._files.descriptors.remove(self)

    def release(self) -> None:
        """As `close_writer`, called by the descriptor cache."""
        self.fd = -1
        self.file = None  # a region that is being sent keeps it open
        self.offset_index.release()
        self.time_index.release()

    # reading

    def open_file(self) -> OpenFile:
        """The .log file for reading. Raises OSError."""
        self.used = True
        file = self.file
        if file is None:
            self._refuse_if_closed()
            file = self.file = self._files.open_file(self.path, os.O_RDONLY)
            self._files.descriptors.add(self)
        return file

    def find(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the first batch whose last offset is at or past `offset`; None if no batch reaches it.

        Raises OSError.
        """
        if offset >= self.tail_from:
            ends = self._tail_ends
            count = len(ends)
            at = bisect_left(ends, offset)
            if at == count:
                return None
            positions = self._tail_positions
            position = positions[at]
            at += 1
            return position, (positions[at] if at < count else self.size_bytes) - position
        return self._scan_for(offset)

    def _scan_for(self, offset: int) -> tuple[int, int] | None:
        fd = self.open_file().fd
        position = self.offset_index.position_of(offset)
        if 0 < position < self.size_bytes:
            with suppress(Malformed):
                found = segment_file.find_header(fd, position, self.size_bytes, offset)
                # an entry never points past its offset
                if found is None or found[0] != position or found[1].begins_by(offset):
                    return found and (found[0], found[1].size_bytes)
        if position:
            self._warn_of_index(offset)
        try:
            found = segment_file.find_header(fd, 0, self.size_bytes, offset)
        except Malformed as error:
            raise OSError(errno.EIO, f"{self.path}: {error}") from error
        return found and (found[0], found[1].size_bytes)

    def position_before(self, offset: int) -> int:
        """The nearest indexed position at or before the batch that holds `offset`; 0 where the index is wrong about it.

        Raises OSError. `_scan_for`, which every cold fetch needs, checks the same in the headers that it reads anyway.
        """
        position = self.offset_index.position_of(offset)
        if 0 < position < self.size_bytes:
            with suppress(Malformed):
                _, header = next(segment_file.iter_headers(self.open_file().fd, position, self.size_bytes))
                if header.begins_by(offset):
                    return position
        if position:
            self._warn_of_index(offset)
        return 0

    def _warn_of_index(self, offset: int) -> None:
        logger.warning("%s is wrong about offset %d; reading without it", self.offset_index.path, offset)

    def offset_behind(self, position: int) -> int | None:
        """An offset past all batches that begin before `position`, and not far past them: of the batch that the index
        or the tail has there. None if only the end of the segment is known to be past them. Raises OSError."""
        positions = self._tail_positions
        if positions and position >= positions[0]:
            at = bisect_left(positions, position)
            return self._tail_ends[at] if at < len(positions) else None
        return self.offset_index.offset_from(position)

    def iter_batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, whole batch) from `position` up to `end` or the segment's. Raises Malformed, OSError."""
        file = self.open_file()  # the iteration keeps it open, even if the segment is closed
        yield from segment_file.iter_batches(file.fd, position, self.size_bytes if end is None else end)

    def next_offset(self) -> int:
        """The offset after the last batch, searched from the last index entry on. Raises Malformed, OSError."""
        if not self.size_bytes:
            return self.base_offset
        position = self.offset_index.last()[1]
        if not 0 <= position < self.size_bytes:
            position = 0
        return segment_file.end_offset(self.open_file().fd, position, self.size_bytes)

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of any record; without timestamps, the file's mtime. Raises OSError."""
        self._look_up_max_timestamp()
        if self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return os.stat(self.path).st_mtime_ns // 1_000_000

    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch; -1 without one. Raises OSError."""
        if self._first_timestamp_ms == -2:
            self._first_timestamp_ms = segment_file.first_timestamp_of(self._files, self.path, self.size_bytes)
        return self._first_timestamp_ms

    def times(self) -> SegmentTimes:
        """As `first_timestamp_ms` and `largest_timestamp_ms`, to be read by any thread."""
        known_ms = self._first_timestamp_ms, self.max_timestamp_ms
        return SegmentTimes(self._files, self.path, self.size_bytes, self.time_index.path, self.base_offset, *known_ms)

    def latest(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the first batch with it); (-1, base offset) if none. Raises OSError."""
        self._look_up_max_timestamp()
        return self.max_timestamp_ms, self.max_timestamp_offset

    def _look_up_max_timestamp(self) -> None:
        if self.max_timestamp_ms == -2:
            self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last()
            if self.file is None:
                self.time_index.release()  # the descriptor cache does not know it

    # rebuilding the indexes (`SegmentRebuild`)

    def reset_indexes(self) -> None:
        """Empties the sparse indexes. Raises OSError."""
        self.release()
        self.offset_index.reset()
        self.time_index.reset()
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        self._unindexed_bytes = 0

    def end_rebuild(self, size_bytes: int) -> None:
        """Cuts the segment to its first `size_bytes`, which are indexed, and seals it. Raises OSError."""
        self.size_bytes = size_bytes
        self.seal()
        self._first_timestamp_ms = -2  # `open_for_append` may have read a batch that is cut off
        self.close_writer()

    def index_batch(self, position: int, header: BatchHeader) -> None:
        """Indexes a batch that is in the file at `position`, by the rule of an append."""
        if header[8] > self.max_timestamp_ms:  # by number: 0.4 us less a batch than by name
            self.max_timestamp_ms, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if self._unindexed_bytes > self.index_interval_bytes and self._add_entries(header.last_offset, position):
            self._unindexed_bytes = 0
        self._unindexed_bytes += header[1] + PREFIX_BYTES

    # cutting

    def truncate_to(self, offset: int) -> None:
        """Removes the batches that reach `offset`, and their index entries. Raises OSError, Malformed."""
        found = self.find(offset)
        if found is None:
            return
        position = found[0]
        self.release()
        self._files.truncate_path(self.path, position)
        self.size_bytes = position
        self.offset_index.keep_before(offset)
        self.time_index.keep_before(offset)
        self.txn_index.keep_before(offset)
        self._tail_ends.clear()
        self._tail_positions.clear()
        self.tail_from = NEVER
        self._unindexed_bytes = 0
        self.tally.forget(position)
        if not position:
            self._first_timestamp_ms = -1
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last()
        after = self.position_before(self.max_timestamp_offset) if self.max_timestamp_ms >= 0 else 0
        for _, header, _ in self.iter_batches(after):
            if header.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        self.is_touched = True  # so that sealing writes the last time index entry

    @property
    def files(self) -> SegmentFiles:
        """All four; created at each use: a reference from here to the segment would keep deleted ones in memory."""
        return SegmentFiles((self, self.offset_index, self.time_index, self.txn_index), self._files)

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, f"{self.path} is closed")
