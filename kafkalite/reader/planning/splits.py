"""Splits of the wanted parts of segments: cut on batch boundaries, then grouped to about equal sizes.

Cuts lie where the segment's offset index knows that a batch begins.
Source: org.apache.kafka.storage.internals.log.OffsetIndex (what an entry means).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.reader.planning.split import Chunk, Split
from kafkalite.reader.segments.segment_file import SegmentFile
from kafkalite.reader.segments.transactions import overlapping
from kafkalite.record.batch import HEADER_BYTES, parse_header


class Span(NamedTuple):
    """The part of one segment that holds the wanted offsets, and what its index says of it."""

    directory: str
    base_offset: int
    position: int
    end_position: int
    index_offsets: npt.NDArray[np.int64]
    index_positions: npt.NDArray[np.int64]


class PartitionPlan(NamedTuple):
    """The part of one partition to read."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    spans: list[Span]
    aborted: tuple[AbortedTxn, ...] = ()


def span_of(directory: str, segment: SegmentFile, end_position: int, start: int, end: int) -> Span:
    """The batches from the one with offset `start` to the one before `end`, as closely as the index knows."""
    offsets, positions = segment.index()
    position = 0
    floor = int(np.searchsorted(offsets, start, "right")) - 1
    if floor >= 0 and segment.begins(int(positions[floor]), int(offsets[floor])):
        position = int(positions[floor])
    # an entry points to a batch that ends at its offset: the one after the first that reaches `end` is not needed
    beyond = int(np.searchsorted(offsets, end - 1, "left")) + 1
    if beyond < len(offsets) and segment.begins(int(positions[beyond]), int(offsets[beyond])):
        end_position = min(end_position, int(positions[beyond]))
    return Span(directory, segment.base_offset, position, end_position, offsets, positions)


def cut(plan: PartitionPlan, span: Span, chunk_bytes: int) -> list[Chunk]:
    """Chunks of about the same size, each beginning where a batch does."""
    size = span.end_position - span.position
    count = -(-size // chunk_bytes)
    wanted = [span.position + size * i // count for i in range(1, count)]
    entries = np.unique(np.searchsorted(span.index_positions, wanted))
    chunks = []
    with SegmentFile(span.directory, span.base_offset) as segment:
        starts = [span.position] if size else []
        for entry in entries.tolist():
            if entry < len(span.index_positions):
                position = int(span.index_positions[entry])
                offset = int(span.index_offsets[entry])
                if starts[-1] < position < span.end_position and segment.begins(position, offset):
                    starts.append(position)
        end = plan.end_offset
        for start, stop in reversed(list(zip(starts, [*starts[1:], span.end_position], strict=False))):
            head = os.pread(segment.fd, HEADER_BYTES, start)
            base_offset = parse_header(head).base_offset
            where = (plan.topic, plan.partition, segment.path, start, stop - start)
            aborted = overlapping(plan.aborted, base_offset, end) if plan.aborted else ()
            chunks.append(Chunk(*where, head, plan.start_offset, plan.end_offset, aborted))
            end = base_offset
    return chunks[::-1]


def group(chunks: Iterable[Chunk], split_bytes: int) -> Iterator[Split]:
    """Neighbouring chunks together until they have about `split_bytes`, so that small segments are not a task each."""
    pending: list[Chunk] = []
    size = 0
    for chunk in chunks:
        if pending and size + chunk.size_bytes > split_bytes:
            yield tuple(pending)
            pending, size = [], 0
        pending.append(chunk)
        size += chunk.size_bytes
    if pending:
        yield tuple(pending)
