"""Records, bytes, first and last record of every partition, counted exactly.

    python -m spark_jobs.count --data-dir ./kafkalite-data --topic orders

Records are counted from the headers of batches wherever no record must be read, in tasks spread over the cluster.
Bytes are those of the batches on the disk. `kafkalite log count` counts the same on one machine, with control records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from pyspark.sql import SparkSession

from kafkalite.common.names import TopicPartition
from kafkalite.reader.chunk_reader import count_as_asked
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import offset_ranges, plan
from kafkalite.reader.planning.read_options import ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.reader.topic_reader import TopicReader
from kafkalite.spark.worker_process import make_reuse_cheap
from spark_jobs.job import add_source, new_parser, print_table, run_job, source_options, time_text
from spark_jobs.load import between

_TASKS_PER_CORE = 3
_PARTS_PER_TASK = 8  # on a cluster whose cores are not known yet; 512 MB
_LOOK_BACK = (1, 1 << 10, 1 << 20)  # offsets before the end that are searched for the last record

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

Record = tuple[int, str]
"""Offset, and timestamp as text."""


class PartitionCount(NamedTuple):
    """Of the records that are wanted; `first` and `last` are None where there is none."""

    records: int
    bytes: int
    first: Record | None
    last: Record | None


def count(spark: SparkSession, options: Mapping[str, str]) -> dict[TopicPartition, PartitionCount]:
    """Every partition that the options ask for. Raises ConfigError, StorageError, or Spark's error of a task."""
    ranges = offset_ranges(parse_options(options))
    exact = parse_options(between(options, ranges))
    splits = plan(exact)
    records, sizes = dict.fromkeys(ranges, 0), dict.fromkeys(ranges, 0)
    for key, found, size in _spread(spark, splits, partial(count_split, exact), task_count(spark, splits)):
        records[key] += found
        sizes[key] += size
    there = {key: bounds for key, bounds in ranges.items() if records[key]}
    one_each = [(key, bounds, between(options, {key: bounds})) for key, bounds in there.items()]
    ends = {key: (first, last) for key, first, last in _spread(spark, one_each, _ends, task_count(spark, one_each))}
    return {key: PartitionCount(records[key], sizes[key], *ends.get(key, (None, None))) for key in ranges}


def task_count(spark: SparkSession, parts: Sequence[object]) -> int:
    """The tasks among which so many parts are shared out. Where headers suffice, a split of 64 MB takes 10 ms, no
    longer than Spark takes to start a task.
    """
    most = max(_TASKS_PER_CORE * spark.sparkContext.defaultParallelism, -(-len(parts) // _PARTS_PER_TASK))
    return min(len(parts), most)


def count_split(options: ReadOptions, split: Split) -> list[tuple[TopicPartition, int, int]]:
    """Records and bytes of each chunk of a split. Raises as a read with these options does."""
    make_reuse_cheap()
    return [((chunk.topic, chunk.partition), count_as_asked((chunk,), options), chunk.size_bytes) for chunk in split]


def _ends(task: tuple[TopicPartition, tuple[int, int], dict[str, str]]) -> list[tuple[TopicPartition, Record, Record]]:
    """The first and the last record of a partition; none where retention has deleted all since the count."""
    make_reuse_cheap()
    key, (start, end), options = task
    first = _first_of(options)
    if first is None:
        return []
    for look_back in (*_LOOK_BACK, end - start):
        last = _last_of(between(options, {key: (max(start, end - look_back), end)}))
        if last is not None:
            return [(key, first, last)]
    return []


def _first_of(options: Mapping[str, str]) -> Record | None:
    for batch in TopicReader(options, ("offset", "timestamp")).batches():
        if batch.num_rows:
            return _record(batch, 0)
    return None


def _last_of(options: Mapping[str, str]) -> Record | None:
    last = None
    for batch in TopicReader(options, ("offset", "timestamp")).batches():
        if batch.num_rows:
            last = _record(batch, batch.num_rows - 1)
    return last


def _record(batch: object, row: int) -> Record:
    offset, micros = batch.column(0)[row].as_py(), batch.column(1)[row].value  # type: ignore[attr-defined]
    return offset, time_text(micros)


def _spread(
    spark: SparkSession, parts: Sequence[_Part], work: Callable[[_Part], Iterable[_Result]], tasks: int
) -> list[_Result]:
    """The results of all parts, which so many tasks of Spark share."""
    if not parts:
        return []
    results: list[_Result] = spark.sparkContext.parallelize(parts, tasks).flatMap(work).collect()
    return results


def job(spark: SparkSession, options: argparse.Namespace) -> None:
    rows: list[tuple[object, ...]] = []
    counts = count(spark, source_options(options))
    for (topic, partition), found in counts.items():
        ends = (*(found.first or ("", "")), *(found.last or ("", "")))
        rows.append((topic, partition, found.records, found.bytes, *ends))
    total = (sum(found.records for found in counts.values()), sum(found.bytes for found in counts.values()))
    rows.append(("total", len(counts), *total, "", "", "", ""))
    names = ("topic", "partition", "records", "bytes", "first", "at", "last", "at")
    print_table(names, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = new_parser("count", "Count the records of every partition exactly.")
    add_source(parser)
    return run_job(parser, job, arguments)


if __name__ == "__main__":
    sys.exit(main())
