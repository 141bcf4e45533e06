"""The compacted view of topics: for each key of a partition its last value; keys whose last value is null are gone.

    python -m spark_jobs.latest --data-dir ./kafkalite-data --topic users
    python -m spark_jobs.latest --data-dir ./kafkalite-data --topic users --output ./users

It is what log compaction would leave if it went up to the last record: records without a key have no place in it. The
output is Parquet with `_latest.json`, which has the offsets that it was made up to; a later run replaces it whole.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import offset_ranges
from spark_jobs.job import add_source, new_parser, print_table, run_job, say, source_options, time_text
from spark_jobs.load import between, load
from spark_jobs.load_output import as_json
from spark_jobs.whole_output import replace_whole

STATE = "_latest.json"


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
        latest(load(spark, between(options, ranges))).write.option("compression", "zstd").parquet(directory)
        with open(os.path.join(directory, STATE), "w") as file:
            json.dump({"version": 1, "offsets": as_json({key: end for key, (_, end) in ranges.items()})}, file)

    replace_whole(path, STATE, write)


def print_summary(rows: DataFrame) -> None:
    """A line for each partition of a topic."""
    found = rows.groupBy("topic", "partition").agg(F.count("*"), F.max("offset"), F.unix_micros(F.max("timestamp")))
    print_table(
        ("topic", "partition", "keys", "last_offset", "last_timestamp"),
        [(*row[:4], time_text(row[4])) for row in found.orderBy("topic", "partition").collect()],
    )


def job(spark: SparkSession, options: argparse.Namespace) -> None:
    source = source_options(options)
    if options.output is not None:
        write_latest(spark, source, options.output)
        say(f"latest: {options.output} is complete")
        print_summary(spark.read.parquet(options.output))
        return
    rows = latest(load(spark, source))
    print_summary(rows)
    text = rows.withColumn("key", F.col("key").cast("string")).withColumn("value", F.col("value").cast("string"))
    text.show(options.sample, truncate=80)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = new_parser("latest", "Show the last value of every key, or write it to Parquet.")
    add_source(parser)
    parser.add_argument("--sample", type=int, default=10, help="rows to show without --output (default 10)")
    parser.add_argument("--output", help="write to this directory; one that this job has made is replaced")
    return run_job(parser, job, arguments)


if __name__ == "__main__":
    sys.exit(main())
