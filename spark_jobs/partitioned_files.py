"""Parquet files of one task, a file for each partition of the output: Arrow batches go straight into them, no row
passes through Spark.

    DIRECTORY/topic=orders/day=2026-01-31/part-00003.snappy.parquet

Batches wait in memory until they have the bytes of a row group together, and are then all written, to each file one row
group. So memory stays within that bound, however many days the records of a task are from; and files of a local file
system are open only while they are written, so there may be more days than file descriptors.

Schema and names are those of Spark's own writer: columns that are never null are required. Timestamps are 64-bit
microseconds, where Spark writes the deprecated INT96 by default.
Source: org.apache.spark.sql.execution.datasources.parquet.{ParquetWriteSupport, SparkToParquetSchemaConverter}.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafkalite.reader.chunk_reader import COLUMNS
from spark_jobs.values.value_format import ValueFormat

COMPRESSIONS = {"snappy": "snappy", "zstd": "zstd", "gzip": "gz", "lz4": "lz4raw", "none": ""}
"""Codecs, and how files with them are named."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name for null in a path."""

_NEVER_NULL = frozenset({"partition", "offset", "timestampType"})
_ASCENDING = ("offset", "timestamp")  # mostly; as differences they take a byte or two
_WITH_STATISTICS = frozenset({*_NEVER_NULL, *_ASCENDING, "topic", "key"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Partition = tuple[tuple[str, str], ...]
"""Names and values, in the order of the directories: (("topic", "orders"), ("day", "2026-01-31"))."""


class Layout(NamedTuple):
    """Files of an output: their columns, and the names by which rows are divided among them. With `plain_years`, times
    outside the years 1 to 9999, which libraries of tables cannot express, become null. `value` is the format that
    values are decoded by."""

    schema: pa.Schema
    partitioning: tuple[str, ...]
    plain_years: bool = False
    value: ValueFormat | None = None


class WrittenFile(NamedTuple):
    """A file by its path below the directory of its task. `statistics` are counts and limits in Delta's JSON."""

    path: str
    partition: Partition
    size_bytes: int
    statistics: str


def file_schema(names: Sequence[str]) -> pa.Schema:
    """The schema of a file with these columns of the data source."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow, name not in _NEVER_NULL) for name in names])


class PartitionedFiles:
    """Files of the task `number` below `directory`, a path or a URI. `row_group_bytes` of batches, as they are in
    memory, may wait."""

    def __init__(self, directory: str, number: int, schema: pa.Schema, compression: str, row_group_bytes: int) -> None:
        self._directory = directory
        self._name = ".".join(filter(None, (f"part-{number:05d}", COMPRESSIONS[compression], "parquet")))
        self._schema = schema
        self._compression = compression
        self._row_group_bytes = row_group_bytes
        self._files: dict[Partition, ParquetFile] = {}
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0

    def add(self, partition: Partition, batch: pa.RecordBatch) -> None:
        """Add rows of one partition; they may share memory with rows that are added beside them."""
        self._waiting.setdefault(partition, []).append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._row_group_bytes:
            self._write()

    def close(self) -> list[WrittenFile]:
        """Write all waiting rows and the files' ends."""
        self._write()
        return [file.close() for file in self._files.values()]

    def _write(self) -> None:
        """Write all waiting rows: rows that share memory are released together."""
        while self._waiting:
            of, batches = self._waiting.popitem()
            if of not in self._files:
                path = "/".join((*(f"{name}={value}" for name, value in of), self._name))
                self._files[of] = ParquetFile(self._directory, path, of, self._schema, self._compression)
            self._files[of].write(pa.Table.from_batches(batches, self._schema))
        self._waiting_bytes = 0


class ParquetFile:
    """One file; `path` is below `directory`."""

    def __init__(self, directory: str, path: str, partition: Partition, schema: pa.Schema, compression: str) -> None:
        self._path = path
        self._partition = partition
        self._sink = _open(directory, path)
        self._metadata: list[Any] = []
        ascending = [name for name in _ASCENDING if name in schema.names]
        self._writer = pq.ParquetWriter(
            self._sink.stream,
            schema,
            compression=compression,
            use_dictionary=[name for name in schema.names if name not in _ASCENDING],
            column_encoding=dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
            write_statistics=[name for name in schema.names if name in _WITH_STATISTICS],
            store_schema=False,
            metadata_collector=self._metadata,
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=len(rows))
        self._sink.release()

    def size_bytes(self) -> int:
        return self._sink.tell()

    def close(self) -> WrittenFile:
        self._writer.close()
        self._sink.close()
        return WrittenFile(self._path, self._partition, self._sink.tell(), _statistics(self._metadata))


def _statistics(metadata: Iterable[Any]) -> str:
    """Rows, limits and nulls of a file in the form of Delta's add actions."""
    (file,) = metadata
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    nulls: dict[str, int] = {}
    for group in map(file.row_group, range(file.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name not in (*_ASCENDING, "partition") or found is None:
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max:
                least[name] = min(least.get(name, found.min_raw), found.min_raw)
                most[name] = max(most.get(name, found.max_raw), found.max_raw)
    limits = {"minValues": _limits(least, 0), "maxValues": _limits(most, 999)}
    return json.dumps({"numRecords": file.num_rows, **limits, "nullCount": nulls})


def _limits(found: dict[str, int], round_up: int) -> dict[str, int | str]:
    """Limits with times in Delta's form, whole milliseconds; without a time that it cannot express."""
    limits: dict[str, int | str] = {**found}
    if "timestamp" in found:
        del limits["timestamp"]
        with contextlib.suppress(OverflowError):
            moment = _EPOCH + timedelta(milliseconds=(found["timestamp"] + round_up) // 1000)
            limits["timestamp"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return limits


def _open(directory: str, path: str) -> _Local | _Remote:
    """A new file. Where the directory is a local path, its own parents are there, and not made anew."""
    if "://" in directory:
        return _Remote(f"{directory}/{path}")
    full = os.path.join(directory, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    return _Local(full)


class _Remote:
    """A file of any file system of Arrow's, named by a URI."""

    def __init__(self, uri: str) -> None:
        system, path = pafs.FileSystem.from_uri(uri)
        self.stream = system.open_output_stream(path)
        self._size_bytes = 0

    def release(self) -> None:
        pass

    def close(self) -> None:
        self._size_bytes = self.stream.tell()
        self.stream.close()

    def tell(self) -> int:
        return self._size_bytes if self.stream.closed else int(self.stream.tell())


class _Local(io.RawIOBase):
    """A new file that is open from a write to the next `release`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: io.FileIO | None = io.FileIO(path, "xb")
        self._position = 0
        self.stream = pa.PythonFile(self, mode="w")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._file is None:
            self._file = io.FileIO(self._path, "ab")
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):  # a write of more than 2 GiB is done in parts
            done += self._file.write(view[done:]) or 0
        self._position += done
        return done

    def tell(self) -> int:
        return self._position

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.release()
        super().close()
