"""Copy topics to another cluster: segments are read here, records are produced there, each exactly once.

    python -m spark_jobs.mirror --data-dir ./kafkalite-data --topic orders --to other:9092

Partitions keep their numbers, records their order, keys, values, headers and timestamps; offsets may differ. Each
partition is a task. A run copies what is there when it begins; run it again to copy what has come since. A run after a
kill resumes where the last transaction ended (`spark_jobs.partition_copy`): consumers that read committed see every
record once. Topics that are missing at the target are made with as many partitions and its default configuration.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from kafkalite.client.cluster_client import Retries, WriteFailed
from kafkalite.client.topic_changes import ensure_topics
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import offset_ranges
from kafkalite.reader.planning.bounds import cluster_id
from kafkalite.reader.topic_reader import TopicReader
from kafkalite.spark.worker_process import make_reuse_cheap
from spark_jobs.copy_options import add_target, copy_options, print_copied
from spark_jobs.job import add_source, new_parser, run_job, say, source_options
from spark_jobs.load import between, without_bounds
from spark_jobs.partition_copy import Copied, CopyOptions, PartitionCopy, connected

_COLUMNS = ("offset", "key", "value", "partition", "timestamp", "headers")


class PartitionTask(NamedTuple):
    """A partition of the source, the offsets to copy, the log's end, and the topic that it goes to."""

    topic: str
    partition: int
    start: int
    end: int
    log_end: int
    target: str
    options: Mapping[str, str]


def mirror(spark: SparkSession, source: Mapping[str, str], target: CopyOptions, prefix: str = "") -> list[Copied]:
    """Copy all partitions that the options of the data source ask for, into topics with `prefix` before their names.

    Raises ConfigError, StorageError, WriteFailed, or Spark's error of a task.
    """
    source = {**source, "includeHeaders": "true"}
    ranges = offset_ranges(parse_options(source))
    counts: dict[str, int] = {}
    for topic, index in ranges:
        counts[prefix + topic] = max(counts.get(prefix + topic, 0), index + 1)
    with connected(target) as cluster:
        ensure_topics(cluster, Retries(target.producer.max_block_ms / 1000), counts)
    whole = offset_ranges(parse_options(without_bounds(source)))
    tasks = [
        PartitionTask(topic, index, start, end, whole[topic, index][1], prefix + topic, source)
        for (topic, index), (start, end) in ranges.items()
    ]
    if not tasks:
        return []
    say(f"mirror: {len(tasks)} partitions to {target.producer.bootstrap_servers}")
    copied: list[Copied] = spark.sparkContext.parallelize(tasks, len(tasks)).map(partial(copy_task, target)).collect()
    return copied


def copy_task(target: CopyOptions, task: PartitionTask) -> Copied:
    """Copy one partition, in an executor."""
    make_reuse_cheap()

    def batches(position: int) -> Iterator[pa.RecordBatch]:
        options = between(task.options, {(task.topic, task.partition): (position, task.end)})
        return TopicReader(options, _COLUMNS).batches()

    with connected(target) as cluster:
        copied = PartitionCopy(target, cluster, (task.target, task.partition)).copy(batches, task.start, task.end)
    if copied.start > task.log_end and task.options["failOnDataLoss"] == "true":
        raise WriteFailed(
            f"{task.topic}-{task.partition} is copied up to offset {copied.start}, but ends at {task.log_end}: it lost "
            "records, or is another topic now; give --ignore-data-loss to leave it as it is, or copy with a new --name"
        )
    return copied


def name_of(data_dirs: str) -> str:
    """A text for a cluster's data directories that stays when they move: its cluster id, else the path."""
    first = data_dirs.split(",")[0]
    found = cluster_id(first)
    return f"cluster {found}" if found else os.path.abspath(first)


def job(spark: SparkSession, options: argparse.Namespace) -> None:
    target = copy_options(options, name_of(options.data_dir))
    print_copied(mirror(spark, source_options(options), target, options.topic_prefix))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = new_parser("mirror", "Copy topics to another cluster, each record exactly once.")
    add_source(parser)
    add_target(parser, "kafkalite-mirror")
    return run_job(parser, job, arguments)


if __name__ == "__main__":
    sys.exit(main())
