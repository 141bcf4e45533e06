"""The cleaning of one log: builds an offset map of the dirty range, then rewrites segments without superseded records.

    1  build the offset map    the latest offset of every key in the dirty range, as far as the map has room
    2  group segments          neighbours that fit into one, up to the end of the map
    3  clean segments          group by group, the retained records go to `.cleaned` files, which are complete and on
                               the disk before `swap` is called

The retained records, their batches' headers, and the bytes of uncompressed batches are those that Apache Kafka's
cleaner leaves. A job is values, not a log object, so it can be performed in another process.
Source: kafka.log.Cleaner (doClean, cleanSegments, groupSegmentsBySize); KIP-58, KIP-98, KIP-354, KIP-534.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from kafkalite.cleaner.columns.segment_reader import PIECE_BYTES
from kafkalite.cleaner.compaction.build_offset_map import OffsetMapBuilder
from kafkalite.cleaner.compaction.clean_context import CleanContext
from kafkalite.cleaner.compaction.clean_segments import SegmentCleaner
from kafkalite.cleaner.compaction.cleaned_segment_writer import CleanedSegmentWriter
from kafkalite.cleaner.compaction.retained_records import RetainedRecords
from kafkalite.cleaner.compaction.skimpy_offset_map import SkimpyOffsetMap
from kafkalite.cleaner.compaction.transaction_metadata import read_aborted
from kafkalite.cleaner.job.job import CleaningFailed, CleanJob, CleanResult
from kafkalite.common.clock import monotonic_s
from kafkalite.config.settings import INT_MAX
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.storage.files import Files


def clean(
    job: CleanJob,
    files: Files,
    swap: Callable[[CleanedSegment], bool],
    throttle: Callable[[int], None] = lambda count: None,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> CleanResult:
    """Clean the log of `job`. `swap` returns whether to go on; `throttle` gets the size of every piece that was read or
    written, and may wait.

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
