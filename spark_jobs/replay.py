"""Parquet back into topics: the records that load.py has written, each exactly once, in their order.

    python -m spark_jobs.replay --input ./lake --to localhost:9092 --topic-prefix restored-

Needed are the columns topic, partition, offset, key and value; timestamp and headers are taken along if they are there.
Partitions keep their numbers and records their order; new offsets begin where the target's end. A run that was killed
goes on where its last transaction ended (`spark_jobs.partition_copy`), and a later run adds the records with higher
offsets: consumers that read committed see every record once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.producer.retries import Retries
from kafkalite.producer.target_topics import ensure_topics
from spark_jobs.copy_options import add_target, copy_options, print_copied
from spark_jobs.job import new_parser, run_job, say
from spark_jobs.partition_copy import Copied, CopyOptions, PartitionCopy, connected

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
_FORMAT = "kafkalite-replay"


def replay(rows: DataFrame, target: CopyOptions, prefix: str = "") -> list[Copied]:
    """Write the rows into topics with `prefix` before their names. Raises ConfigError, WriteFailed, or Spark's error of
    a task."""
    missing = [name for name in _TYPES if name not in rows.columns and name not in _OPTIONAL]
    if missing:
        raise ConfigError(f"the input has no column {missing[0]!r}; it needs what load.py writes: {', '.join(_TYPES)}")
    chosen = rows.select(*(F.col(name).cast(_TYPES[name]).alias(name) for name in _TYPES if name in rows.columns))
    counts = {
        prefix + row[0]: row[1] + 1 for row in chosen.groupBy("topic").agg(F.max("partition")).collect() if row[0]
    }
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
        rows.sparkSession.dataSource.register(_sink(target, prefix, report))
        ordered.write.format(_FORMAT).mode("append").save()
        with open(report) as file:
            return [Copied(*one) for one in json.load(file)]


def _sink(target: CopyOptions, prefix: str, report: str) -> type[DataSource]:
    """A sink that copies rows in columns. Spark commits in a process of its own, which leaves the results in the file
    `report`."""

    class ReplaySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return _FORMAT

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            return ReplayWriter(target, prefix, report)

    return ReplaySink


@dataclass
class TaskCopied(WriterCommitMessage):
    """The partitions that a task has copied."""

    copied: list[Copied]


class ReplayWriter(DataSourceArrowWriter):
    """Copies the rows of a task, partition after partition. Each commits for itself, so there is nothing to abort."""

    def __init__(self, target: CopyOptions, prefix: str, report: str) -> None:
        self.target = target
        self.prefix = prefix
        self.report = report

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        copied = []
        with connected(self.target) as cluster:
            for (topic, index), pieces in groupby(_by_partition(iterator), lambda piece: piece[0]):
                rows = (batch.drop_columns("topic") for _, batch in pieces)
                copy = PartitionCopy(self.target, cluster, (self.prefix + topic, index))
                copied.append(copy.copy(partial(_from, rows), 0))
        return TaskCopied(copied)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        copied = [one for message in messages if isinstance(message, TaskCopied) for one in message.copied]
        with open(self.report, "w") as file:
            json.dump(copied, file)


def _by_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The batches in pieces of one topic and partition."""
    for batch in batches:
        topics = batch.column("topic").dictionary_encode()
        partitions = batch.column("partition").to_numpy()
        changes = (np.diff(topics.indices.to_numpy(), prepend=-1) != 0) | (np.diff(partitions, prepend=-1) != 0)
        starts = np.flatnonzero(changes).tolist()
        for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            yield (topics[start].as_py(), int(partitions[start])), batch.slice(start, end - start)


def _from(batches: Iterator[pa.RecordBatch], position: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.column("offset")[batch.num_rows - 1].as_py() >= position:
            yield batch.filter(pc.greater_equal(batch.column("offset"), position))


def job(spark: SparkSession, options: argparse.Namespace) -> None:
    rows = spark.read.parquet(options.input)
    if options.topic is not None:
        rows = rows.where(F.col("topic").isin(options.topic.split(",")))
    print_copied(replay(rows, copy_options(options, os.path.abspath(options.input)), options.topic_prefix))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = new_parser("replay", "Write Parquet of load.py back into topics, each record exactly once.")
    parser.add_argument("--input", required=True, help="the directory that load.py has written")
    parser.add_argument("--topic", metavar="A[,B]", help="only these (default: all)")
    add_target(parser, "kafkalite-replay")
    return run_job(parser, job, arguments)


if __name__ == "__main__":
    sys.exit(main())
