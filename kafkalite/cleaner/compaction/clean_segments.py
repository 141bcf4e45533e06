"""Cleans a group of segments into one, without the records that are not retained.

Batch by batch: data of aborted transactions and finished markers are dropped, then the records that `RetainedRecords`
does not name, then tombstones whose delete horizon has passed. A batch that retains all records is copied byte for
byte, with its neighbours as one piece, and not decompressed if it is of the dirty range. One that retains some is
rebuilt. One that retains none is dropped, unless its header is the last of its producer: then it stays, empty.
A batch in which a tombstone is retained for the first time, or a marker without its transaction, gets a delete horizon;
a cleaning after that time drops it.
Source: kafka.log.Cleaner.cleanInto, org.apache.kafka.common.record.MemoryRecords.filterTo; KIP-354, KIP-534.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafkalite.cleaner.compaction.batch_assembly import Rebuilt, assemble, rebuild
from kafkalite.cleaner.compaction.cleaned_segment_writer import CleanedSegmentWriter
from kafkalite.cleaner.compaction.decompressed_batches import (
    RecordGroup,
    RecordKeys,
    UnreadBatch,
    corrupt,
    decompress_batches,
    offsets_of,
    read_keys,
)
from kafkalite.cleaner.compaction.legacy_messages import clean_legacy
from kafkalite.cleaner.compaction.segment_reader import BatchPiece, CleanContext, LegacyPiece
from kafkalite.cleaner.compaction.skimpy_offset_map import RetainedRecords
from kafkalite.cleaner.compaction.transaction_metadata import TransactionMetadata
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.segment.cleaned_segment import SourceSegment
from kafkalite.record.batch import DELETE_HORIZON
from kafkalite.record.columns.batch_columns import Array, Batches, Flags
from kafkalite.record.columns.varint_columns import Corrupt

_UNKNOWN = -1
_NO_HORIZON = -1
_TIME_MAX = (1 << 63) - 1
_BLOCK_ROWS = 16384  # a block's columns stay in the second-level cache


class _Retention(NamedTuple):
    """The decisions about each batch of a piece. `kept`: the number of its retained records, `_UNKNOWN` until they are
    read. `is_covered`: `RetainedRecords` knows them by their offsets. `is_expired`: its delete horizon has passed, so
    its tombstones are dropped. `horizon`: its present or new delete horizon; -1 for none. `is_new`: it must be rebuilt
    with a new delete horizon."""

    kept: Array
    is_covered: Flags
    is_expired: Flags
    horizon: Array
    is_new: Flags


class SegmentCleaner:
    """For all groups of a cleaning, in order: transactions may span groups."""

    def __init__(self, context: CleanContext, retained: RetainedRecords) -> None:
        self._context = context
        self._retained = retained
        self._transactions = TransactionMetadata(context.aborted)
        job = context.job
        self._now_ms = job.now_ms
        # without a horizon if it exceeds 64 bits
        horizon = job.now_ms + job.delete_retention_ms
        self._horizon_ms = horizon if horizon <= _TIME_MAX else _NO_HORIZON
        self._last_data = np.array([last.last_data_offset for last in job.last_records.values()], np.int64)
        self._legacy_horizon_ms = _legacy_horizon_ms(job.segments, job.first_dirty_offset, job.delete_retention_ms)

    def clean(self, group: Sequence[SourceSegment], writer: CleanedSegmentWriter) -> None:
        """Write the retained records of a group. Raises CleaningFailed, OSError."""
        context = self._context
        for segment in group:
            keeps_tombstones = segment.modified_ns // 1_000_000 > self._legacy_horizon_ms
            for piece in context.pieces(segment):
                context.stats.bytes_read += len(piece.data)
                if isinstance(piece, BatchPiece):
                    self._clean_batches(piece, writer)
                else:
                    self._clean_legacy(piece, keeps_tombstones, writer)
                del piece  # the next one is read into its memory

    def _clean_batches(self, piece: BatchPiece, writer: CleanedSegmentWriter) -> None:
        batches = piece.batches
        self._retained.reach(int(batches.base_offset[0]))
        retention = self._judge(piece, writer)
        count, kept = batches.record_count, retention.kept
        is_read = (kept == _UNKNOWN) | retention.is_new | ((kept > 0) & (kept < count))
        # batches before the dirty range were not checked yet, and a header alone may decide that a batch is dropped
        piece.check(np.flatnonzero(is_read | (batches.last_offset < self._context.job.first_dirty_offset)))
        rebuilt: list[Rebuilt] = []
        rows = np.flatnonzero(is_read)
        while len(rows):
            try:
                for group in decompress_batches(piece, rows, self._context.codecs):
                    rebuilt.append(self._rebuild(piece, group, retention))
                    rows = rows[rows > group.rows[-1]]
                    del group
            except UnreadBatch as error:
                at, offset = int(batches.position[error.row]), int(batches.base_offset[error.row])
                self._context.keep_unread(piece, at, offset, error.why)
                rows = rows[rows != error.row]
                kept[error.row], retention.is_new[error.row] = max(1, count[error.row]), False
        stays_empty = (kept == 0) & self._are_last_of_producers(batches)
        data, size, last, latest = assemble(piece, kept, stays_empty, rebuilt)
        stats, kept_count = self._context.stats, int(kept.sum())
        stats.records_read += int(count.sum())
        stats.records_kept += kept_count
        writer.record_count += kept_count
        writer.control_record_count += int(kept[batches.is_control].sum())
        self._write(writer, data, size, last, latest)

    def _judge(self, piece: BatchPiece, writer: CleanedSegmentWriter) -> _Retention:
        """The retention of each batch as far as it is known without reading records."""
        batches = piece.batches
        count = batches.record_count
        is_control = batches.is_control
        discarded, aborted = self._transactions.on_batches(piece, np.ones(len(batches), np.bool_))
        for txn in aborted:
            writer.add_aborted(txn)
        has_horizon = (batches.heads["attributes"] & DELETE_HORIZON) != 0
        horizon = np.where(has_horizon, batches.column("base_timestamp"), _NO_HORIZON)
        is_expired = has_horizon & (horizon <= self._now_ms)
        kept = np.full(len(batches), _UNKNOWN)
        kept[is_control] = count[is_control]
        dropped = discarded & (~is_control | is_expired)
        kept[dropped | (count == 0)] = 0
        if self._context.unread:
            unread = (kept == _UNKNOWN) & np.isin(batches.base_offset, list(self._context.unread))
            kept[unread] = np.maximum(count[unread], 1)
        stats = self._context.stats
        stats.aborted_dropped += int(count[dropped & ~is_control].sum())
        stats.markers_dropped += int(count[dropped & is_control].sum())
        may_be_new = ~has_horizon & (self._horizon_ms != _NO_HORIZON)
        is_new = is_control & discarded & may_be_new & (count > 0)
        base, last = batches.base_offset, batches.last_offset
        is_covered = (kept == _UNKNOWN) & (last - base + 1 == count) & self._retained.covers(base, last)
        rows = np.flatnonzero(is_covered)
        if len(rows):
            retained, tombstones = self._retained.count_between(base[rows], last[rows])
            expired = is_expired[rows]
            kept[rows] = np.where(expired, retained - tombstones, retained)
            stats.tombstones_dropped += int(tombstones[expired].sum())
            is_new[rows] = (tombstones > 0) & may_be_new[rows]
        horizon[is_new] = self._horizon_ms
        return _Retention(kept, is_covered, is_expired, horizon, is_new)

    def _rebuild(self, piece: BatchPiece, group: RecordGroup, retention: _Retention) -> Rebuilt:
        """Decide about the records of a group, and rebuild batches of it as needed. Raises UnreadBatch."""
        try:
            return self._rebuild_kept(piece, group, self._keep(piece, group, retention), retention)
        except Corrupt as error:
            raise corrupt(group, error) from None

    def _rebuild_kept(self, piece: BatchPiece, group: RecordGroup, keep: Flags, retention: _Retention) -> Rebuilt:
        rows = group.rows
        kept = np.add.reduceat(keep, group.first, dtype=np.int64)
        retention.kept[rows] = kept
        is_rebuilt = (kept > 0) & ((kept < group.record_count) | retention.is_new[rows])
        keep &= np.repeat(is_rebuilt, group.record_count)
        rebuilt, at = rows[is_rebuilt], np.flatnonzero(keep)
        horizon, codecs = retention.horizon[rebuilt], self._context.codecs
        return rebuild(
            piece.batches, rebuilt, kept[is_rebuilt], horizon, group.data, group.begin[at], group.end[at], codecs
        )

    def _keep(self, piece: BatchPiece, group: RecordGroup, retention: _Retention) -> Flags:
        """A flag for each record of a group: whether it is retained. Raises CleaningFailed, UnreadBatch, Corrupt."""
        batches, rows, first = piece.batches, group.rows, group.first
        is_control, is_covered = batches.is_control[rows], retention.is_covered[rows]
        keep = np.repeat(is_control, group.record_count)
        by_offset = np.flatnonzero(is_covered)
        if len(by_offset):
            base = batches.base_offset[rows[by_offset]]
            batch, offset = self._retained.offsets_between(base, batches.last_offset[rows[by_offset]])
            at = offset + (first[by_offset] - base)[batch]
            expired = retention.is_expired[rows[by_offset]]
            keep[at] = True if not expired.any() else ~(expired[batch] & self._retained.are_tombstones(offset))
        by_key = np.repeat(~is_control & ~is_covered, group.record_count)
        if by_key.any():
            offsets = offsets_of(piece, group)
            row_of = np.repeat(rows, group.record_count)
            at = np.flatnonzero(by_key)
            for block in range(0, len(at), _BLOCK_ROWS):
                some = at[block : block + _BLOCK_ROWS]
                keep[some] = self._keep_by_key(group, retention, some, offsets[some], row_of[some])
        return keep

    def _keep_by_key(self, group: RecordGroup, retention: _Retention, at: Array, offset: Array, row_of: Array) -> Flags:
        try:
            keys = read_keys(group.data, group.begin[at], group.end[at])
        except Corrupt as error:
            raise Corrupt(int(at[error.row]), error.why) from None
        keep = self._retained.look_up(group.data, keys, offset)
        self._count_keyless(keys, keep, offset)
        tombstone = keep & keys.is_tombstone
        if tombstone.any():
            dropped = tombstone & retention.is_expired[row_of] & (offset <= self._retained.latest_offset)
            self._context.stats.tombstones_dropped += int(np.count_nonzero(dropped))
            keep &= ~dropped
            stays = row_of[tombstone & ~dropped]
            new = stays[retention.horizon[stays] == _NO_HORIZON]
            retention.is_new[new] = self._horizon_ms != _NO_HORIZON
            retention.horizon[new] = self._horizon_ms
        return keep

    def _count_keyless(self, keys: RecordKeys, keep: Flags, offset: Array) -> None:
        """Records of the dirty range were counted while the offset map was built."""
        keyless = ~keys.is_present & ~keep & (offset < self._context.job.first_dirty_offset)
        self._context.stats.keyless_dropped += int(np.count_nonzero(keyless))

    def _are_last_of_producers(self, batches: Batches) -> Flags:
        """Whether each batch must be kept as the last one of its producer."""
        found = np.zeros(len(batches), np.bool_)
        producers = self._context.job.last_records
        if not producers:
            return found
        producer, last = batches.column("producer_id"), batches.last_offset
        epoch, is_control = batches.column("producer_epoch"), batches.is_control
        may_be = (producer >= 0) & (is_control | np.isin(last, self._last_data))
        for row in np.flatnonzero(may_be).tolist():
            known = producers.get(int(producer[row]))
            if known is None:
                continue
            if known.last_data_offset >= 0:
                found[row] = last[row] == known.last_data_offset
            else:
                found[row] = is_control[row] and epoch[row] == known.producer_epoch
        return found

    def _clean_legacy(self, piece: LegacyPiece, keeps_tombstones: bool, writer: CleanedSegmentWriter) -> None:
        stats = self._context.stats
        kept_before = stats.records_kept
        data, size, last, latest = clean_legacy(self._context, piece, self._retained, keeps_tombstones)
        writer.record_count += stats.records_kept - kept_before
        self._write(writer, data, size, last, latest)

    def _write(self, writer: CleanedSegmentWriter, data: memoryview, size: Array, last: Array, latest: Array) -> None:
        if len(data):
            self._context.stats.bytes_kept += len(data)
            writer.append(data, size, last, latest)
            self._context.throttle(len(data))


def _legacy_horizon_ms(segments: Sequence[SourceSegment], first_dirty_offset: int, delete_retention_ms: int) -> int:
    """Tombstones of formats v0 and v1 are dropped from segments that were last written before that time."""
    clean = [segment for segment in segments if segment.base_offset < first_dirty_offset]
    return clean[-1].modified_ns // 1_000_000 - delete_retention_ms if clean else 0
