"""A task of load.py: the records of one split into Parquet files, divided among the partitions of the output.

Each attempt writes into a directory of its own and returns its files to the driver; only those of attempts that Spark
counts as successful become part of the run, so a task that is tried again, or twice at a time, leaves nothing twice.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.common.names import TopicPartition
from kafkalite.reader.chunk_reader import COLUMNS, read_as_asked
from kafkalite.reader.planning.read_options import ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.spark.worker_process import make_reuse_cheap
from spark_jobs.decoding import DeadLetters, with_decoded
from spark_jobs.partitioned_files import NO_VALUE, Layout, PartitionedFiles, WrittenFile, file_schema

_DAY_MICROS = 86_400_000_000
_YEAR_9999 = np.datetime64("9999-12-31", "D")
_FIRST_MICROS, _END_MICROS = (int(np.datetime64(year, "us").astype(np.int64)) for year in ("0001", "10000"))

_NEEDED = ("offset", "timestamp")  # for the report
PARTITIONS = ("topic", "partition", "day")
"""The names by which rows can be divided."""

Array = npt.NDArray[Any]


class LoadTask(NamedTuple):
    """One split, numbered among the run's. `directory`, a path or a URI, is that of all attempts; a path is there
    already."""

    number: int
    split: Split
    options: ReadOptions
    directory: str
    compression: str
    layout: Layout
    dead: DeadLetters | None = None


class Loaded(NamedTuple):
    """Rows of a partition. Timestamps in microseconds, None where no row has one that they can express."""

    rows: int
    first_offset: int
    last_offset: int
    first_timestamp: int | None
    last_timestamp: int | None


class Written(NamedTuple):
    """An attempt that has succeeded: its files below `directory`, the rows in them, the files of undecodable rows."""

    directory: str
    files: list[WrittenFile]
    loaded: dict[TopicPartition, Loaded]
    dead: Written | None = None


def write_split(task: LoadTask) -> Written:
    """In an executor: write all records of the split. Raises StorageError, Malformed as a read does."""
    make_reuse_cheap()
    files = _Files(task, task.directory, task.layout)
    dead = None if task.dead is None else _Files(task, task.dead.directory, task.dead.layout)
    needed = {*files.names, *_NEEDED, *(() if dead is None else dead.names)}
    wanted = [name for name in COLUMNS if name != "topic" and name in needed]
    decode = None if task.layout.value is None else task.layout.value.decoder()
    # reading takes half as much memory as a read of its own would, so that with what waits it is three times the size
    options = replace(task.options, batch_bytes=task.options.batch_bytes // 2)
    loaded: dict[TopicPartition, Loaded] = {}
    for of, rows in _by_partition(task.split, wanted, options):
        if task.layout.plain_years:
            rows = with_plain_years(rows)
        here = _loaded(rows)
        loaded[of] = together([loaded[of], here]) if of in loaded else here
        if decode is not None and dead is not None and task.dead is not None:
            rows, undecodable = with_decoded(rows, decode, task.layout.schema.field("value").type)
            is_new = pc.greater_equal(undecodable.column("offset"), task.dead.offsets.get(of, 0))
            dead.add(of, undecodable.filter(is_new))
        files.add(of, rows)
    return files.close(loaded)._replace(dead=None if dead is None else dead.close({}))


class _Files:
    """Files of one output in a directory of this attempt."""

    def __init__(self, task: LoadTask, directory: str, layout: Layout) -> None:
        self._directory = f"{directory}/{task.number:05d}-{uuid.uuid4().hex}"
        if "://" not in self._directory:
            os.mkdir(self._directory)  # not its parents: where the job has ended meanwhile they are not to come back
        self._layout = layout
        self.names = layout.schema.names
        size = task.options.batch_bytes
        self._files = PartitionedFiles(self._directory, task.number, layout.schema, task.compression, size)

    def add(self, of: TopicPartition, rows: pa.RecordBatch) -> None:
        """Rows of one partition of a topic."""
        if not rows.num_rows:
            return
        times = rows.column("timestamp").view(pa.int64())
        first, last = pc.min_max(times).as_py().values()
        chosen = with_columns(rows, of[0], self._layout.schema)
        days = _by_day(chosen, times, first, last) if "day" in self._layout.partitioning else [("", chosen)]
        for day, part in days:
            values = {"topic": of[0], "partition": str(of[1]), "day": day}
            self._files.add(tuple((name, values[name]) for name in self._layout.partitioning), part)

    def close(self, loaded: dict[TopicPartition, Loaded]) -> Written:
        return Written(self._directory, self._files.close(), loaded)


def _loaded(rows: pa.RecordBatch) -> Loaded:
    first, last = pc.min_max(rows.column("timestamp").view(pa.int64())).as_py().values()
    first_offset, last_offset = (rows.column("offset")[at].as_py() for at in (0, -1))
    return Loaded(rows.num_rows, first_offset, last_offset, first, last)


def with_plain_years(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, with null in place of times outside the years 1 to 9999."""
    times = rows.column("timestamp")
    micros = times.view(pa.int64())
    plain = pc.and_(pc.greater_equal(micros, _FIRST_MICROS), pc.less(micros, _END_MICROS))
    if pc.all(plain, min_count=0).as_py():  # null is left out
        return rows
    at = rows.schema.get_field_index("timestamp")
    return rows.set_column(at, rows.schema.field(at), pc.if_else(plain, times, pa.scalar(None, times.type)))


def with_columns(rows: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that the schema names, of rows of one topic."""
    if "topic" not in schema.names:
        return pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
    topics = pa.repeat(pa.scalar(topic, pa.string()), rows.num_rows)
    columns = [topics if name == "topic" else rows.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def together(parts: Iterable[Loaded]) -> Loaded:
    """The sum of one or more parts of a partition."""
    rows, firsts, lasts, earliest, latest = zip(*parts, strict=True)
    return Loaded(
        sum(rows),
        min(firsts),
        max(lasts),
        min((at for at in earliest if at is not None), default=None),
        max((at for at in latest if at is not None), default=None),
    )


def _by_partition(
    split: Split, wanted: list[str], options: ReadOptions
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The rows of the split with the wanted columns, never those of two partitions together."""
    partitions = list(dict.fromkeys((chunk.topic, chunk.partition) for chunk in split))
    if len(partitions) == 1:
        for batch in read_as_asked(split, file_schema(wanted), options):
            yield partitions[0], batch
        return
    for batch in read_as_asked(split, file_schema([*wanted, "topic"]), options):
        topics = batch.column("topic").dictionary_encode()
        topic, partition = topics.indices.to_numpy(), batch.column("partition").to_numpy()
        changes = (np.diff(topic) != 0) | (np.diff(partition) != 0)
        rows = batch.drop_columns("topic")
        for start, end in _runs(changes):
            yield (topics.dictionary[int(topic[start])].as_py(), int(partition[start])), rows.slice(start, end - start)


def _by_day(
    rows: pa.RecordBatch, times: pa.Array, first: int | None, last: int | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each day in UTC, in their order; `first` and `last` are the limits of their times."""
    if first is None or last is None:
        yield NO_VALUE, rows
        return
    if first // _DAY_MICROS == last // _DAY_MICROS and not times.null_count:
        yield _day_name(first // _DAY_MICROS), rows
        return
    days = times.fill_null(0).to_numpy() // _DAY_MICROS
    null_day = first // _DAY_MICROS - 1
    days[pc.is_null(times).to_numpy(zero_copy_only=False)] = null_day
    if (np.diff(days) < 0).any():
        order = np.argsort(days, kind="stable")
        rows, days = rows.take(pa.array(order)), days[order]
    for start, end in _runs(np.diff(days) != 0):
        day = int(days[start])
        yield NO_VALUE if day == null_day else _day_name(day), rows.slice(start, end - start)


def _runs(changes: Array) -> Iterator[tuple[int, int]]:
    """Start and end of each run of equal rows; `changes` tells for all rows but the first whether one begins."""
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    return zip(starts, [*starts[1:], len(changes) + 1], strict=True)


def _day_name(day: int) -> str:
    """A day since 1970 as Spark writes dates: years have four digits, and a sign if they need more."""
    date = np.datetime64(day, "D")
    year, rest = str(date)[:-6], str(date)[-6:]
    if date > _YEAR_9999:
        return f"+{year}{rest}"
    return f"-{year[1:]:0>4}{rest}" if year.startswith("-") else f"{year:0>4}{rest}"
