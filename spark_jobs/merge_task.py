"""A task of latest.py: the new records of one partition of a topic, merged by key into its files of the table.

Of each key the last of the new records counts; a null value, a tombstone, removes the key. Files of the table that have
one of these keys are written again without them, the others stay as they are. Files that are small are written again in
any case, together with what is new: so there are few of them, however often a merge runs. Records without a key have no
place in the view.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafkalite.common.names import TopicPartition
from kafkalite.reader.chunk_reader import COLUMNS, read_as_asked
from kafkalite.reader.planning.read_options import ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.spark.worker_process import make_reuse_cheap
from spark_jobs.load_task import Loaded, Written, with_columns, with_plain_years
from spark_jobs.partitioned_files import Layout, ParquetFile, WrittenFile, file_schema

SMALL_BYTES = 16 << 20
"""A file below this size is written again with what is new."""
_FILE_BYTES = 128 << 20  # of a file of the table, about
_ROWS_MIN = 1 << 16  # waiting rows are reduced to the last of each key when they have doubled, from here on


class MergeTask(NamedTuple):
    """The new records of a partition, and its files: paths, or URIs where they are not local."""

    number: int
    of: TopicPartition
    split: Split
    options: ReadOptions
    directory: str
    compression: str
    layout: Layout
    files: tuple[str, ...]


class Merged(NamedTuple):
    """New files, and the files of the table that they replace."""

    written: Written
    replaced: list[str]


def merge(task: MergeTask) -> Merged:
    """In an executor. Raises StorageError, Malformed as a read does, OSError for files of the table."""
    make_reuse_cheap()
    directory = f"{task.directory}/{task.number:05d}-{uuid.uuid4().hex}"
    if "://" not in directory:
        os.mkdir(directory)
    changed = last_of_keys(_new_records(task))
    replaced: list[str] = []
    if not len(changed):
        return Merged(Written(directory, [], {}), replaced)
    rows = _Rows(directory, task)
    keys = changed.column("key").combine_chunks()
    for path in task.files:
        system, name = pafs.FileSystem.from_uri(path)
        with system.open_input_file(name) as source:
            file = pq.ParquetFile(source)
            hit = pc.is_in(file.read(["key"]).column("key"), value_set=keys).to_numpy()
            if source.size() < SMALL_BYTES or hit.any():
                replaced.append(path)
                _copy(file, ~hit, rows)
    rows.write(changed.filter(pc.is_valid(changed.column("value"))).select(task.layout.schema.names))
    offsets = pc.min_max(changed.column("offset")).as_py()
    loaded = Loaded(len(changed), offsets["min"], offsets["max"], None, None)
    return Merged(Written(directory, rows.close(), {task.of: loaded}), replaced)


def last_of_keys(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The last row of each key, in the order of the rows; rows without a key are left out."""
    waiting: list[pa.RecordBatch] = []
    count, limit = 0, _ROWS_MIN
    schema = None
    for batch in batches:
        schema = batch.schema
        waiting.append(batch)
        count += batch.num_rows
        if count > limit:
            waiting = _last(pa.Table.from_batches(waiting)).to_batches()
            count = sum(one.num_rows for one in waiting)
            limit = max(_ROWS_MIN, 2 * count)
    if schema is None:
        return pa.table({"key": pa.array([], pa.binary())})
    return _last(pa.Table.from_batches(waiting, schema))


def _last(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.is_valid(rows.column("key")))
    keys = rows.column("key").dictionary_encode()
    indices = [chunk.indices.to_numpy() for chunk in keys.chunks]  # all chunks share one dictionary
    if not indices:
        return rows
    of_key = np.concatenate(indices)
    last = np.zeros(int(of_key.max(initial=-1)) + 1, np.int64)
    last[of_key] = np.arange(len(of_key))  # of equal indices the last assignment stays
    chosen = np.zeros(len(of_key), bool)
    chosen[last] = True
    return rows.filter(pa.array(chosen))


def _new_records(task: MergeTask) -> Iterator[pa.RecordBatch]:
    names = {*task.layout.schema.names, "key", "value", "offset", "timestamp"}
    wanted = [name for name in COLUMNS if name in names and name != "topic"]
    schema = pa.schema([field for field in task.layout.schema if field.name == "topic"] + list(file_schema(wanted)))
    options = replace(task.options, batch_bytes=task.options.batch_bytes // 2)
    for batch in read_as_asked(task.split, file_schema(wanted), options):
        yield with_columns(with_plain_years(batch), task.of[0], schema)


def _copy(file: Any, wanted: Any, rows: _Rows) -> None:
    """The wanted rows of a file of the table, a row group after the other."""
    at = 0
    for number in range(file.num_row_groups):
        group = file.read_row_group(number)
        rows.write(group.filter(pa.array(wanted[at : at + len(group)])))
        at += len(group)


class _Rows:
    """Files of the partition, a new one whenever the last has its size."""

    def __init__(self, directory: str, task: MergeTask) -> None:
        self._directory = directory
        self._task = task
        self._schema = task.layout.schema
        self._files: list[WrittenFile] = []
        self._file: ParquetFile | None = None
        values = {"topic": task.of[0], "partition": str(task.of[1])}
        self._partition = tuple((name, values[name]) for name in task.layout.partitioning)

    def write(self, rows: pa.Table) -> None:
        """Rows with the columns of the layout, or some of them: one that an older file lacks is null."""
        if not len(rows):
            return
        if self._file is None:
            name = f"part-{len(self._files):05d}.{self._task.compression}.parquet"
            path = "/".join((*(f"{of}={value}" for of, value in self._partition), name))
            self._file = ParquetFile(self._directory, path, self._partition, self._schema, self._task.compression)
        there = rows.schema.names
        columns = [
            rows.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(rows), field.type)
            for field in self._schema
        ]
        self._file.write(pa.Table.from_arrays(columns, schema=self._schema))
        if self._file.size_bytes() >= _FILE_BYTES:
            self._end()

    def close(self) -> list[WrittenFile]:
        self._end()
        return self._files

    def _end(self) -> None:
        if self._file is not None:
            self._files.append(self._file.close())
            self._file = None
