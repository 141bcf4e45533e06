"""Parquet or a table back into topics: the records that load.py has written, each exactly once, in their order.

    python -m spark_jobs.replay --input ./lake --to localhost:9092 --topic-prefix restored-
    python -m spark_jobs.replay --format delta --input /lake/orders --as-of 2026-01-31T12:00:00Z --to localhost:9092

Needed are the columns topic, partition, offset, key and value; timestamp and headers are taken along if they are there.
Partitions keep their numbers and records their order; new offsets begin where the target's end. A run after a kill
resumes where the last transaction ended (`spark_jobs.partition_copy`), and a later run adds the records with higher
offsets: consumers that read committed see every record once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkalite.client.cluster_client import Retries
from kafkalite.client.topic_changes import ensure_topics
from kafkalite.common.errors import ConfigError
from spark_jobs.copy_options import add_target, copy_options, print_copied
from spark_jobs.job import new_parser, run_job, say
from spark_jobs.partition_copy import Copied, CopyOptions, connected
from spark_jobs.replay_sink import FORMAT, replay_sink
from spark_jobs.tables.options import TABLE_FORMATS, add_catalog
from spark_jobs.tables.snapshot import read_snapshot

_TYPES = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "key": "binary",
    "value": "binary",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
_OPTIONAL = ("timestamp", "headers")


def replay(rows: DataFrame, target: CopyOptions, prefix: str = "", topics: Sequence[str] = ()) -> list[Copied]:
    """Write the rows, or those of some topics, into topics with `prefix` before their names. Raises ConfigError,
    WriteFailed, or Spark's error of a task."""
    missing = [name for name in _TYPES if name not in rows.columns and name not in _OPTIONAL]
    if missing:
        raise ConfigError(f"the input has no column {missing[0]!r}; it needs what load.py writes: {', '.join(_TYPES)}")
    chosen = rows.select(*(F.col(name).cast(_TYPES[name]).alias(name) for name in _TYPES if name in rows.columns))
    if topics:
        chosen = chosen.where(F.col("topic").isin(*topics))
    counts = {
        prefix + row[0]: row[1] + 1 for row in chosen.groupBy("topic").agg(F.max("partition")).collect() if row[0]
    }
    absent = [topic for topic in topics if prefix + topic not in counts]
    if absent:
        raise ConfigError(f"the input has no rows of topic {absent[0]!r}")
    if not counts:
        return []
    with connected(target) as cluster:
        ensure_topics(cluster, Retries(target.producer.max_block_ms / 1000), counts)
    say(f"replay: {len(counts)} topics to {target.producer.bootstrap_servers}")
    # all rows of a partition come to one task, in their order
    keyed = chosen.repartition(sum(counts.values()), "topic", "partition")
    ordered = keyed.sortWithinPartitions("topic", "partition", "offset")
    target = replace(target, with_timestamp="timestamp" in chosen.columns)
    with tempfile.TemporaryDirectory(prefix="kafkalite-replay-") as place:
        report = os.path.join(place, "report.json")
        rows.sparkSession.dataSource.register(replay_sink(target, prefix, report))
        ordered.write.format(FORMAT).mode("append").save()
        with open(report) as file:
            return [Copied(*one) for one in json.load(file)]


def job(spark: SparkSession, options: argparse.Namespace) -> None:
    if options.format not in TABLE_FORMATS and (options.snapshot is not None or options.as_of is not None):
        raise ConfigError("--snapshot and --as-of are for tables; give --format iceberg or delta")
    source = options.input if options.format == "iceberg" else os.path.abspath(options.input)
    target = copy_options(options, source)
    topics = options.topic.split(",") if options.topic is not None else ()
    rows = read_snapshot(spark, options) if options.format in TABLE_FORMATS else spark.read.parquet(options.input)
    print_copied(replay(rows, target, options.topic_prefix, topics))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = new_parser("replay", "Write rows of load.py back into topics, each record exactly once.")
    parser.add_argument("--input", required=True, help="the directory or table that load.py has written")
    parser.add_argument("--format", choices=("parquet", *TABLE_FORMATS), default="parquet", help="of the input")
    add_catalog(parser)
    parser.add_argument("--snapshot", type=int, metavar="ID", help="of a table: Iceberg's snapshot, Delta's version")
    parser.add_argument("--as-of", metavar="TIME", help="a table as it was at a time")
    parser.add_argument("--topic", metavar="A[,B]", help="only these (default: all)")
    add_target(parser, "kafkalite-replay")
    return run_job(parser, job, arguments)


if __name__ == "__main__":
    sys.exit(main())
