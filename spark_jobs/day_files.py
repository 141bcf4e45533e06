"""Parquet files of one task, by topic and day: Arrow batches go straight into them, no row passes through Spark.

    DIRECTORY/topic=orders/day=2026-01-31/part-00003.snappy.parquet

Batches wait in memory until they have the bytes of a row group together, and are then all written, to each file one row
group. So memory stays within that bound, however many days the records of a task are from; and files are open only
while they are written, so there may be more days than file descriptors.

Schema and names are those of Spark's own writer: `topic` and `day` are in the path, columns that are never null are
required. Timestamps are 64-bit microseconds, where Spark writes the deprecated INT96 by default.
Source: org.apache.spark.sql.execution.datasources.parquet.{ParquetWriteSupport, SparkToParquetSchemaConverter}.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalite.reader.arrow import COLUMNS

COMPRESSIONS = {"snappy": "snappy", "zstd": "zstd", "gzip": "gz", "lz4": "lz4raw", "none": ""}
"""Codecs, and how files with them are named."""

_NEVER_NULL = frozenset({"partition", "offset", "timestampType"})
_ASCENDING = ("offset", "timestamp")  # mostly; as differences they take a byte or two

_TopicDay = tuple[str, str]


def file_schema(names: Sequence[str]) -> pa.Schema:
    """The schema of a file with these columns of the data source."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow, name not in _NEVER_NULL) for name in names])


class DayFiles:
    """Files of the task `number` below `directory`. `row_group_bytes` of batches, as they are in memory, may wait."""

    def __init__(self, directory: str, number: int, schema: pa.Schema, compression: str, row_group_bytes: int) -> None:
        self._directory = directory
        self._name = ".".join(filter(None, (f"part-{number:05d}", COMPRESSIONS[compression], "parquet")))
        self._schema = schema
        self._compression = compression
        self._row_group_bytes = row_group_bytes
        self._files: dict[_TopicDay, _DayFile] = {}
        self._waiting: dict[_TopicDay, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0

    def add(self, topic: str, day: str, batch: pa.RecordBatch) -> None:
        """Add rows of one topic and day; they may share memory with rows that are added beside them."""
        self._waiting.setdefault((topic, day), []).append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._row_group_bytes:
            self._write()

    def close(self) -> list[str]:
        """Write all waiting rows and the files' ends. Returns the paths of all files below the directory."""
        self._write()
        for file in self._files.values():
            file.close()
        return [file.path for file in self._files.values()]

    def _write(self) -> None:
        """Write all waiting rows: rows that share memory are released together."""
        while self._waiting:
            of, batches = self._waiting.popitem()
            if of not in self._files:
                path = os.path.join(f"topic={of[0]}", f"day={of[1]}", self._name)
                self._files[of] = _DayFile(self._directory, path, self._schema, self._compression)
            self._files[of].write(pa.Table.from_batches(batches, self._schema))
        self._waiting_bytes = 0


class _DayFile:
    """One file; `path` is below `directory`."""

    def __init__(self, directory: str, path: str, schema: pa.Schema, compression: str) -> None:
        self.path = path
        full = os.path.join(directory, path)
        os.makedirs(os.path.dirname(full))
        self._sink = _Appended(full)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            schema,
            compression=compression,
            use_dictionary=[name for name in schema.names if name not in _ASCENDING],
            column_encoding=dict.fromkeys(_ASCENDING, "DELTA_BINARY_PACKED"),
            write_statistics=[name for name in schema.names if name in _NEVER_NULL or name in _ASCENDING],
            store_schema=False,
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=len(rows))
        self._sink.release()

    def close(self) -> None:
        self._writer.close()
        self._sink.release()


class _Appended(io.RawIOBase):
    """A new file that is open from a write to the next `release`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: io.FileIO | None = io.FileIO(path, "xb")
        self._position = 0

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
