"""Plan of a read: the splits of segment files, decided once, so that every task sees the same end of the log.

The end is the last batch that is whole and has a right checksum at the time of planning: a batch that a running broker
is just writing, or that a crash left torn, is in no split. For read_committed the log ends at its last stable offset.
"""

from __future__ import annotations

import os

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.storage.checkpoint_file import read_offsets
from kafkalite.log.storage.file_names import LOG_STARTS, partition_directory
from kafkalite.log.storage.files import Files
from kafkalite.reader.planning.bounds import resolve
from kafkalite.reader.planning.discovery import segment_bases, wanted_partitions
from kafkalite.reader.planning.read_options import ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.reader.planning.splits import PartitionPlan, cut, group, span_of
from kafkalite.reader.segments.segment_file import SegmentFile
from kafkalite.reader.segments.transactions import overlapping, read_transactions

SPLIT_BYTES = 64 << 20
_ATTEMPTS = 3


def plan(options: ReadOptions, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """The splits to read, in the order of topics, partitions and offsets.

    Raises ConfigError for topics and offsets that are not there, StorageError for files that cannot be read.
    """
    for attempt in range(_ATTEMPTS):
        try:
            plans = [_plan_partition(options, topic, partition) for topic, partition in wanted_partitions(options)]
            total = sum(span.end_position - span.position for each in plans for span in each.spans)
            size = max(1, min(split_bytes, -(-total // options.min_partitions)))
            chunks = (chunk for each in plans for span in each.spans for chunk in cut(each, span, size))
            return list(group(chunks, size))
        except FileNotFoundError as error:  # retention or compaction took it between two looks
            if attempt == _ATTEMPTS - 1:
                raise StorageError(f"{error.filename} went away while it was looked at; run the query again") from None
    raise AssertionError("the last attempt returns or raises")


def offset_ranges(options: ReadOptions) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset and the end (exclusive) of every partition to read, also where there is nothing between them.

    Raises as `plan`.
    """
    plans = [_plan_partition(options, topic, partition) for topic, partition in wanted_partitions(options)]
    return {(one.topic, one.partition): (one.start_offset, one.end_offset) for one in plans}


def _plan_partition(options: ReadOptions, topic: str, partition: int) -> PartitionPlan:
    directory = os.path.join(options.path, partition_directory(topic, partition))
    bases = segment_bases(directory)
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
    start = resolve(options, "startingOffsets", options.starting_offsets, topic, partition, log_start, log_end)
    end = resolve(options, "endingOffsets", options.ending_offsets, topic, partition, log_start, log_end)
    if start > end:
        raise ConfigError(f"startingOffsets of {topic}-{partition} is {start}, after its endingOffsets, {end}")
    spans = []
    for base, next_base in zip(bases, [*bases[1:], segment_end], strict=True):
        if base < end and next_base > start:
            with SegmentFile(directory, base) as segment:
                end_position = last_position if base == bases[-1] else segment.size_bytes
                spans.append(span_of(directory, segment, end_position, start, end))
    return PartitionPlan(topic, partition, start, end, spans, overlapping(aborted, start, end))
