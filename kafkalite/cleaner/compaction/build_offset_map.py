"""The first reading of a pass: the latest offset of every key in the dirty range goes into the map.

Control batches and data of aborted transactions have no say, nor have records without a key. When the map is full the
reading ends, in the middle of a batch if need be: the pass then compacts up to there, and the next one goes on. Every
checksum is looked at, for what is corrupt must not be written again with a checksum that is right.
Source: kafka.log.Cleaner.buildOffsetMap, buildOffsetMapForSegment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalite.cleaner.columns.decompressed_batches import Unpacked, corrupt, offsets_of, unpack
from kafkalite.cleaner.columns.record_keys import read_keys
from kafkalite.cleaner.columns.segment_reader import Piece, read_pieces
from kafkalite.cleaner.compaction.clean_context import CleanContext
from kafkalite.cleaner.compaction.legacy_messages import keys_of, last_offset, read_entry
from kafkalite.cleaner.compaction.skimpy_offset_map import SkimpyOffsetMap
from kafkalite.cleaner.compaction.transaction_metadata import TransactionMetadata
from kafkalite.cleaner.job.job import SourceSegment
from kafkalite.record.columns.varint_columns import Corrupt
from kafkalite.record.record import Record

_BLOCK_ROWS = 16384  # a block's columns stay in the second-level cache
_OLD_RECORDS = 16384
_OLD_BYTES = 8 << 20  # of values that are held with them


class _OldRecords(NamedTuple):
    """Records with a key, the offsets of those without, and the last offsets of the entries that they were in."""

    records: list[Record]
    keyless: list[int]
    ends: list[int]


class OffsetMapBuilder:
    """`latest_offset`: up to there every record is in the map, or need not be. `is_full`: the map had no more room."""

    def __init__(self, state: CleanContext, offset_map: SkimpyOffsetMap) -> None:
        self._state = state
        self._map = offset_map
        self._transactions = TransactionMetadata(state.aborted)
        self._from = state.job.first_dirty_offset
        self.latest_offset = self._from - 1
        self.is_full = False
        self._none = np.empty(0, np.int64)

    def read(self) -> None:
        """Raises CleaningFailed, OSError."""
        job = self._state.job
        for segment in job.segments:
            if segment.end_offset > self._from and segment.base_offset < job.first_uncleanable_offset:
                self._read_segment(segment)
                if self.is_full:
                    return
                # behind the last record there may be a gap
                self.latest_offset = min(segment.end_offset, job.first_uncleanable_offset) - 1

    def _read_segment(self, segment: SourceSegment) -> None:
        state = self._state
        for piece in read_pieces(state.files, state.path_of(segment), segment.size_bytes, state.piece_bytes):
            state.took(len(piece.data))
            state.stats.map_bytes_read += len(piece.data)
            if piece.batches is None:
                self._read_old(piece)
            else:
                self._read_batches(piece)
            del piece  # the next one is read into its memory
            if self.is_full:
                return

    def _read_batches(self, piece: Piece) -> None:
        batches = piece.batches
        assert batches is not None
        last = batches.last_offset
        dirty = last >= self._from
        piece.check(np.flatnonzero(dirty))
        aborted, _ = self._transactions.see_piece(piece, dirty)
        count = batches.record_count
        self._state.stats.map_records_read += int(count[dirty].sum())
        rows = np.flatnonzero(dirty & ~aborted & ~batches.is_control & (count > 0))
        for group in unpack(piece, rows, self._state.codecs):
            self._put_group(piece, group)
            del group
            if self.is_full:
                return
        if dirty.any():
            self.latest_offset = max(self.latest_offset, int(last[dirty][-1]))

    def _put_group(self, piece: Piece, group: Unpacked) -> None:
        offset = offsets_of(piece, group)
        for first in range(0, len(offset), _BLOCK_ROWS):
            rows = slice(first, first + _BLOCK_ROWS)
            try:
                keys = read_keys(group.data, group.begin[rows], group.end[rows])
            except Corrupt as error:
                raise corrupt(piece, group, Corrupt(first + error.row, error.why)) from None
            start, end, marked, at = keys.start, keys.end, keys.is_tombstone, offset[rows]
            counts = keys.is_there
            if at[0] < self._from:
                counts &= at >= self._from
            keyless = self._none
            if not counts.all():
                keyless = at[~keys.is_there & (at >= self._from)]
                start, end, marked, at = start[counts], end[counts], marked[counts], at[counts]
            taken = self._map.put(group.data, start, end, at, marked)
            if taken < len(at):
                self._stop_before(piece, int(at[taken]), int(at[taken - 1]) if taken else -1)
                keyless = keyless[keyless <= self.latest_offset]
            elif taken:
                self.latest_offset = max(self.latest_offset, int(at[-1]))
            self._state.stats.keyless_dropped += len(keyless)
            if self.is_full:
                return

    def _stop_before(self, piece: Piece, offset: int, before: int) -> None:
        """The map is full: the record at `offset` did not find room, and that at `before` was the last that did."""
        assert piece.batches is not None
        self.is_full = True
        last = piece.batches.last_offset
        whole = last[last < offset]
        self.latest_offset = max(self.latest_offset, before, int(whole[-1]) if len(whole) else -1)

    # formats v0 and v1

    def _read_old(self, piece: Piece) -> None:
        some = _OldRecords([], [], [])
        held_bytes = 0
        for start, end in piece.entries:
            last = last_offset(piece, start)
            if last < self._from:
                continue
            found = read_entry(piece, start, end).records
            self._state.stats.map_records_read += len(found)
            for record in found:
                if record.offset < self._from:
                    continue
                if record.key is None:
                    some.keyless.append(record.offset)
                else:
                    some.records.append(record)
                    held_bytes += len(record.value or b"")
            some.ends.append(last)
            if len(some.records) >= _OLD_RECORDS or held_bytes >= _OLD_BYTES:
                self._put_old(some)
                if self.is_full:
                    return
                some = _OldRecords([], [], [])
                held_bytes = 0
        self._put_old(some)

    def _put_old(self, some: _OldRecords) -> None:
        records, ends = some.records, some.ends
        taken = self._map.put(*keys_of(records)) if records else 0
        if taken < len(records):
            self.is_full = True
            ends = [end for end in ends if end < records[taken].offset]
            if taken:
                ends.append(records[taken - 1].offset)
        self.latest_offset = max(self.latest_offset, *ends, -1)
        self._state.stats.keyless_dropped += sum(offset <= self.latest_offset for offset in some.keyless)
