"""The format "kafkalite": a Python data source of Spark over plan and reader.

Planning runs once per query, in a Python process beside the driver; each split is one Spark partition, read in a Python
worker of an executor. A schema given by the user may leave columns out, which saves the work of making them: Spark does
not tell a Python source which columns a query needs.
Source: pyspark.sql.datasource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kafkalite.common.errors import ConfigError
from kafkalite.producer.options import parse_write_options
from kafkalite.reader.arrow import COLUMNS
from kafkalite.reader.chunk_reader import read_split
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from kafkalite.reader.planning.read_options import ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.spark.writer import JobWriter, KafkaliteStreamWriter, KafkaliteWriter

_DDL = {name: column.ddl for name, column in COLUMNS.items()}


class KafkaliteDataSource(DataSource):
    """Topics of a data directory as rows. See `kafkalite.reader.options`."""

    @classmethod
    def name(cls) -> str:
        return "kafkalite"

    def schema(self) -> str:
        options = parse_options(self.options)
        return ", ".join(
            f"{name} {kind}" for name, kind in _DDL.items() if name != "headers" or options.include_headers
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return KafkaliteReader(parse_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return KafkaliteWriter(JobWriter(parse_write_options(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return KafkaliteStreamWriter(JobWriter(parse_write_options(self.options), schema, overwrite))


class SplitPartition(InputPartition):
    """One split is one Spark partition; None where there is nothing to read."""

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)


class KafkaliteReader(DataSourceReader):
    """Plans in one process, reads in others: only the options and the schema travel."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = [(field.name, field.nullable) for field in schema.fields]
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if _DDL.get(field.name) != kind:
                known = ", ".join(f"{name} {kind}" for name, kind in _DDL.items())
                raise ConfigError(f"there is no column '{field.name} {kind}'; choose among {known}")

    def partitions(self) -> Sequence[InputPartition]:
        return [SplitPartition(split) for split in plan(self.options)] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())
        schema = pa.schema([pa.field(name, COLUMNS[name].arrow, nullable) for name, nullable in self.columns])
        return read_split(partition.value, schema)
