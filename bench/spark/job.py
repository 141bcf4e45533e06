"""The Spark application of the comparison: reads works as JSON lines, answers with a line for each sample.

Both formats run in one session. Each side has run before it is measured; the sides take turns, and another one begins
each round. Every result is compared with those of the other sides: a wrong sum is an error, not a fast run.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.session import Session
from bench.spark.narrowed_read import Shares, shares
from bench.spark.work import (
    AGGREGATE,
    BEST,
    BY_OFFSET,
    BY_TIMESTAMP,
    DEFAULT,
    DELTA,
    HEADERS,
    ICEBERG,
    LOAD,
    OURS,
    PARQUET,
    PRUNED,
    START,
    STREAM_SPLIT,
    TABLES,
    WRITE,
    Sample,
    Work,
)
from bench.usage import ProcessTree
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from kafkalite.reader.planning.split import Split
from spark_jobs.count import count, count_split, task_count
from spark_jobs.job import source_options
from spark_jobs.load import job_parser, load_into
from spark_jobs.load_output import open_output
from spark_jobs.tables.delta import load_delta
from spark_jobs.tables.iceberg import load_iceberg
from spark_jobs.tables.options import open_table

_NAMED = "key binary, value binary, `offset` bigint"
_TABLES = (ICEBERG, DELTA)
_ICEBERG = "lake.bench.rows"
_FILTERED = {BY_OFFSET: "offset", BY_TIMESTAMP: "timestamp"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the records are, and where Parquet goes."""

    bootstrap: str
    broker_pid: int
    data_dir: str
    output: str
    jars: str
    min_partitions: tuple[int, ...]
    master: str
    java_options: str


class Job:
    """One session, one work after the other."""

    def __init__(self, place: Place) -> None:
        self.place = place
        builder = SparkSession.builder.master(place.master).appName("bench")
        settings = {
            "spark.jars": place.jars,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": place.java_options,
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self._own, self._broker = ProcessTree(os.getpid()), ProcessTree(place.broker_pid)
        self._known: Any = None
        self._shares = Shares(0.0, 0.0)

    def run(self, work: Work, tell: Callable[[Sample], None]) -> None:
        self._known = None
        if work.sink == WRITE:
            rows = self._load(work.topic, OURS, 0).select("key", "value")
            rows.write.mode("overwrite").parquet(self._input)
        best = self._best(work) if BEST in work.sides else 0
        for side in work.sides:
            self._sample(work, side, best)
        for number in range(work.samples):
            turn = number % len(work.sides)
            for side in work.sides[turn:] + work.sides[:turn]:
                tell(self._sample(work, side, best))

    def _best(self, work: Work) -> int:
        """The minPartitions with which the stock source was fastest, of two runs each."""
        took = dict.fromkeys(self.place.min_partitions, 0.0)
        for partitions in [*took, *took]:
            seconds = self._sample(work, BEST, partitions).seconds
            took[partitions] = min(took[partitions] or seconds, seconds)
        return min(took, key=took.__getitem__)

    def _sample(self, work: Work, side: str, best: int) -> Sample:
        own, broker, begun = self._own.cpu(), self._broker.cpu(), time.perf_counter()
        found = self._run(work, side, best)
        seconds = time.perf_counter() - begun
        own, broker = self._own.cpu() - own, self._broker.cpu() - broker
        if work.sink in (PARQUET, TABLES):
            found = aggregate(self.spark.read.parquet(*self._files(side)))
        self._known = self._known or found
        if found != self._known:
            raise AssertionError(f"{work.name}: {side} found {found}, another {self._known}")
        partitions, parts = best if side == BEST else 0, self._shares if side in _FILTERED else Shares(0.0, 0.0)
        return Sample(work.name, side, seconds, own.total_s, broker.total_s, partitions, *parts)

    def _run(self, work: Work, side: str, best: int) -> Any:
        if side in (HEADERS, START, *_FILTERED):
            return self._count(work, side)
        if work.sink == WRITE:
            return self._write(work, side)
        if work.sink == TABLES:
            return self._fill_table(work, side)
        if side == LOAD:
            return self._load_into(work.topic)
        rows = self._load(work.topic, side, best)
        if work.sink == AGGREGATE:
            return aggregate(rows)
        shutil.rmtree(self.place.output, ignore_errors=True)
        rows.write.parquet(self.place.output)
        return None

    def _count(self, work: Work, side: str) -> int:
        options = {"path": self.place.data_dir, "subscribe": work.topic}
        if side in _FILTERED:
            self._shares = shares(self.place.data_dir, work.topic, work.records, _FILTERED[side])
        elif side == START:
            parsed = parse_options(options)
            empty: list[Split] = [()] * task_count(self.spark, plan(parsed))
            self.spark.sparkContext.parallelize(empty, len(empty)).flatMap(partial(count_split, parsed)).collect()
        else:
            return sum(each.records for each in count(self.spark, options).values())
        return work.records

    def _load_into(self, topic: str) -> None:
        """The job as it is, into a new output: with its offsets, and all of it brought to the disk."""
        shutil.rmtree(self.place.output, ignore_errors=True)
        options = {"path": self.place.data_dir, "subscribe": topic, "kafka.isolation.level": "read_committed"}
        with open_output(self.place.output) as output:
            load_into(self.spark, options | {"includeHeaders": "false", "failOnDataLoss": "true"}, output)

    def _fill_table(self, work: Work, side: str) -> None:
        """A new table, or a new directory of Parquet, with all records of the topic that are there now."""
        shutil.rmtree(self.place.output, ignore_errors=True)
        if side in _TABLES:
            os.makedirs(self.place.output)
            words = ["--data-dir", self.place.data_dir, "--topic", work.topic, *self._table_options(side)]
            options = job_parser().parse_args(words)
            with open_table(options) as table:
                load_into(self.spark, source_options(options), table)
            return
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.place.bootstrap)
        reader = reader.option("subscribe", work.topic).option("startingOffsets", "earliest")
        if side == STREAM_SPLIT:
            reader = reader.option("minPartitions", self.spark.sparkContext.defaultParallelism)
        checkpoints = f"{self.place.output}.checkpoints"
        shutil.rmtree(checkpoints, ignore_errors=True)
        writer = reader.load().writeStream.format("parquet").option("path", self.place.output)
        writer.option("checkpointLocation", checkpoints).trigger(availableNow=True).start().awaitTermination()

    def _table_options(self, side: str) -> list[str]:
        if side == DELTA:
            return ["--format", "delta", "--output", self.place.output]
        catalog = [f"{name}={text}" for name, text in self._catalog.items()]
        return ["--format", "iceberg", "--output", _ICEBERG, *(w for text in catalog for w in ("--catalog", text))]

    @property
    def _catalog(self) -> dict[str, str]:
        place = self.place.output
        return {"uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}"}

    def _files(self, side: str) -> list[str]:
        """The files and directories that have all rows of a side."""
        if side == ICEBERG:
            return [task.file.file_path for task in load_iceberg(_ICEBERG, self._catalog).scan().plan_files()]
        return list(load_delta(self.place.output).file_uris()) if side == DELTA else [self.place.output]

    def _write(self, work: Work, side: str) -> int:
        """Rows of Parquet into a new topic with one partition. Returns how many are there."""
        session = Session(self.place.bootstrap)
        with session.topic("written") as topic:
            writer = self.spark.read.parquet(self._input).write.format("kafkalite" if side == OURS else "kafka")
            writer = writer.option("kafka.bootstrap.servers", self.place.bootstrap).option("topic", topic)
            writer.mode("append").save()
            session.expect_end(topic, work.records)
        return work.records

    @property
    def _input(self) -> str:
        return f"{self.place.output}.input"

    def _load(self, topic: str, side: str, best: int) -> DataFrame:
        reader = self.spark.read.option("subscribe", topic)
        if side in (DEFAULT, BEST):
            reader = reader.format("kafka").option("kafka.bootstrap.servers", self.place.bootstrap)
            return (reader.option("minPartitions", best) if side == BEST else reader).load()
        reader = reader.format("kafkalite").option("path", self.place.data_dir)
        return (reader.schema(_NAMED) if side == PRUNED else reader).load()


def aggregate(rows: DataFrame) -> tuple[int, ...]:
    """Sum of the values' lengths, number of keys, highest offset."""
    return tuple(rows.agg(F.sum(F.length("value")), F.count("key"), F.max("offset")).first() or ())


def main() -> None:
    place = json.loads(sys.stdin.readline())
    job = Job(Place(**place | {"min_partitions": tuple(place["min_partitions"])}))
    try:
        for line in sys.stdin:
            fields = json.loads(line)
            work = Work(**fields | {"sides": tuple(fields["sides"])})
            job.run(work, lambda sample: print(json.dumps(sample), flush=True))
            print("null", flush=True)
    finally:
        shutil.rmtree(Path(job.place.output), ignore_errors=True)
        job.spark.stop()


if __name__ == "__main__":
    main()
