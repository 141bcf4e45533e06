"""Plan of a read: the splits of segment files, decided once, so that every task sees the same end of the log.

    options -> discovery: partitions and their replicas
            -> bounds: log start, end, last stable offset; the offsets that positions and timestamps mean
            -> splits: parts of segments, equal in bytes, for one task each

The end is the last batch that is whole and has a right checksum at the time of planning: a batch that a running broker
is just writing, or that a crash left torn, is in no split. For read_committed the log ends at its last stable offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from kafkalite.common.errors import StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.reader.planning.bounds import Bounds, DataDirectories, find_bounds, resolve
from kafkalite.reader.planning.discovery import wanted_partitions
from kafkalite.reader.planning.read_options import Limit, ReadOptions
from kafkalite.reader.planning.split import Split, overlapping
from kafkalite.reader.planning.splits import PartitionPlan, divide, find_spans

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
_SPLIT_BYTES_MIN = 4 << 20  # below this a task costs more than its bytes
_SPLITS_PER_CORE = 3

_T = TypeVar("_T")


class OffsetRange(NamedTuple):
    """The offsets [start, end) of a partition."""

    start: int
    end: int


def plan(options: ReadOptions, *, parallelism: int = 0) -> list[Split]:
    """The splits to read, in the order of topics, partitions and offsets.

    With `parallelism`, the number of tasks that run at a time, a small read is divided among them. Raises ConfigError
    for topics and offsets that are not there, StorageError for files that cannot be read.
    """

    def once() -> list[Split]:
        plans = []
        for of, bounds in _all_bounds(options, options.start, options.end):
            plans.append(_plan(options, of, bounds, OffsetRange(*resolve(options, of, bounds))))
        return _divide(options, plans, parallelism)

    return _steady(once)


def current_offsets(options: ReadOptions) -> dict[TopicPartition, OffsetRange]:
    """The offsets that each partition has now: from its log start to the end for a consumer.

    Positions in the options may leave out partitions that have come since. Raises as `plan`.
    """
    return _steady(lambda: {of: OffsetRange(one.log_start, one.end) for of, one in _all_bounds(options)})


def offset_ranges(options: ReadOptions) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets that the options ask for in each partition, also where there are none between. Raises as `plan`."""
    return _steady(lambda: dict(_requested(options)))


def plan_ranges(
    options: ReadOptions, ranges: Mapping[TopicPartition, OffsetRange], *, parallelism: int = 0
) -> list[Split]:
    """The splits of these offsets, without the positions in the options: for a micro-batch of a stream.

    Offsets that are gone, or partitions, are a StorageError that names them, or are logged and left out without
    failOnDataLoss. Raises as `plan` besides.
    """

    def once() -> list[Split]:
        plans, missing = [], dict(ranges)
        for of, bounds in _all_bounds(options):
            if of in missing:
                wanted = _present(options, of, bounds, missing.pop(of))
                plans.append(_plan(options, of, bounds, wanted))
        for of, (start, end) in missing.items():
            if end > start:
                _lose(options, of, start, end, "there is no such partition any more")
        return _divide(options, plans, parallelism)

    return _steady(once)


def _requested(options: ReadOptions) -> Iterator[tuple[TopicPartition, tuple[int, int]]]:
    for of, bounds in _all_bounds(options, options.start, options.end):
        yield of, resolve(options, of, bounds)


def _all_bounds(options: ReadOptions, *limits: Limit) -> Iterator[tuple[TopicPartition, Bounds]]:
    directories = DataDirectories()
    for of, replicas in wanted_partitions(options, *limits).items():
        yield of, find_bounds(of, replicas, directories, read_committed=options.read_committed)


def _present(options: ReadOptions, of: TopicPartition, bounds: Bounds, wanted: OffsetRange) -> OffsetRange:
    start, end = wanted
    if start < min(end, bounds.log_start):
        _lose(options, of, start, min(end, bounds.log_start), f"the log begins at {bounds.log_start}")
    if end > max(start, bounds.end):
        _lose(options, of, max(start, bounds.end), end, f"the log ends at {bounds.end}")
    start = min(max(start, bounds.log_start), bounds.end)
    return OffsetRange(start, max(start, min(end, bounds.end)))


def _lose(options: ReadOptions, of: TopicPartition, start: int, end: int, why: str) -> None:
    what = f"offsets {start} to {end - 1} of {of[0]}-{of[1]} are gone: {why}"
    if options.fail_on_data_loss:
        raise StorageError(f"{what}; set failOnDataLoss to false to continue with what is left")
    logger.warning("%s", what)


def _plan(options: ReadOptions, of: TopicPartition, bounds: Bounds, wanted: OffsetRange) -> PartitionPlan:
    spans = find_spans(bounds.directory, bounds.ranges(), wanted.start, wanted.end, options.row_filter)
    aborted = overlapping(bounds.aborted, wanted.start, wanted.end) if spans else ()
    return PartitionPlan(of, bounds.directory, spans, aborted, options.row_filter)


def _divide(options: ReadOptions, plans: Sequence[PartitionPlan], parallelism: int) -> list[Split]:
    total = sum(one.size_bytes for one in plans)
    size = options.max_partition_bytes
    if parallelism:
        size = min(size, max(_SPLIT_BYTES_MIN, -(-total // (parallelism * _SPLITS_PER_CORE))))
    if options.min_partitions > 1:
        size = max(1, min(size, -(-total // options.min_partitions)))
    return divide(plans, size, options.max_records_per_partition)


def _steady(read_files: Callable[[], _T]) -> _T:
    """The result of `read_files`, repeated when retention or compaction has removed a file meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            return read_files()
        except FileNotFoundError as error:
            if attempt == _ATTEMPTS - 1:
                raise StorageError(f"{error.filename} went away while it was looked at; run the query again") from None
    raise AssertionError("the last attempt returns or raises")
