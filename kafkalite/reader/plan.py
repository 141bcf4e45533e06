"""Plan of a read: the chunks of segment files, decided once, so that every task sees the same end of the log.

A chunk is a run of whole batches in one segment, about CHUNK_BYTES of it, cut where the segment's offset index knows
that a batch begins. The end is the last batch that is whole and has a right checksum at the time of planning: a batch
that a running broker is just writing, or that a crash left torn, is in no chunk.
A chunk carries the header of its first batch, by which the reader sees whether the file is still the same one, and for
read_committed the aborted transactions that it has records of; the log ends at its last stable offset then.
Source: org.apache.kafka.storage.internals.log.OffsetIndex (what an entry means), LocalLog (names of files).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.storage.checkpoint_file import read_offsets
from kafkalite.log.storage.file_names import (
    LOG,
    LOG_STARTS,
    SWAP,
    parse_partition_directory,
    parse_segment_file,
    partition_directory,
)
from kafkalite.log.storage.files import Files
from kafkalite.reader.options import EARLIEST, LATEST, Offsets, ReadOptions
from kafkalite.reader.row_filter import EVERY_ROW, RowFilter
from kafkalite.reader.segment_file import SegmentFile
from kafkalite.reader.transactions import overlapping, read_transactions
from kafkalite.record.batch import HEADER_BYTES, parse_header

CHUNK_BYTES = 64 << 20
_ATTEMPTS = 3


class Chunk(NamedTuple):
    """Whole batches in `[position, position + size_bytes)` of a segment; of their records those in the offset range."""

    topic: str
    partition: int
    path: str
    position: int
    size_bytes: int
    head: bytes  # the header of the first batch, as planning saw it
    start_offset: int
    end_offset: int  # exclusive
    aborted: tuple[AbortedTxn, ...] = ()
    row_filter: RowFilter = EVERY_ROW


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


def plan(options: ReadOptions, chunk_bytes: int = CHUNK_BYTES) -> list[Chunk]:
    """The chunks to read, in the order of topics, partitions and offsets.

    Raises ConfigError for topics and offsets that are not there, StorageError for files that cannot be read.
    """
    for attempt in range(_ATTEMPTS):
        try:
            plans = [_plan_partition(options, topic, partition) for topic, partition in _wanted(options)]
            total = sum(span.end_position - span.position for each in plans for span in each.spans)
            size = max(1, min(chunk_bytes, -(-total // options.min_partitions)))
            return [chunk for each in plans for span in each.spans for chunk in _cut(each, span, size)]
        except FileNotFoundError as error:  # retention or compaction took it between two looks
            if attempt == _ATTEMPTS - 1:
                raise StorageError(f"{error.filename} went away while it was looked at; run the query again") from None
    raise AssertionError("the last attempt returns or raises")


def _wanted(options: ReadOptions) -> list[TopicPartition]:
    """The topics and partitions that the options ask for. ConfigError names one that is not there."""
    try:
        names = [entry.name for entry in os.scandir(options.path) if entry.is_dir()]
    except OSError as error:
        raise ConfigError(f"cannot read the data directory {options.path}: {error.strerror}") from None
    there: dict[str, list[int]] = {}
    for name in names:
        found = parse_partition_directory(name)
        if found is not None:
            there.setdefault(found[0], []).append(found[1])
    if options.topic_pattern is not None:
        chosen = {topic: there[topic] for topic in there if re.fullmatch(options.topic_pattern, topic)}
    elif options.assigned is not None:
        chosen = {topic: list(partitions) for topic, partitions in options.assigned.items()}
    else:
        chosen = {topic: there.get(topic, []) for topic in options.topics or ()}
    for topic, partitions in chosen.items():
        if topic not in there:
            known = ", ".join(sorted(there)[:20]) or "none"
            raise ConfigError(f"there is no topic {topic!r} in {options.path}; topics there: {known}")
        for partition in partitions:
            if partition not in there[topic]:
                raise ConfigError(f"topic {topic!r} has no partition {partition} in {options.path}")
    for name, offsets in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        _check_named(name, offsets, chosen)
    return [(topic, partition) for topic in sorted(chosen) for partition in sorted(chosen[topic])]


def _check_named(name: str, offsets: Offsets, chosen: Mapping[str, list[int]]) -> None:
    """Offsets as JSON must name exactly the partitions that are read."""
    if isinstance(offsets, int):
        return
    named = {(topic, partition) for topic in offsets for partition in offsets[topic]}
    read = {(topic, partition) for topic in chosen for partition in chosen[topic]}
    for topic, partition in sorted(named ^ read):
        fault = "does not name" if (topic, partition) in read else "names, though it is not read,"
        raise ConfigError(f"the option {name!r} {fault} partition {partition} of topic {topic!r}")


def _plan_partition(options: ReadOptions, topic: str, partition: int) -> PartitionPlan:
    directory = os.path.join(options.path, partition_directory(topic, partition))
    bases = _segments(directory)
    if not bases:
        return PartitionPlan(topic, partition, 0, 0, [])
    with SegmentFile(directory, bases[-1]) as last:
        last_position, log_end = last.end()
    starts = read_offsets(Files(), os.path.join(options.path, LOG_STARTS))
    log_start = max(bases[0], starts.get((topic, partition), 0))
    aborted: tuple[AbortedTxn, ...] = ()
    segment_end = log_end
    if options.read_committed:
        log_end, aborted = read_transactions(directory, bases, last_position, log_end, log_start)
    start = _resolve(options, "startingOffsets", options.starting_offsets, topic, partition, log_start, log_end)
    end = _resolve(options, "endingOffsets", options.ending_offsets, topic, partition, log_start, log_end)
    if start > end:
        raise ConfigError(f"startingOffsets of {topic}-{partition} is {start}, after its endingOffsets, {end}")
    spans = []
    for base, next_base in zip(bases, [*bases[1:], segment_end], strict=True):
        if base < end and next_base > start:
            with SegmentFile(directory, base) as segment:
                end_position = last_position if base == bases[-1] else segment.size_bytes
                spans.append(_span(directory, segment, end_position, start, end))
    return PartitionPlan(topic, partition, start, end, spans, overlapping(aborted, start, end))


def _segments(directory: str) -> list[int]:
    """The base offsets of a partition's segments, ascending."""
    bases = []
    for entry in os.scandir(directory):
        parsed = parse_segment_file(entry.name)
        if parsed is not None and parsed[1] == LOG:
            if parsed[2] == SWAP:
                raise StorageError(
                    f"compaction is switching segments in {directory}; run the query again, "
                    "and if no broker is running there, start it once so that it finishes"
                )
            if not parsed[2]:
                bases.append(parsed[0])
    return sorted(bases)


def _resolve(
    options: ReadOptions, name: str, offsets: Offsets, topic: str, partition: int, log_start: int, log_end: int
) -> int:
    """The offset that the option means for this partition, of those that are there."""
    offset = offsets if isinstance(offsets, int) else offsets[topic][partition]
    if offset == EARLIEST:
        return log_start
    if offset == LATEST:
        return log_end
    if options.fail_on_data_loss and not log_start <= offset <= log_end:
        raise ConfigError(
            f"{name} of {topic}-{partition} is {offset}, but offsets {log_start} to {log_end} are there; "
            "choose among these, or set failOnDataLoss to false to read what is left"
        )
    return min(max(offset, log_start), log_end)


def _span(directory: str, segment: SegmentFile, end_position: int, start: int, end: int) -> Span:
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


def _cut(plan: PartitionPlan, span: Span, chunk_bytes: int) -> list[Chunk]:
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
