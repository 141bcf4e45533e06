"""Messages of formats v0 and v1: their keys as columns, and sets that lost some of theirs.

They are read message by message: logs of that age are few, and none grows any more. A wrapper that loses messages is
packed again in its own format: its offset becomes that of the last message which is left, its time the latest of them.
Source: org.apache.kafka.common.record.MemoryRecords.filterTo, MemoryRecordsBuilder, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalite.cleaner.columns.record_keys import RecordKeys
from kafkalite.cleaner.columns.segment_reader import Piece
from kafkalite.cleaner.compaction.retained_records import RetainedRecords
from kafkalite.cleaner.job.job import CleanStats
from kafkalite.common.errors import Malformed
from kafkalite.record.batch import BatchHeader
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.varint_columns import Bytes
from kafkalite.record.compression import UNPACKED_BYTES_MAX
from kafkalite.record.message_set import V1, build_set, compute_crc, entry_header, read_inner, resolve
from kafkalite.record.record import Record

_RECORDS_MAX = 1 << 21  # of one wrapper: each is some hundred bytes of objects


class Entry(NamedTuple):
    """One entry of a set: a message, or a wrapper with several. `is_mixed`: some are of another format than it."""

    start: int
    end: int
    header: BatchHeader
    records: list[Record]
    is_mixed: bool


def read_entry(piece: Piece, start: int, end: int) -> Entry:
    """The entry from `start` to `end` of a piece. Raises CleaningFailed."""
    view = piece.data[start:end]
    try:
        header = entry_header(view)
        if compute_crc(view) != header.crc:
            raise Malformed("its checksum is wrong")
        found = read_inner(view, UNPACKED_BYTES_MAX, _RECORDS_MAX, check_crc=True)
        records = resolve(header, found)
    except Malformed as error:
        raise piece.refuse(start, str(error)) from None
    return Entry(start, end, header, records, any(message.magic != header.magic for message in found))


def last_offset(piece: Piece, start: int) -> int:
    """Of the entry at `start`, without unpacking it."""
    return int.from_bytes(piece.data[start : start + 8], "big", signed=True)


def keys_of(records: list[Record]) -> tuple[Bytes, Array, Array, Array, Flags]:
    """(data, start, end, offset, whether the value is null) of records that all have keys."""
    keys = [record.key or b"" for record in records]
    end = np.cumsum([len(key) for key in keys], dtype=np.int64)
    return (
        np.frombuffer(b"".join(keys), np.uint8),
        end - np.diff(end, prepend=0),
        end,
        np.array([record.offset for record in records], np.int64),
        np.array([record.value is None for record in records], np.bool_),
    )


def rewrite(entry: Entry, kept: list[Record]) -> bytes:
    """A wrapper with those of its messages that are left, one at least. Its time stays if it is that of all."""
    header = entry.header
    of_all = header.max_timestamp if header.timestamp_type and header.magic == V1 else None
    return build_set(
        [(record.offset, record.timestamp if of_all is None else of_all, record.key, record.value) for record in kept],
        header.magic,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
    )


class LegacySets:
    """The messages of one piece, cleaned. `keeps_tombstones`: those of its segment stay for now."""

    def __init__(self, piece: Piece, survivors: RetainedRecords, keeps_tombstones: bool, stats: CleanStats) -> None:
        self._piece = piece
        self._survivors = survivors
        self._keeps_tombstones = keeps_tombstones
        self._stats = stats
        self.kept = 0

    def clean(self) -> tuple[memoryview, Array, Array, Array]:
        """What is left, and size, last offset and largest timestamp of each entry. Raises CleaningFailed."""
        parts: list[bytes | memoryview] = []
        found: list[BatchHeader] = []
        for start, end in self._piece.entries:
            entry = read_entry(self._piece, start, end)
            kept = self._keep(entry.records)
            self._stats.records_read += len(entry.records)
            self.kept += len(kept)
            if not kept:
                continue
            if len(kept) == len(entry.records) and not entry.is_mixed:
                parts.append(self._piece.data[start:end])
                found.append(entry.header)
            else:
                parts.append(rewrite(entry, kept))
                found.append(entry_header(parts[-1]))
        self._stats.records_kept += self.kept
        return (
            memoryview(b"".join(parts)),
            np.array([header.size_bytes for header in found], np.int64),
            np.array([header.base_offset for header in found], np.int64),
            np.array([header.max_timestamp for header in found], np.int64),
        )

    def _keep(self, records: list[Record]) -> list[Record]:
        survivors = self._survivors
        survivors.reach(records[0].offset)
        kept = [record for record in records if record.offset > survivors.latest_offset]
        asked = [record for record in records if record.offset <= survivors.latest_offset and record.key is not None]
        if len(kept) + len(asked) < len(records):
            self._stats.keyless_dropped += sum(
                record.key is None and record.offset < survivors.first_dirty_offset for record in records
            )
        if not asked:
            return kept
        data, start, end, offset, is_null = keys_of(asked)
        survive = survivors.look_up(data, RecordKeys(start, end, is_null), offset)
        if not self._keeps_tombstones:
            self._stats.tombstones_dropped += int(np.count_nonzero(survive & is_null))
            survive &= ~is_null
        return [record for record, stays in zip(asked, survive.tolist(), strict=True) if stays] + kept
