"""Values of the comparison in Spark: what is run, and what each run took. They travel as JSON between two Pythons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

OURS = "kafkalite"
PRUNED = "kafkalite, columns named"
DEFAULT = "kafka"
BEST = "kafka, best minPartitions"

AGGREGATE = "aggregate"
PARQUET = "parquet"
COUNT = "count"
WRITE = "write"
HEADERS = "spark_jobs.count"
START = "Spark's start of as many tasks"
BY_OFFSET = "1 % by offset"
BY_TIMESTAMP = "1 % by timestamp"
LOAD = "spark_jobs.load"
TABLES = "tables"
ICEBERG = "spark_jobs.load --format iceberg"
DELTA = "spark_jobs.load --format delta"
STREAM = "kafka, writeStream to Parquet"
STREAM_SPLIT = "the same, minPartitions as many as cores"

SINKS = (AGGREGATE, PARQUET, COUNT, WRITE, TABLES)


@dataclass(frozen=True, slots=True)
class Work:
    """A topic of `records` records, read into `sink` by each of `sides`, `samples` times; written: into a new one."""

    name: str
    topic: str
    records: int
    sink: str
    sides: tuple[str, ...]
    samples: int


class Sample(NamedTuple):
    """One run. CPU is that of Spark's processes and of the broker, in seconds; `share_kept` the part of the
    topic's records that a narrowed read gave, `share_read` the part of its bytes that it took from files."""

    work: str
    side: str
    seconds: float
    spark_cpu_s: float
    broker_cpu_s: float
    min_partitions: int = 0
    share_kept: float = 0.0
    share_read: float = 0.0
