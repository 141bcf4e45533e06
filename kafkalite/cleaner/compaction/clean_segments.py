"""The second reading of a pass: a group of segments becomes one, without the records that do not survive.

Batch by batch: data of aborted transactions and finished markers go, then the records that `survivors` does not name,
then tombstones whose delete horizon has passed. A batch that keeps everything is copied byte for byte, with its
neighbours as one piece, and not unpacked if it is of the dirty range. One that keeps some is built again. One that
keeps none goes, unless its header is the last that is known of its producer: then it stays, empty.
A batch in which a tombstone stays for the first time, or a marker without its transaction, gets a delete horizon; what
is still there in a pass after that time goes.
Source: kafka.log.Cleaner.cleanInto, org.apache.kafka.common.record.MemoryRecords.filterTo; KIP-354, KIP-534.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kafkalite.cleaner.columns.batch_assembly import Changed, assemble
from kafkalite.cleaner.columns.decompressed_batches import Unpacked, corrupt, offsets_of, unpack
from kafkalite.cleaner.columns.record_bodies import Times, build_bodies
from kafkalite.cleaner.columns.record_keys import RecordKeys, read_keys
from kafkalite.cleaner.columns.segment_reader import Piece, read_pieces
from kafkalite.cleaner.compaction.clean_context import CleanContext
from kafkalite.cleaner.compaction.cleaned_segment_writer import CleanedSegmentWriter
from kafkalite.cleaner.compaction.legacy_messages import LegacySets
from kafkalite.cleaner.compaction.retained_records import RetainedRecords
from kafkalite.cleaner.compaction.transaction_metadata import TransactionMetadata
from kafkalite.cleaner.job.job import SourceSegment
from kafkalite.record.batch import DELETE_HORIZON
from kafkalite.record.columns.batch_columns import Array, Batches, Flags
from kafkalite.record.columns.varint_columns import Corrupt

_UNKNOWN = -1
_NO_HORIZON = -1
_TIME_MAX = (1 << 63) - 1
_BLOCK_ROWS = 16384  # a block's columns stay in the second-level cache


class _Fate(NamedTuple):
    """Of each batch of a piece. `kept`: how many of its records stay, `_UNKNOWN` until they were looked at.
    `is_covered`: `survivors` knows them by their offsets. `is_due`: its horizon has passed, so its tombstones go.
    `horizon`: the one that it has, or is to get; -1 for none. `is_new`: it has to be built again for that."""

    kept: Array
    is_covered: Flags
    is_due: Flags
    horizon: Array
    is_new: Flags


class SegmentCleaner:
    """For all groups of a pass, in order: what is known of transactions goes on from one to the next."""

    def __init__(self, state: CleanContext, survivors: RetainedRecords) -> None:
        self._state = state
        self._survivors = survivors
        self._transactions = TransactionMetadata(state.aborted)
        job = state.job
        self._now_ms = job.now_ms
        # a horizon past the end of time is none
        horizon = job.now_ms + job.delete_retention_ms
        self._horizon_ms = horizon if horizon <= _TIME_MAX else _NO_HORIZON
        self._last_data = np.sort(
            np.array([last.last_data_offset for last in job.last_of_producers.values()], np.int64)
        )
        self._old_horizon_ms = _old_horizon_ms(job.segments, job.first_dirty_offset, job.delete_retention_ms)

    def read(self, group: Sequence[SourceSegment], out: CleanedSegmentWriter) -> None:
        """Write what is left of a group. Raises CleaningFailed, OSError."""
        state = self._state
        for segment in group:
            keeps_old_tombstones = segment.modified_ns // 1_000_000 > self._old_horizon_ms
            for piece in read_pieces(state.files, state.path_of(segment), segment.size_bytes, state.piece_bytes):
                state.took(len(piece.data))
                state.stats.bytes_read += len(piece.data)
                if piece.batches is None:
                    self._clean_old(piece, keeps_old_tombstones, out)
                else:
                    self._clean(piece, piece.batches, out)
                del piece  # the next one is read into its memory

    def _clean(self, piece: Piece, batches: Batches, out: CleanedSegmentWriter) -> None:
        self._survivors.reach(int(batches.base_offset[0]))
        fate = self._judge(piece, batches, out)
        count = batches.record_count
        looked_at = (fate.kept == _UNKNOWN) | fate.is_new | ((fate.kept > 0) & (fate.kept < count))
        # what lies before the dirty range nobody has looked at yet, and its header alone may let a batch go
        piece.check(np.flatnonzero(looked_at | (batches.last_offset < self._state.job.first_dirty_offset)))
        rows = np.flatnonzero(looked_at)
        changed: list[Changed] = []
        for group in unpack(piece, rows, self._state.codecs):
            try:
                changed.append(self._rebuild(piece, batches, group, fate))
            except Corrupt as error:
                raise corrupt(piece, group, error) from None
            del group
        stays_empty = (fate.kept == 0) & self._are_last_of_producers(batches)
        data, size, last, latest = assemble(piece, batches, fate.kept, stays_empty, changed)
        self._count(batches, fate.kept, out)
        self._write(out, data, size, last, latest)

    def _judge(self, piece: Piece, batches: Batches, out: CleanedSegmentWriter) -> _Fate:
        """All that can be said without looking at records."""
        count = batches.record_count
        is_control = batches.is_control
        over, stay = self._transactions.see_piece(piece, np.ones(len(batches), np.bool_))
        for txn in stay:
            out.add_aborted(txn)
        has_horizon = (batches.heads["attributes"] & DELETE_HORIZON) != 0
        horizon = np.where(has_horizon, batches.column("base_timestamp"), _NO_HORIZON)
        is_due = has_horizon & (horizon <= self._now_ms)
        kept = np.full(len(batches), _UNKNOWN)
        kept[is_control] = count[is_control]
        goes = over & (~is_control | is_due)
        kept[goes | (count == 0)] = 0
        stats = self._state.stats
        stats.aborted_dropped += int(count[goes & ~is_control].sum())
        stats.markers_dropped += int(count[goes & is_control].sum())
        is_new = is_control & over & ~has_horizon & (count > 0)
        base, last = batches.base_offset, batches.last_offset
        is_covered = (kept == _UNKNOWN) & (last - base + 1 == count) & self._survivors.covers(base, last)
        rows = np.flatnonzero(is_covered)
        if len(rows):
            survivors, tombstones = self._survivors.between(base[rows], last[rows])
            due = is_due[rows]
            kept[rows] = np.where(due, survivors - tombstones, survivors)
            stats.tombstones_dropped += int(tombstones[due].sum())
            is_new[rows] = (tombstones > 0) & ~has_horizon[rows]
        fate = _Fate(kept, is_covered, is_due, horizon, is_new)
        self._give_horizon(fate)
        return fate

    def _give_horizon(self, fate: _Fate) -> None:
        if self._horizon_ms == _NO_HORIZON:
            fate.is_new[:] = False
        fate.horizon[fate.is_new] = self._horizon_ms

    def _rebuild(self, piece: Piece, batches: Batches, group: Unpacked, fate: _Fate) -> Changed:
        """Decide about the records of a group, and build those of its batches again that have to be. Raises Corrupt."""
        rows, first = group.rows, group.first
        keep = self._keep(piece, batches, group, fate)
        kept = np.add.reduceat(keep, first, dtype=np.int64)
        fate.kept[rows] = kept
        is_built = (kept > 0) & ((kept < group.record_count) | fate.is_new[rows])
        keep &= np.repeat(is_built, group.record_count)
        built = rows[is_built]
        if not len(built):
            return Changed(built, [], np.empty(0, np.int64), np.empty(0, np.int64), fate.horizon[built])
        times = Times(
            batches.column("base_timestamp")[built],
            fate.horizon[built],
            batches.is_log_append_time[built],
            batches.column("max_timestamp")[built],
        )
        at = np.flatnonzero(keep)
        bodies = build_bodies(
            group.data, group.begin[at], group.end[at], kept[is_built], times, batches.codec[built], self._state.codecs
        )
        return Changed(built, bodies.body, bodies.base_timestamp, bodies.max_timestamp, fate.horizon[built])

    def _keep(self, piece: Piece, batches: Batches, group: Unpacked, fate: _Fate) -> Flags:
        """Which records of a group stay. Raises CleaningFailed, Corrupt."""
        rows, first = group.rows, group.first
        is_control, is_covered = batches.is_control[rows], fate.is_covered[rows]
        keep = np.zeros(len(group.begin), np.bool_)
        if is_control.any():
            keep |= np.repeat(is_control, group.record_count)
        by_offset = np.flatnonzero(is_covered)
        if len(by_offset):
            base = batches.base_offset[rows[by_offset]]
            batch, offset = self._survivors.offsets_between(base, batches.last_offset[rows[by_offset]])
            at = offset + (first[by_offset] - base)[batch]
            due = fate.is_due[rows[by_offset]]
            keep[at] = True if not due.any() else ~(due[batch] & self._survivors.are_tombstones(offset))
        by_key = np.repeat(~is_control & ~is_covered, group.record_count)
        if by_key.any():
            offsets = offsets_of(piece, group)
            row_of = np.repeat(rows, group.record_count)
            at = np.flatnonzero(by_key)
            for block in range(0, len(at), _BLOCK_ROWS):
                some = at[block : block + _BLOCK_ROWS]
                keep[some] = self._keep_by_key(group, fate, some, offsets[some], row_of[some])
        return keep

    def _keep_by_key(self, group: Unpacked, fate: _Fate, at: Array, offset: Array, row_of: Array) -> Flags:
        try:
            keys = read_keys(group.data, group.begin[at], group.end[at])
        except Corrupt as error:
            raise Corrupt(int(at[error.row]), error.why) from None
        keep = self._survivors.look_up(group.data, keys, offset)
        self._count_keyless(keys, keep, offset)
        tombstone = keep & keys.is_tombstone
        if tombstone.any():
            due = tombstone & fate.is_due[row_of] & (offset <= self._survivors.latest_offset)
            self._state.stats.tombstones_dropped += int(np.count_nonzero(due))
            keep &= ~due
            stays = row_of[tombstone & ~due]
            fate.is_new[stays[fate.horizon[stays] == _NO_HORIZON]] = True
            self._give_horizon(fate)
        return keep

    def _count_keyless(self, keys: RecordKeys, keep: Flags, offset: Array) -> None:
        """Those of the dirty range were counted in the first reading."""
        keyless = ~keys.is_there & ~keep & (offset < self._state.job.first_dirty_offset)
        self._state.stats.keyless_dropped += int(np.count_nonzero(keyless))

    def _are_last_of_producers(self, batches: Batches) -> Flags:
        """Whether a batch must not vanish, for nothing else is known of its producer."""
        found = np.zeros(len(batches), np.bool_)
        producers = self._state.job.last_of_producers
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

    def _count(self, batches: Batches, kept: Array, out: CleanedSegmentWriter) -> None:
        stats = self._state.stats
        count = int(kept.sum())
        stats.records_read += int(batches.record_count.sum())
        stats.records_kept += count
        out.record_count += count
        out.control_record_count += int(kept[batches.is_control].sum())

    def _write(self, out: CleanedSegmentWriter, data: memoryview, size: Array, last: Array, latest: Array) -> None:
        if len(data):
            self._state.stats.bytes_kept += len(data)
            out.append(data, size, last, latest)
            self._state.gave(len(data))

    # formats v0 and v1

    def _clean_old(self, piece: Piece, keeps_tombstones: bool, out: CleanedSegmentWriter) -> None:
        sets = LegacySets(piece, self._survivors, keeps_tombstones, self._state.stats)
        data, size, last, latest = sets.clean()
        out.record_count += sets.kept
        self._write(out, data, size, last, latest)


def _old_horizon_ms(segments: Sequence[SourceSegment], first_dirty_offset: int, delete_retention_ms: int) -> int:
    """In segments that were last written before that time, tombstones of formats v0 and v1 go."""
    clean = [segment for segment in segments if segment.base_offset < first_dirty_offset]
    return clean[-1].modified_ns // 1_000_000 - delete_retention_ms if clean else 0
