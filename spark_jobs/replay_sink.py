"""The sink of replay.py: the rows of a task go into topics as Arrow batches, partition after partition.

It is a data source of Python, which takes batches as they are; functions over Arrow batches would need pandas besides.
It stands in a module of its own, because its classes travel between processes by their names.
Source: pyspark.sql.datasource.DataSourceArrowWriter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalite.common.names import TopicPartition
from kafkalite.spark.worker_process import make_reuse_cheap
from spark_jobs.partition_copy import Copied, CopyOptions, PartitionCopy, connected

FORMAT = "kafkalite-replay"


def replay_sink(target: CopyOptions, prefix: str, report: str) -> type[DataSource]:
    """A sink that copies rows in columns. Spark commits in a process of its own, which leaves the results in the file
    `report`."""

    class ReplaySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

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
        make_reuse_cheap()
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
