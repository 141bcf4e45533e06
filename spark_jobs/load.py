"""Load topics into Spark: show what there is, or write it to Parquet or a table, by topic and day, each record exactly
once.

    python -m spark_jobs.load --data-dir ./kafkalite-data --topic orders
    python -m spark_jobs.load --data-dir ./kafkalite-data --topic orders,bills --output ./lake
    python -m spark_jobs.load --data-dir ./kafkalite-data --topic orders --format iceberg --output lake.sales.orders

The second form begins where the last run into the same output ended, and `spark.read.parquet("lake")` reads whole runs
only, at any time and wherever a run was killed (`spark_jobs.load_output`). The columns are those of the data source,
`run`, and `day`, the date of the timestamp in UTC. The third form adds a snapshot to an Iceberg or Delta table, with
the offsets behind it in the same commit (`spark_jobs.tables`). `--from` counts for partitions that are new to the
output. Also for `spark-submit`, where kafkalite is installed on the driver and the executors, which see the data
directory and the output under the same paths.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.reader.chunk_reader import COLUMNS
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import offset_ranges, plan
from kafkalite.reader.planning.read_options import ReadOptions
from spark_jobs.decoded_values import Values, add_values, open_values
from spark_jobs.decoding import DeadLetters
from spark_jobs.job import add_source, new_parser, print_table, run_job, say, source_options, time_text
from spark_jobs.load_output import as_json, open_output
from spark_jobs.load_task import Loaded, LoadTask, Written, together, write_split
from spark_jobs.micro_batches import MicroBatches, Round, add_schedule, parse_schedule, run_micro_batches
from spark_jobs.output import Output
from spark_jobs.partitioned_files import COMPRESSIONS, Layout, file_schema
from spark_jobs.tables.options import TABLE_FORMATS, add_table, maintain, open_table

COMPRESSION = "snappy"  # as Spark's own

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""First offset and end (exclusive) of each partition."""


class Run(NamedTuple):
    """A run that is complete: its directory, and its rows by partition; partitions without rows are not named."""

    path: str
    loaded: Mapping[TopicPartition, Loaded]


def load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The rows that these options of the data source ask for."""
    return spark.read.format("kafkalite").options(**options).load()


def describe(rows: DataFrame, sample: int) -> None:
    """Print columns, counts, and the first `sample` rows with keys and values as text."""
    rows.printSchema()
    print_summary(rows)
    text = rows.withColumn("key", F.col("key").cast("string")).withColumn("value", F.col("value").cast("string"))
    text.show(sample, truncate=80)


def print_summary(rows: DataFrame) -> None:
    """A line for each partition of a topic; only small columns are read for it."""
    earliest, latest = (F.unix_micros(of("timestamp")) for of in (F.min, F.max))
    found = rows.groupBy("topic", "partition").agg(F.count("*"), F.min("offset"), F.max("offset"), earliest, latest)
    _print_partitions({(row[0], row[1]): Loaded(*row[2:]) for row in found.collect()})


def _print_partitions(loaded: Mapping[TopicPartition, Loaded]) -> None:
    names = ("topic", "partition", "rows", "first_offset", "last_offset", "first_timestamp", "last_timestamp")
    print_table(names, [(*of, *found[:3], *map(time_text, found[3:])) for of, found in sorted(loaded.items())])


def load_into(
    spark: SparkSession,
    options: Mapping[str, str],
    output: Output,
    compression: str = COMPRESSION,
    columns: Sequence[str] = (),
    values: Values | None = None,
) -> Run | None:
    """Add the records that are not in the output yet as a run, with these columns or all. None if there is nothing new.

    Raises ConfigError, StorageError.
    """
    bounds = offset_ranges(parse_options(options))
    known = output.offsets(bounds)
    ranges = resumed(options, bounds, known)
    schema = file_schema(columns or wanted_columns(options))
    layout = output.layout(schema) if values is None else values.layout(output, schema)
    changed = {key: end for key, (_, end) in ranges.items() if known.get(key) != end}
    if not changed:
        return None
    wanted = {key: bounds for key, bounds in ranges.items() if bounds[0] < bounds[1]}
    written: list[Written] = []
    if wanted:
        offsets = sum(end - start for start, end in wanted.values())
        say(f"load: {output.path}: {len(wanted)} partitions, {offsets:,} offsets")
        dead = None if values is None else values.begin(bounds)
        exact = parse_options(between(options, wanted))
        written = _write(spark, exact, output.begin(), layout, compression, dead)
    if values is not None:
        values.commit(written, changed)  # first: a run that ends before the next commit reads these rows again
    parts: dict[TopicPartition, list[Loaded]] = {}
    for attempt in written:
        for of, loaded in attempt.loaded.items():
            parts.setdefault(of, []).append(loaded)
    return Run(output.commit(written, changed), {of: together(loaded) for of, loaded in parts.items()})


def resumed(options: Mapping[str, str], bounds: Ranges, loaded: Mapping[TopicPartition, int]) -> Ranges:
    """First and end offsets of each partition: from what is loaded on, where something is. Raises ConfigError where
    offsets that come next are gone, unless data loss is to be ignored."""
    ranges = dict(bounds)
    strict = options["failOnDataLoss"] == "true"
    whole = offset_ranges(parse_options(without_bounds(options)))
    for key, offset in loaded.items():
        name = f"{key[0]}-{key[1]}"
        log_start, log_end = whole[key]
        if not log_start <= offset <= log_end:
            if strict:
                raise ConfigError(
                    f"{name} is loaded up to offset {offset}, but offsets {log_start} to {log_end} are there; "
                    "give --ignore-data-loss to continue with what is left, or load into a new output"
                )
            say(f"load: {name} is loaded up to {offset}; going on at {log_start}, the first that is there")
            offset = log_start
        ranges[key] = (offset, max(offset, ranges[key][1]))
    return ranges


def without_bounds(options: Mapping[str, str]) -> dict[str, str]:
    """The options for all that is there."""
    bounds = {name: text for name, text in options.items() if not name.startswith(("starting", "ending"))}
    return {**bounds, "startingOffsets": "earliest", "endingOffsets": "latest"}


def between(options: Mapping[str, str], ranges: Ranges) -> dict[str, str]:
    """The options for exactly these offsets, so that each read of the log has the same end."""
    kept = {n: text for n, text in options.items() if not n.startswith(("starting", "ending", "subscribe", "assign"))}
    assigned: dict[str, list[int]] = {}
    for topic, partition in sorted(ranges):
        assigned.setdefault(topic, []).append(partition)
    return {
        **kept,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(as_json({key: start for key, (start, _) in ranges.items()})),
        "endingOffsets": json.dumps(as_json({key: end for key, (_, end) in ranges.items()})),
    }


def wanted_columns(options: Mapping[str, str]) -> list[str]:
    """The columns of the data source with these options."""
    return [name for name in COLUMNS if name != "headers" or options["includeHeaders"] == "true"]


def _write(
    spark: SparkSession,
    options: ReadOptions,
    directory: str,
    layout: Layout,
    compression: str,
    dead: DeadLetters | None,
) -> list[Written]:
    """Write all records that the options ask for below the directory, a task for each split."""
    splits = plan(options)
    tasks = [LoadTask(n, split, options, directory, compression, layout, dead) for n, split in enumerate(splits)]
    if not tasks:
        return []
    written: list[Written] = spark.sparkContext.parallelize(tasks, len(tasks)).map(write_split).collect()
    return written


def job(spark: SparkSession, options: argparse.Namespace) -> None:
    source = source_options(options)
    if options.output is None and options.every is not None:
        raise ConfigError("--every needs --output")
    if options.output is None:
        describe(load(spark, source), options.sample)
        return
    columns = options.columns.split(",") if options.columns is not None else ()
    schedule = parse_schedule(options)

    def step() -> tuple[Run | None, int]:
        with ExitStack() as stack:
            is_table = options.format in TABLE_FORMATS
            output = stack.enter_context(open_table(options) if is_table else open_output(options.output))
            values = open_values(options, stack)
            run = load_into(spark, source, output, options.compression, columns, values)
            return run, 0 if schedule is None else lag(source, output)

    if schedule is not None:
        batches = MicroBatches("load", lambda: round_of(*step()), lambda retain_ms: maintain(options, retain_ms))
        run_micro_batches(batches, schedule)
        return
    run, _ = step()
    if run is None:
        say(f"load: nothing new; {options.output} is complete")
        return
    say(f"load: {run.path} is complete")
    _print_partitions(run.loaded)


def round_of(run: Run | None, behind: int) -> Round:
    """A micro-batch that was this run."""
    if run is None:
        return Round(None, 0, behind)
    return Round(run.path, sum(of.rows for of in run.loaded.values()), behind)


def lag(options: Mapping[str, str], output: Output) -> int:
    """The offsets that are at the source now, and not in the output."""
    bounds = offset_ranges(parse_options(options))
    known = output.offsets(bounds)
    return sum(max(0, end - known.get(key, start)) for key, (start, end) in bounds.items())


def job_parser() -> argparse.ArgumentParser:
    """The options of this job."""
    parser = new_parser("load", "Load topics into Spark: show them, or write them to Parquet exactly once.")
    add_source(parser)
    parser.add_argument("--sample", type=int, default=10, help="rows to show without --output (default 10)")
    parser.add_argument(
        "--output", help="write what is new to this directory or table; begun by an earlier run, or new"
    )
    parser.add_argument("--columns", metavar="A[,B]", help="of the rows that are written (default: all)")
    add_table(parser, "kafkalite-load")
    add_values(parser)
    add_schedule(parser)
    codecs = ", ".join(COMPRESSIONS)
    parser.add_argument(
        "--compression",
        choices=tuple(COMPRESSIONS),
        default=COMPRESSION,
        metavar="CODEC",
        help=f"of the Parquet files: {codecs} (default {COMPRESSION})",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_job(job_parser(), job, arguments)


if __name__ == "__main__":
    sys.exit(main())
