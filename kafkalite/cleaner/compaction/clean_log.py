"""The cleaning of one log: builds an offset map of the dirty range, then rewrites segments without superseded records.

    1  build the offset map    the latest offset of every key in the dirty range, as far as the map has room
    2  group segments          neighbours that fit into one, up to the end of the map
    3  clean segments          group by group, the retained records go to `.cleaned` files, which are complete and on
                               the disk before `swap` is called

Control batches, data of aborted transactions and records without a key are left out of the map. When it is full,
building ends, possibly within a batch: the log is then cleaned up to there, and the next cleaning continues. Every
checksum is verified, since corrupt data must not be written again with a valid checksum.
The retained records, their batches' headers, and the bytes of uncompressed batches are those that Apache Kafka's
cleaner leaves. A job is values, not a log object, so it can be performed in another process.
Source: kafka.log.Cleaner (doClean, buildOffsetMap, cleanSegments, groupSegmentsBySize); KIP-58, KIP-98, KIP-354,
KIP-534.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from kafkalite.cleaner.compaction.clean_segments import SegmentCleaner
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
from kafkalite.cleaner.compaction.legacy_messages import keys_of, last_offset, read_entry
from kafkalite.cleaner.compaction.segment_reader import PIECE_BYTES, BatchPiece, CleanContext, LegacyPiece
from kafkalite.cleaner.compaction.skimpy_offset_map import RetainedRecords, SkimpyOffsetMap
from kafkalite.cleaner.compaction.transaction_metadata import TransactionMetadata, read_aborted
from kafkalite.cleaner.job.job import CleaningFailed, CleanJob, CleanResult
from kafkalite.common.clock import monotonic_s
from kafkalite.config.settings import INT_MAX
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.storage.files import Files
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
        for piece in context.pieces(segment):
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


def clean(
    job: CleanJob,
    files: Files,
    swap: Callable[[CleanedSegment], bool],
    throttle: Callable[[int], None] = lambda count: None,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> CleanResult:
    """Clean the log of `job`. `swap` returns whether to continue; `throttle` gets the size of every piece that was read
    or written, and may wait.

    Raises CleaningFailed, OSError, and the exceptions of both callbacks; then the files of the unfinished group are
    removed. Groups that were swapped in before stay: they lack only records that later ones supersede.
    """
    began = monotonic_s()
    aborted = read_aborted(files, job.directory)
    context = CleanContext(job, files, aborted, throttle, max(piece_bytes, job.io_buffer_bytes))
    retained, is_full = _build_offset_map(context)
    stats = context.stats
    stats.map_seconds = monotonic_s() - began
    is_swapped = _clean_segments(context, retained, swap)
    stats.seconds = monotonic_s() - began
    if not is_swapped:
        return CleanResult(job.first_dirty_offset, False, stats)
    return CleanResult(retained.latest_offset + 1, not is_full, stats)


def _build_offset_map(context: CleanContext) -> tuple[RetainedRecords, bool]:
    """The records to retain, and whether the map was full before the end of the dirty range."""
    job = context.job
    offset_map = SkimpyOffsetMap(job.dedupe_buffer_bytes, job.load_factor)
    builder = OffsetMapBuilder(context, offset_map)
    builder.build()
    context.stats.map_keys = offset_map.size
    context.stats.map_utilization = offset_map.size / max(1, offset_map.slots)
    if builder.is_full and builder.latest_offset < job.first_dirty_offset:
        raise CleaningFailed(
            f"{job.topic}-{job.partition}: {job.dedupe_buffer_bytes} bytes are no room for a single key: "
            "raise log.cleaner.dedupe.buffer.size"
        )
    return RetainedRecords(offset_map, job.first_dirty_offset, builder.latest_offset), builder.is_full


def _clean_segments(context: CleanContext, retained: RetainedRecords, swap: Callable[[CleanedSegment], bool]) -> bool:
    """Clean every group up to the end of the map. False when `swap` ended the cleaning."""
    job = context.job
    cleaner = SegmentCleaner(context, retained)
    segments = [segment for segment in job.segments if segment.base_offset <= retained.latest_offset]
    for group in group_segments(segments, job.segment_bytes, job.segment_index_bytes, job.first_uncleanable_offset):
        writer = CleanedSegmentWriter(context.files, job, group[0].base_offset)
        try:
            cleaner.clean(group, writer)
            goes_on = swap(writer.finish(group))
        except BaseException:
            with contextlib.suppress(OSError):  # the next start removes them, too
                writer.remove()
            raise
        if not goes_on:
            writer.remove()
            return False
    return True


def group_segments(
    segments: Sequence[SourceSegment], segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """`segments` in order, in groups that become one segment each. `index_bytes` is the largest size of an index.

    Neighbours are grouped while their present logs and indexes would fit into one segment: compaction leaves little of
    each, and a log must not end up as thousands of small segments. A segment ends where the next one begins, and the
    last one at `first_uncleanable_offset`.
    """
    groups: list[list[SourceSegment]] = []
    size = index = time_index = 0
    for number, segment in enumerate(segments):
        size += segment.size_bytes
        index += segment.index_bytes
        time_index += segment.time_index_bytes
        end_offset = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and size <= segment_bytes
            and index <= index_bytes
            and time_index <= index_bytes
            # an empty one has no offset that an index must express
            and (not segment.size_bytes or end_offset - 1 - groups[-1][0].base_offset <= INT_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index, time_index = segment.size_bytes, segment.index_bytes, segment.time_index_bytes
    return groups
