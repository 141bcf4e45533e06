"""One pass over a log: read what is dirty, then write every segment again without what nobody needs.

    1  first reading    the dirty range into the map: the latest offset of every key, as far as the map has room
    2  groups           neighbouring segments that fit into one, up to where the map came
    3  second reading   group by group: what survives goes to `.cleaned` files, which are complete and on the disk
                        before `swap` is told of them

The records that are left, their batches' headers, and the bytes of what is not packed are those that Apache Kafka's
cleaner leaves. Nothing here knows the log as an object: a job is values, so it can be done in another process.
Source: kafka.log.Cleaner (doClean, cleanSegments); KIP-58, KIP-98, KIP-354, KIP-534.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from kafkalite.cleaner.columns.segment_reader import PIECE_BYTES
from kafkalite.cleaner.compaction.build_offset_map import OffsetMapBuilder
from kafkalite.cleaner.compaction.clean_context import CleanContext
from kafkalite.cleaner.compaction.clean_segments import SegmentCleaner
from kafkalite.cleaner.compaction.cleaned_segment_writer import CleanedSegmentWriter
from kafkalite.cleaner.compaction.retained_records import RetainedRecords
from kafkalite.cleaner.compaction.segment_groups import group_segments
from kafkalite.cleaner.compaction.skimpy_offset_map import SkimpyOffsetMap
from kafkalite.cleaner.compaction.transaction_metadata import read_aborted
from kafkalite.cleaner.job.job import CleanedSegment, CleaningFailed, CleanJob, CleanResult
from kafkalite.log.storage.files import Files


def _ignore(count: int) -> None:
    """Nobody waits, nobody looks."""


def clean(
    job: CleanJob,
    files: Files,
    swap: Callable[[CleanedSegment], bool],
    throttle: Callable[[int], None] = _ignore,
    progress: Callable[[int], None] = _ignore,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> CleanResult:
    """Compact the log of `job`. `swap` says whether to go on.

    `throttle` is told of the bytes of every piece that was read or written and may wait; `progress` of those read, in
    both readings. Raises CleaningFailed, OSError, and what those three raise; then nothing is left of the group that
    was being written. Groups that were swapped in before stay: they lack only what later ones have.
    """
    began = time.monotonic()
    aborted = read_aborted(files, job.directory)
    state = CleanContext(job, files, aborted, throttle, progress, max(piece_bytes, job.io_buffer_bytes))
    survivors, is_full = _read_dirty(state)
    stats = state.stats
    stats.map_seconds = time.monotonic() - began
    is_swapped = _rewrite(state, survivors, swap)
    stats.seconds = time.monotonic() - began
    if not is_swapped:
        return CleanResult(job.first_dirty_offset, False, stats)
    return CleanResult(survivors.latest_offset + 1, not is_full, stats)


def _read_dirty(state: CleanContext) -> tuple[RetainedRecords, bool]:
    """The first reading, and whether the map was full before the dirty range ended."""
    job = state.job
    offset_map = SkimpyOffsetMap(job.dedupe_buffer_bytes, job.load_factor)
    first = OffsetMapBuilder(state, offset_map)
    first.read()
    state.stats.map_keys = offset_map.size
    state.stats.map_utilization = offset_map.size / max(1, offset_map.slots)
    if first.is_full and first.latest_offset < job.first_dirty_offset:
        raise CleaningFailed(
            f"{job.topic}-{job.partition}: {job.dedupe_buffer_bytes} bytes are no room for a single key: "
            "raise log.cleaner.dedupe.buffer.size"
        )
    return RetainedRecords(offset_map, job.first_dirty_offset, first.latest_offset), first.is_full


def _rewrite(state: CleanContext, survivors: RetainedRecords, swap: Callable[[CleanedSegment], bool]) -> bool:
    """Every group up to where the map came. False when `swap` said to give up."""
    job = state.job
    second = SegmentCleaner(state, survivors)
    segments = [segment for segment in job.segments if segment.base_offset <= survivors.latest_offset]
    for group in group_segments(segments, job.segment_bytes, job.segment_index_bytes, job.first_uncleanable_offset):
        out = CleanedSegmentWriter(state.files, job, group[0].base_offset)
        try:
            second.read(group, out)
            goes_on = swap(out.finish(group))
        except BaseException:
            with contextlib.suppress(OSError):  # the next start removes them, too
                out.remove()
            raise
        if not goes_on:
            out.remove()
            return False
    return True
