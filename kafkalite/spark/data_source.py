"""The format "kafkalite": a Python data source of Spark over plan and reader.

Planning runs once per query, in a Python process beside the driver; each split is one Spark partition, read in a Python
worker of an executor. A schema given by the user may leave columns out, which saves the work of making them: Spark does
not pass the columns of a query to a Python source.
Each process imports only what it needs: the schema is known without numpy and pyarrow.
Source: pyspark.sql.datasource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.reader.options import column_names, parse_options
from kafkalite.reader.planning.read_options import ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.spark.worker_process import make_reuse_cheap

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalite.spark.writer import JobWriter


class _Type(NamedTuple):
    """A column's type in Spark's words, and whether it can be null: a column that cannot costs the JVM 10 ns less."""

    name: str
    nullable: bool = True


_TYPES = {
    "key": _Type("binary"),
    "value": _Type("binary"),
    "topic": _Type("string", nullable=False),
    "partition": _Type("int", nullable=False),
    "offset": _Type("bigint", nullable=False),
    "timestamp": _Type("timestamp"),
    "timestampType": _Type("int", nullable=False),
    "headers": _Type("array<struct<key:string,value:binary>>"),
}


class KafkaliteDataSource(DataSource):
    """Topics of a data directory as rows. See `kafkalite.reader.options`."""

    @classmethod
    def name(cls) -> str:
        return "kafkalite"

    def schema(self) -> str:
        names = column_names(self.options)
        make_reuse_cheap()
        kinds = [(name, _TYPES[name]) for name in names]
        return ", ".join(f"{name} {kind.name}{'' if kind.nullable else ' NOT NULL'}" for name, kind in kinds)

    def reader(self, schema: StructType) -> DataSourceReader:
        return KafkaliteReader(parse_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kafkalite.spark.stream_reader import KafkaliteStreamReader

        return KafkaliteStreamReader(parse_options(self.options, streaming=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kafkalite.spark.writer import KafkaliteWriter

        return KafkaliteWriter(self._job_writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kafkalite.spark.writer import KafkaliteStreamWriter

        return KafkaliteStreamWriter(self._job_writer(schema, overwrite))

    def _job_writer(self, schema: StructType, overwrite: bool) -> JobWriter:
        from kafkalite.client.producer.options import parse_write_options
        from kafkalite.spark.writer import JobWriter

        return JobWriter(parse_write_options(self.options), schema, overwrite)


class SplitPartition(InputPartition):
    """One split is one Spark partition; None where there is nothing to read."""

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)


class KafkaliteReader(DataSourceReader):
    """Plans in one process, reads in others: only the options and the schema are pickled."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = columns_of(schema)

    def partitions(self) -> Sequence[InputPartition]:
        from kafkalite.reader.plan import plan

        splits = plan(self.options)
        make_reuse_cheap()
        return [SplitPartition(split) for split in splits] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from kafkalite.reader.chunk_reader import read_as_asked

        make_reuse_cheap()
        return read_as_asked(partition.value or (), self._arrow_schema(), self.options)

    def _arrow_schema(self) -> Any:
        import pyarrow as pa

        from kafkalite.reader.chunk_reader import COLUMNS

        return pa.schema([pa.field(name, COLUMNS[name].arrow, nullable) for name, nullable in self.columns])


def columns_of(schema: StructType) -> list[tuple[str, bool]]:
    """Names of the columns, and whether they may have nulls. ConfigError for an unknown one."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in _TYPES or _TYPES[field.name].name != kind:
            known = ", ".join(f"{name} {kind.name}" for name, kind in _TYPES.items())
            raise ConfigError(f"there is no column '{field.name} {kind}'; choose among {known}")
    return [(field.name, field.nullable) for field in schema.fields]
