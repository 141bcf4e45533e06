"""The compacted view of topics: for each key of a partition its last value; keys whose last value is null are gone.

    python -m spark_jobs.latest --data-dir ./kafkalite-data --topic users
    python -m spark_jobs.latest --data-dir ./kafkalite-data --topic users --output ./users

It is what log compaction would leave if it went up to the last record: records without a key have no place in it. The
output is Parquet with `_latest.json`, which has the offsets that it was made up to; a later run replaces it whole.
With `--format iceberg` or `delta` it is a table, and a later run merges what is new by key (`spark_jobs.merge_task`).
Records and offsets are in one commit: wherever it is killed, the table is the view up to some offsets, and the next run
goes on there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import offset_ranges, plan
from kafkalite.reader.planning.split import Chunk, Split
from spark_jobs.job import add_source, new_parser, print_table, run_job, say, source_options, time_text
from spark_jobs.load import Run, between, lag, load, resumed, round_of, wanted_columns
from spark_jobs.load_output import as_json
from spark_jobs.merge_task import Merged, MergeTask, merge
from spark_jobs.micro_batches import MicroBatches, Round, add_schedule, parse_schedule, run_micro_batches
from spark_jobs.partitioned_files import file_schema
from spark_jobs.tables.options import TABLE_FORMATS, Table, add_table, maintain, open_table
from spark_jobs.whole_output import replace_whole

STATE = "_latest.json"
COMPRESSION = "zstd"
PARTITION_BY = ("topic", "partition")
"""Of a table: a task has a partition of a topic, which has all records of its keys."""

TASK_BYTES = 128 << 20
"""Of segments, which one task merges at a time: the last records of the keys in them are in memory."""


def latest(rows: DataFrame) -> DataFrame:
    """The rows with the highest offset of each topic, partition and key, without tombstones."""
    others = [name for name in rows.columns if name not in ("topic", "partition", "key")]
    keyed = rows.where(F.col("key").isNotNull()).groupBy("topic", "partition", "key")
    last = keyed.agg(F.max_by(F.struct(*others), F.col("offset")).alias("last"))
    found = last.where(F.col("last.value").isNotNull())
    return found.select(*(name if name not in others else F.col(f"last.{name}") for name in rows.columns))


def write_latest(spark: SparkSession, options: Mapping[str, str], path: str) -> None:
    """Replace the directory `path` by the view as it is now. Raises ConfigError, StorageError."""
    ranges = offset_ranges(parse_options(options))

    def write(directory: str) -> None:
        latest(load(spark, between(options, ranges))).write.option("compression", COMPRESSION).parquet(directory)
        with open(os.path.join(directory, STATE), "w") as file:
            json.dump({"version": 1, "offsets": as_json({key: end for key, (_, end) in ranges.items()})}, file)

    replace_whole(path, STATE, write)


def merge_into(spark: SparkSession, options: Mapping[str, str], table: Table, compression: str) -> Run | None:
    """Merge what is new into a table, of each partition as much as its task holds in memory, in one commit. None if
    there is nothing new. Raises ConfigError, StorageError."""
    bounds = offset_ranges(parse_options(options))
    known = table.offsets(bounds)
    ranges = resumed(options, bounds, known)
    layout = table.layout(file_schema(wanted_columns(options)))
    if set(layout.partitioning) != set(PARTITION_BY):
        raise ConfigError(f"{table.path} must be partitioned by {' and '.join(PARTITION_BY)}, and by nothing else")
    wanted = {key: bounds for key, bounds in ranges.items() if bounds[0] < bounds[1]}
    exact = parse_options(between(options, wanted)) if wanted else None
    chunks, reached = _within_memory([] if exact is None else plan(exact))
    ends = {key: reached.get(key, end) for key, (_, end) in ranges.items()}
    changed = {key: end for key, end in ends.items() if known.get(key) != end}
    if not changed:
        return None
    merged: list[Merged] = []
    if exact is not None and chunks:
        offsets = sum(ends[key] - start for key, (start, _) in wanted.items())
        say(f"latest: {table.path}: {len(chunks)} partitions, {offsets:,} offsets")
        files, directory = table.files(), table.begin()
        tasks = [
            MergeTask(number, of, tuple(split), exact, directory, compression, layout, tuple(files.get(of, ())))
            for number, (of, split) in enumerate(chunks.items())
        ]
        merged = spark.sparkContext.parallelize(tasks, len(tasks)).map(merge).collect()
    written, replaced = [one.written for one in merged], [path for one in merged for path in one.replaced]
    loaded = {of: found for attempt in written for of, found in attempt.loaded.items()}
    return Run(table.commit(written, changed, replaced), loaded)


def _within_memory(splits: Sequence[Split]) -> tuple[dict[TopicPartition, list[Chunk]], dict[TopicPartition, int]]:
    """The chunks of each partition that a task may read at a time, and the ends of those that have more."""
    chosen: dict[TopicPartition, list[Chunk]] = {}
    sizes: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for chunk in (chunk for split in splits for chunk in split):
        key = (chunk.topic, chunk.partition)
        if key in ends:
            continue
        if key in chosen and sizes[key] + chunk.size_bytes > TASK_BYTES:
            ends[key] = chosen[key][-1].end_offset
            continue
        chosen.setdefault(key, []).append(chunk)
        sizes[key] = sizes.get(key, 0) + chunk.size_bytes
    return chosen, ends


def print_summary(rows: DataFrame) -> None:
    """A line for each partition of a topic."""
    found = rows.groupBy("topic", "partition").agg(F.count("*"), F.max("offset"), F.unix_micros(F.max("timestamp")))
    print_table(
        ("topic", "partition", "keys", "last_offset", "last_timestamp"),
        [(*row[:4], time_text(row[4])) for row in found.orderBy("topic", "partition").collect()],
    )


def merge_all(spark: SparkSession, source: Mapping[str, str], options: argparse.Namespace) -> None:
    """Merge up to the ends as they are now, commit by commit; with --every, go on until SIGTERM."""
    schedule = parse_schedule(options)
    if schedule is not None:

        def step() -> Round:
            with open_table(options) as table:
                run = merge_into(spark, source, table, COMPRESSION)
                return round_of(run, lag(source, table))

        batches = MicroBatches("latest", step, lambda retain_ms: maintain(options, retain_ms))
        run_micro_batches(batches, schedule)
        return
    fixed = between(source, offset_ranges(parse_options(source)))
    with open_table(options) as table:
        while (run := merge_into(spark, fixed, table, COMPRESSION)) is not None:
            say(f"latest: {run.path} is complete")
    say(f"latest: nothing more; {options.output} is up to date")


def job(spark: SparkSession, options: argparse.Namespace) -> None:
    source = source_options(options)
    if options.output is not None and options.format in TABLE_FORMATS:
        merge_all(spark, source, options)
        return
    if options.every is not None:
        raise ConfigError("--every needs --output, and --format iceberg or delta")
    if options.output is not None:
        write_latest(spark, source, options.output)
        say(f"latest: {options.output} is complete")
        print_summary(spark.read.parquet(options.output))
        return
    rows = latest(load(spark, source))
    print_summary(rows)
    text = rows.withColumn("key", F.col("key").cast("string")).withColumn("value", F.col("value").cast("string"))
    text.show(options.sample, truncate=80)


def job_parser() -> argparse.ArgumentParser:
    """The options of this job."""
    parser = new_parser("latest", "Show the last value of every key, or write it to Parquet.")
    add_source(parser)
    parser.add_argument("--sample", type=int, default=10, help="rows to show without --output (default 10)")
    parser.add_argument(
        "--output", help="write to this directory, where one that this job has made is replaced, or to this table"
    )
    add_table(parser, "kafkalite-latest", ",".join(PARTITION_BY))
    add_schedule(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_job(job_parser(), job, arguments)


if __name__ == "__main__":
    sys.exit(main())
