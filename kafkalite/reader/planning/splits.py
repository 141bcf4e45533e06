"""Splits of the wanted parts of partitions: equal in bytes, cut between batches, few for many small segments.

A partition larger than the target is divided into equal parts. A cut that falls near the border of two segments is
moved to it; another one is moved to the next batch, by the segment's index and the headers behind it. Only then
is a segment opened, and where the range of offsets begins and ends. Partitions smaller than the target share a split
with their neighbours; the records of one partition stay in one split and in order, so that nothing but the number of
tasks has the difference.
With a limit of records a partition is divided into equal ranges of offsets, as Spark does; such a cut may lie inside
of a batch, which both sides read.
A chunk whose file is no longer the one that was planned is relocated. Compaction puts another file in the place of one
or several: the offsets of the chunk are searched in the segments that are there now. A late consumer sees the same:
records that later ones have superseded are gone. Offsets that retention took, or recovery cut off, are lost.
Source: org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator; kafka.log.LocalLog.replaceSegments.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.segment.segment_file import Place, SegmentFile
from kafkalite.log.storage.file_names import LOG, segment_stem
from kafkalite.reader.planning.bounds import SegmentRange, earlier_up_to
from kafkalite.reader.planning.discovery import list_segments
from kafkalite.reader.planning.split import LOWEST, Chunk, RowFilter, Split, overlapping

_OPEN_BYTES = 64 << 10  # read in the time that it takes to open a file: 40 us
_SNAP = 8  # a cut moves to the border of a segment if that is within this part of a split


class Span(NamedTuple):
    """Wanted batches of one segment, in the positions [start, end), and the offsets [first, stop) wanted of them."""

    base_offset: int
    start: int
    end: int
    first_offset: int
    stop_offset: int
    file_bytes: int  # of a closed segment; -1 for the last one, which may grow
    head: bytes  # of the first batch; empty if the segment was not opened
    file_id: int = -1  # of the last one

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class PartitionPlan(NamedTuple):
    """The part of one partition to read, in spans that ascend."""

    of: TopicPartition
    directory: str
    spans: Sequence[Span]
    aborted: tuple[AbortedTxn, ...]
    row_filter: RowFilter

    @property
    def size_bytes(self) -> int:
        return sum(span.size_bytes for span in self.spans)


class Cut(NamedTuple):
    """A place between two splits: the first position behind it, in the span of that number, and its offset.

    `before` is the position that the split in front of it reads up to, behind `position` if the cut is in a batch.
    """

    span: int
    position: int
    before: int
    offset: int
    head: bytes = b""  # of the batch behind it; empty at the border of a segment


def find_spans(
    directory: str, segments: Sequence[SegmentRange], start: int, end: int, row_filter: RowFilter
) -> list[Span]:
    """The spans that hold the offsets [start, end), without what the filter rules out. Raises FileNotFoundError."""
    start = max(start, row_filter.min_offset)
    end = min(end, row_filter.max_offset + 1)
    last = len(segments) - 1
    bases = [segment.base_offset for segment in segments]
    spans = []
    for number in range(max(0, bisect_right(bases, start) - 1), last + 1):
        segment = segments[number]
        if segment.base_offset >= end:
            break
        first = max(start, segment.base_offset)
        if row_filter.min_timestamp > LOWEST:
            first = max(first, earlier_up_to(directory, segment, row_filter.min_timestamp))
        stop = min(end, segment.end_offset)
        if first >= stop or not segment.end_position:
            continue
        is_closed = number < last
        if is_closed and first == segment.base_offset and stop == segment.end_offset:
            spans.append(Span(segment.base_offset, 0, segment.end_position, first, stop, segment.end_position, b""))
        elif span := _trimmed(directory, segment, first, stop, is_closed=is_closed):
            spans.append(span)
    return spans


def _trimmed(directory: str, segment: SegmentRange, first: int, stop: int, *, is_closed: bool) -> Span | None:
    start, end = 0, segment.end_position
    with SegmentFile(directory, segment.base_offset) as file:
        if segment.file_id not in (-1, file.file_id):
            raise FileNotFoundError(errno.ENOENT, "replaced by compaction", file.path)
        if first > segment.base_offset:
            place = file.locate(first, end)
            if place is None:
                return None
            start = place[0]
        if stop < segment.end_offset and (place := file.locate(stop, end)) is not None:
            end = _end_before(place, stop)
        head = file.head(start)
        file_id = -1 if is_closed else file.file_id
    file_bytes = segment.end_position if is_closed else -1
    return Span(segment.base_offset, start, end, first, stop, file_bytes, head, file_id) if start < end else None


def _end_before(place: Place, offset: int) -> int:
    """The position behind the last batch with an offset below `offset`, if `place` is the first that reaches it."""
    position, header = place
    first_offset = header.first_offset
    return position if first_offset is not None and first_offset >= offset else position + header.size_bytes


def divide(plans: Iterable[PartitionPlan], split_bytes: int, max_records: int | None) -> list[Split]:
    """The splits of all partitions, each of about `split_bytes` at most, and of at most `max_records` offsets.

    A file counts for a little more than its bytes, since it must be opened.
    """
    open_bytes = min(_OPEN_BYTES, split_bytes // 256)
    splits: list[Split] = []
    pending: list[Chunk] = []
    pending_bytes = pending_offsets = 0
    for plan in plans:
        for chunks in _parts(plan, split_bytes, open_bytes, max_records):
            size = sum(chunk.size_bytes for chunk in chunks) + open_bytes * len(chunks)
            count = chunks[-1].end_offset - chunks[0].start_offset
            is_full = pending_bytes + size > split_bytes
            if pending and (is_full or (max_records is not None and pending_offsets + count > max_records)):
                splits.append(tuple(pending))
                pending, pending_bytes, pending_offsets = [], 0, 0
            pending += chunks
            pending_bytes += size
            pending_offsets += count
    if pending:
        splits.append(tuple(pending))
    return splits


def _parts(plan: PartitionPlan, split_bytes: int, open_bytes: int, max_records: int | None) -> Iterator[list[Chunk]]:
    size = plan.size_bytes
    if not size:
        return
    count = -(-(size + open_bytes * (len(plan.spans) - 1)) // split_bytes)
    if max_records is None:
        cuts = _cuts_by_bytes(plan, size, count)
    else:
        first, stop = plan.spans[0].first_offset, plan.spans[-1].stop_offset
        count = max(count, -(-(stop - first) // max_records))
        cuts = _cuts_by_offset(plan, first, stop, count)
    start, end = _ends(plan)
    for before, after in pairwise([start, *cuts, end]):
        if chunks := _chunks(plan, before, after):
            yield chunks


def whole(plan: PartitionPlan) -> list[Chunk]:
    """The chunks of a partition without a cut."""
    return _chunks(plan, *_ends(plan)) if plan.spans else []


def _ends(plan: PartitionPlan) -> tuple[Cut, Cut]:
    """The cuts in front of the first span and behind the last."""
    first, last = plan.spans[0], plan.spans[-1]
    return Cut(0, first.start, 0, first.first_offset, first.head), Cut(len(plan.spans), 0, 0, last.stop_offset)


def _cuts_by_bytes(plan: PartitionPlan, size: int, count: int) -> Iterator[Cut]:
    """Cuts into `count` parts of about the same size."""
    ends = list(accumulate(span.size_bytes for span in plan.spans))
    snap = size // count // _SNAP
    last = (0, plan.spans[0].start)
    for part in range(1, count):
        wanted = size * part // count
        number = bisect_right(ends, wanted)
        into = wanted - (ends[number - 1] if number else 0)
        cut = None
        if into <= snap:
            cut = _border(plan, number)
        elif ends[number] - wanted <= snap:
            cut = _border(plan, number + 1)
        else:
            cut = _batch_cut(plan, number, plan.spans[number].start + into)
        if cut is not None and cut[:2] > last:
            yield cut
            last = cut[:2]


def _border(plan: PartitionPlan, number: int) -> Cut | None:
    """The cut in front of a span."""
    if number >= len(plan.spans):
        return None
    span = plan.spans[number]
    return Cut(number, span.start, span.start, span.first_offset, span.head)


def _batch_cut(plan: PartitionPlan, number: int, position: int) -> Cut | None:
    """The cut at the first batch behind `position` in a span, or at the next span."""
    span = plan.spans[number]
    with SegmentFile(plan.directory, span.base_offset) as file:
        place = file.batch_from(position, span.end)
        places = file.headers(place[0], span.end) if place is not None else ()
        for at, header in places:
            if (first_offset := header.first_offset) is not None:  # a wrapper has it only in its decompressed records
                if not span.first_offset < first_offset < span.stop_offset:
                    return None
                return Cut(number, at, at, first_offset, file.head(at))
    return _border(plan, number + 1)


def _cuts_by_offset(plan: PartitionPlan, first: int, stop: int, count: int) -> Iterator[Cut]:
    """Cuts into `count` ranges of about as many offsets."""
    stops = [span.stop_offset for span in plan.spans]
    for part in range(1, count):
        offset = first + (stop - first) * part // count
        number = bisect_right(stops, offset)
        span = plan.spans[number]
        if offset <= span.first_offset:
            yield Cut(number, span.start, span.start, offset, span.head)
            continue
        with SegmentFile(plan.directory, span.base_offset) as file:
            place = file.locate(offset, span.end)
            head = b"" if place is None else file.head(place[0])
        if place is None:
            yield Cut(number, span.end, span.end, offset)
        else:
            yield Cut(number, place[0], _end_before(place, offset), offset, head)


def _chunks(plan: PartitionPlan, before: Cut, after: Cut) -> list[Chunk]:
    """The chunks between two cuts, one a segment."""
    chunks = []
    for number in range(before.span, min(after.span, len(plan.spans) - 1) + 1):
        span = plan.spans[number]
        start, head = (before.position, before.head) if number == before.span else (span.start, span.head)
        end = after.before if number == after.span else span.end
        if start < end:
            first, stop = max(span.first_offset, before.offset), min(span.stop_offset, after.offset)
            aborted = overlapping(plan.aborted, first, stop) if plan.aborted else ()
            path = f"{plan.directory}/{segment_stem(span.base_offset)}{LOG}"
            where = (*plan.of, path, start, end - start, head, first, stop)
            chunks.append(Chunk(*where, aborted, plan.row_filter, span.file_bytes, span.file_id))
    return chunks


class Relocation(NamedTuple):
    """The chunks that stand for a chunk now, and the ranges of offsets [first, end) that are lost."""

    chunks: list[Chunk]
    lost: list[tuple[int, int]]


def relocate(chunk: Chunk) -> Relocation:
    """Finds the offsets of `chunk` in its partition's directory. Raises StorageError, Malformed."""
    start = max(chunk.start_offset, chunk.row_filter.min_offset)
    end = min(chunk.end_offset, chunk.row_filter.max_offset + 1)
    if start >= end:
        return Relocation([], [])
    try:
        return _relocated(chunk, start, end)
    except FileNotFoundError:  # with the directory, or between two listings
        return Relocation([], [(start, end)])


def _relocated(chunk: Chunk, start: int, end: int) -> Relocation:
    directory = os.path.dirname(chunk.path)
    segments = list_segments(directory)
    bases = list(segments.sizes)
    if not bases:
        return Relocation([], [(start, end)])
    with SegmentFile(directory, bases[-1]) as last:
        last_position, log_end = last.end()
    first, stop = min(max(start, bases[0]), end), max(min(end, log_end), start)
    ranges = [*map(SegmentRange, bases, [*bases[1:], log_end], [*list(segments.sizes.values())[:-1], last_position])]
    spans = find_spans(directory, ranges, first, stop, chunk.row_filter)
    plan = PartitionPlan((chunk.topic, chunk.partition), directory, spans, chunk.aborted, chunk.row_filter)
    lost = [(one, other) for one, other in ((start, first), (max(first, stop), end)) if one < other]
    # a mount that gives a file another inode each time must not end in an error: here the file was just opened
    return Relocation([each._replace(file_id=-1) for each in whole(plan)], lost)
