"""Builds the offset map of a cleaning: the latest offset of every key in the dirty range.

Control batches, data of aborted transactions and records without a key are left out. When the map is full, building
ends, possibly within a batch: the log is then cleaned up to there, and the next cleaning continues. Every checksum is
verified, since corrupt data must not be written again with a valid checksum.
Source: kafka.log.Cleaner.buildOffsetMap, buildOffsetMapForSegment.
"""

from __future__ import annotations

import numpy as np

from kafkalite.cleaner.columns.decompressed_batches import (
    RecordGroup,
    UnreadBatch,
    corrupt,
    decompress_batches,
    offsets_of,
)
from kafkalite.cleaner.columns.record_keys import RecordKeys, read_keys
from kafkalite.cleaner.columns.segment_reader import BatchPiece, LegacyPiece, read_pieces
from kafkalite.cleaner.compaction.clean_context import CleanContext
from kafkalite.cleaner.compaction.legacy_messages import keys_of, last_offset, read_entry
from kafkalite.cleaner.compaction.skimpy_offset_map import SkimpyOffsetMap
from kafkalite.cleaner.compaction.transaction_metadata import TransactionMetadata
from kafkalite.log.segment.cleaned_segment import SourceSegment
from kafkalite.record.columns.varint_columns import Corrupt
from kafkalite.record.record import Record

_BLOCK_ROWS = 16384  # a block's columns stay in the second-level cache
_LEGACY_RECORDS_MAX = 16384
_LEGACY_BYTES_MAX = 8 << 20  # of values that are held with them


def _keys(group: RecordGroup, block: slice) -> RecordKeys:
    try:
        return read_keys(group.data, group.begin[block], group.end[block])
    except Corrupt as error:
        raise corrupt(group, Corrupt(block.start + error.row, error.why)) from None


class OffsetMapBuilder:
    """`latest_offset`: all records up to it are in the map, or need not be. `is_full`: the map had no more room."""

    def __init__(self, context: CleanContext, offset_map: SkimpyOffsetMap) -> None:
        self._context = context
        self._map = offset_map
        self._transactions = TransactionMetadata(context.aborted)
        self._from = context.job.first_dirty_offset
        self.latest_offset = self._from - 1
        self.is_full = False

    def build(self) -> None:
        """Raises CleaningFailed, OSError."""
        job = self._context.job
        for segment in job.segments:
            if segment.end_offset > self._from and segment.base_offset < job.first_uncleanable_offset:
                self._add_segment(segment)
                if self.is_full:
                    return
                # there may be a gap after the last record
                self.latest_offset = min(segment.end_offset, job.first_uncleanable_offset) - 1

    def _add_segment(self, segment: SourceSegment) -> None:
        context = self._context
        for piece in read_pieces(context.files, context.path_of(segment), segment.size_bytes, context.piece_bytes):
            context.throttle(len(piece.data))
            context.stats.map_bytes_read += len(piece.data)
            if isinstance(piece, BatchPiece):
                self._add_batches(piece)
            else:
                self._add_legacy(piece)
            del piece  # the next one is read into its memory
            if self.is_full:
                return

    def _add_batches(self, piece: BatchPiece) -> None:
        batches = piece.batches
        last = batches.last_offset
        dirty = last >= self._from
        piece.check(np.flatnonzero(dirty))
        aborted, _ = self._transactions.on_batches(piece, dirty)
        count = batches.record_count
        self._context.stats.map_records_read += int(count[dirty].sum())
        rows = np.flatnonzero(dirty & ~aborted & ~batches.is_control & (count > 0))
        while len(rows):
            try:
                for group in decompress_batches(piece, rows, self._context.codecs):
                    self._put_group(piece, group)
                    rows = rows[rows > group.rows[-1]]
                    del group
                    if self.is_full:
                        return
            except UnreadBatch as error:
                at, offset = int(batches.position[error.row]), int(batches.base_offset[error.row])
                self._context.keep_unread(piece, at, offset, error.why)
                rows = rows[rows != error.row]
        if dirty.any():
            self.latest_offset = max(self.latest_offset, int(last[dirty][-1]))

    def _put_group(self, piece: BatchPiece, group: RecordGroup) -> None:
        """Raises UnreadBatch before anything of the group is in the map."""
        offset = offsets_of(piece, group)
        blocks = [slice(first, first + _BLOCK_ROWS) for first in range(0, len(offset), _BLOCK_ROWS)]
        for rows, keys in zip(blocks, [_keys(group, block) for block in blocks], strict=True):
            start, end, tombstone, at = keys.start, keys.end, keys.is_tombstone, offset[rows]
            keyless, counts = at[:0], keys.is_present
            if at[0] < self._from:
                counts &= at >= self._from
            if not counts.all():
                keyless = at[~keys.is_present & (at >= self._from)]
                start, end, tombstone, at = start[counts], end[counts], tombstone[counts], at[counts]
            taken = self._map.put(group.data, start, end, at, tombstone)
            if taken < len(at):
                self._stop_before(piece, int(at[taken]), int(at[taken - 1]) if taken else -1)
                keyless = keyless[keyless <= self.latest_offset]
            elif taken:
                self.latest_offset = max(self.latest_offset, int(at[-1]))
            self._context.stats.keyless_dropped += len(keyless)
            if self.is_full:
                return

    def _stop_before(self, piece: BatchPiece, offset: int, before: int) -> None:
        """The map is full: it has no room for the record at `offset`; the last one in it is at `before`."""
        self.is_full = True
        last = piece.batches.last_offset
        whole = last[last < offset]
        self.latest_offset = max(self.latest_offset, before, int(whole[-1]) if len(whole) else -1)

    # formats v0 and v1

    def _add_legacy(self, piece: LegacyPiece) -> None:
        records: list[Record] = []
        ends: list[int] = []  # the last offsets of their entries
        held_bytes = 0
        for start, end in piece.entries:
            last = last_offset(piece, start)
            if last < self._from:
                continue
            entry = read_entry(self._context, piece, start, end)
            found = [] if entry is None else entry.records
            self._context.stats.map_records_read += len(found)
            records += [record for record in found if record.offset >= self._from]
            ends.append(last)
            held_bytes += sum(len(record.value or b"") for record in found)
            if len(records) >= _LEGACY_RECORDS_MAX or held_bytes >= _LEGACY_BYTES_MAX:
                self._put_legacy(records, ends)
                if self.is_full:
                    return
                records, ends, held_bytes = [], [], 0
        self._put_legacy(records, ends)

    def _put_legacy(self, records: list[Record], ends: list[int]) -> None:
        keyed = [record for record in records if record.key is not None]
        taken = self._map.put(*keys_of(keyed)) if keyed else 0
        if taken < len(keyed):
            self.is_full = True
            ends = [offset for offset in ends if offset < keyed[taken].offset]
            ends += [record.offset for record in keyed[:taken][-1:]]
        self.latest_offset = max(self.latest_offset, *ends, -1)
        keyless = sum(record.key is None and record.offset <= self.latest_offset for record in records)
        self._context.stats.keyless_dropped += keyless
