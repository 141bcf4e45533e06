"""`kafkalite log count`: exactly how many records each segment, partition and topic holds.

The header of a batch has the number of its records, also after compaction. Only two kinds are unpacked: a batch with
the log start offset inside, and a wrapped message set, whose header has no number.
Live records are data records at or past the log start offset, control records those of control batches there; bytes are
those of the `.log` files. Live records of aborted transactions are live records, and are counted separately, too. A
transaction is aborted if its abort marker is in the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.inspection.files.directory_listing import (
    PartitionDirectory,
    checkpoint_offsets,
    list_directory,
)
from kafkalite.inspection.files.log_file import LogFile, rows_of_batch
from kafkalite.inspection.files.printer import Progress
from kafkalite.inspection.files.record_text import control_type
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.log.storage.file_names import LOG_STARTS, expanded
from kafkalite.record.batch import MAGIC, BatchHeader
from kafkalite.record.transaction_marker import ABORT, COMMIT

_BLOCK_BYTES = 64 << 10
_ONGOING_MAX = 1_000_000


@dataclass(slots=True)
class Count:
    """Numbers that can be added up. `unread_bytes`: those at the end of a log that are no whole batch."""

    live_records: int = 0
    control_records: int = 0
    aborted_records: int = 0
    batches: int = 0
    bytes: int = 0
    unread_bytes: int = 0

    def add(self, other: Count) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @classmethod
    def sum(cls, counts: Iterable[Count]) -> Count:
        total = cls()
        for one in counts:
            total.add(one)
        return total

    def as_json(self) -> dict[str, int]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


class PartitionCount(NamedTuple):
    """`segments` by their base offsets. `end_offset` is the offset behind the last batch."""

    partition: PartitionDirectory
    start_offset: int
    end_offset: int
    total: Count
    segments: dict[int, Count]


class Counted(NamedTuple):
    """The partitions of a data directory. `is_running`: a broker has the directory and may be writing."""

    root: str
    partitions: list[PartitionCount]
    is_running: bool

    def by_topic(self) -> dict[str, tuple[Count, list[PartitionCount]]]:
        """The sum and the partitions of each topic."""
        topics: dict[str, tuple[Count, list[PartitionCount]]] = {}
        for one in self.partitions:
            total, partitions = topics.setdefault(one.partition.topic, (Count(), []))
            total.add(one.total)
            partitions.append(one)
        return topics

    def total(self) -> Count:
        return Count.sum(one.total for one in self.partitions)


def count(path: str, topics: Iterable[str] = (), *, shown: bool | None = None) -> Counted:
    """Counts a directory, or those of all brokers of a machine. `topics`: only these. Raises ConfigError if the path is
    no data directory, OSError."""
    listings = [list_directory(one) for one in expanded([path])]
    wanted = set(topics)
    chosen = [
        (one, checkpoint_offsets(listing.root, LOG_STARTS).get(one.key, 0))
        for listing in listings
        for one in listing.partitions
        if not wanted or one.topic in wanted
    ]
    progress = Progress(sum(one.log_bytes for one, _ in chosen), shown=shown)
    try:
        counted = [_Counter(one, start, progress.advance).run() for one, start in chosen]
    finally:
        progress.clear()
    place = listings[0].place if len(listings) == 1 else os.path.abspath(path)
    return Counted(place, counted, any(listing.is_locked for listing in listings))


class _Counter:
    """Counts one partition, whose records before `start_offset` are not live."""

    def __init__(self, partition: PartitionDirectory, start_offset: int, advance: Callable[[int], None]) -> None:
        self._partition = partition
        self._advance = advance
        self._end_offset = partition.bases[0] if partition.bases else 0
        self._start_offset = max(start_offset, self._end_offset)
        self._segments: dict[int, Count] = {}
        self._ongoing: dict[int, dict[int, int]] = {}  # producer id -> live records of its transaction, by segment

    def run(self) -> PartitionCount:
        """Raises OSError."""
        for base in self._partition.bases:
            self._count_segment(base)
        total = Count.sum(self._segments.values())
        return PartitionCount(self._partition, self._start_offset, self._end_offset, total, self._segments)

    def _count_segment(self, base: int) -> None:
        found = self._segments[base] = Count(bytes=self._partition.segment_bytes(base))
        self._end_offset = max(self._end_offset, base)
        end = advanced = 0
        with LogFile(self._partition.file(base, ".log")) as log:
            with suppress(Malformed):
                for position, header in iter_headers(log.fd, 0, log.size_bytes, _BLOCK_BYTES):
                    if header.magic == MAGIC and header.record_count < 0:
                        break
                    found.batches += 1
                    self._count_batch(base, log, position, header)
                    end = position + header.size_bytes
                    if end - advanced > _BLOCK_BYTES:
                        self._advance(end - advanced)
                        advanced = end
            found.unread_bytes += log.size_bytes - end
            self._advance(log.size_bytes - advanced)

    def _count_batch(self, base: int, log: LogFile, position: int, header: BatchHeader) -> None:
        found = self._segments[base]
        is_control, last_offset = header.is_control, header.last_offset
        self._end_offset = max(self._end_offset, last_offset + 1)
        if last_offset < self._start_offset:
            if is_control:
                self._ongoing.pop(header.producer_id, None)
            return
        count = header.record_count
        if count < 0 or is_control or header.base_offset < self._start_offset:
            rows = rows_of_batch(memoryview(log.read(position, header.size_bytes)))
            if isinstance(rows, Malformed):
                found.unread_bytes += header.size_bytes
                return
            if is_control:
                self._end_transaction(header.producer_id, control_type(rows[0].key if rows else None))
            count = sum(row.offset >= self._start_offset for row in rows)
        if is_control:
            found.control_records += count
            return
        found.live_records += count
        if header.is_transactional and header.producer_id >= 0 and len(self._ongoing) < _ONGOING_MAX:
            records = self._ongoing.setdefault(header.producer_id, {})
            records[base] = records.get(base, 0) + count

    def _end_transaction(self, producer_id: int, kind: int) -> None:
        if kind in (ABORT, COMMIT):
            for base, records in self._ongoing.pop(producer_id, {}).items():
                if kind == ABORT:
                    self._segments[base].aborted_records += records
