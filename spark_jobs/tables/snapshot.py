"""Rows of a table as it is, as of a snapshot, or as of a time: its files, which Spark reads as Parquet.

The table's library names the files of the snapshot; no jar takes part. Values of Delta's partition columns are not in
its files and become constants. Deletes that another writer has put beside the files are refused.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkalite.common.errors import ConfigError
from kafkalite.common.options import assignments
from kafkalite.common.timestamps import parse_moment
from spark_jobs.tables.delta import load_delta
from spark_jobs.tables.directory import local_path
from spark_jobs.tables.iceberg import load_iceberg

Constants = tuple[tuple[str, str | None], ...]


class Snapshot(NamedTuple):
    """Files by the constants of their rows, and the names of the other columns."""

    files: dict[Constants, list[str]]
    columns: list[str]


def read_snapshot(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The rows of the table that the options name. Raises ConfigError."""
    as_of_ms = None if options.as_of is None else parse_moment("--as-of", options.as_of)
    if as_of_ms is not None and options.snapshot is not None:
        raise ConfigError("--snapshot and --as-of exclude each other")
    if options.format == "iceberg":
        found = _iceberg(
            options.input, assignments("--catalog", options.catalog, "uri=..."), options.snapshot, as_of_ms
        )
    else:
        found = _delta(options.input, options.snapshot, as_of_ms)
    parts = []
    for constants, paths in found.files.items():
        rows = spark.read.parquet(*paths)
        columns = [F.col(name) for name in found.columns if name in rows.columns]
        parts.append(rows.select(*columns, *(F.lit(value).alias(name) for name, value in constants)))
    if not parts:
        raise ConfigError(f"{options.input} has no rows")
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part, allowMissingColumns=True)
    return rows


def _iceberg(name: str, properties: dict[str, str], snapshot_id: int | None, as_of_ms: int | None) -> Snapshot:
    table = load_iceberg(name, properties)
    if table is None:
        raise ConfigError(f"there is no table {name}")
    if as_of_ms is not None:
        snapshot = table.snapshot_as_of_timestamp(as_of_ms)
        snapshot_id = None if snapshot is None else snapshot.snapshot_id
    if (as_of_ms is not None and snapshot_id is None) or (snapshot_id and table.snapshot_by_id(snapshot_id) is None):
        raise ConfigError(
            f"{name} has no such snapshot; it has {_range([one.timestamp_ms for one in table.snapshots()])}"
        )
    paths = []
    for task in table.scan(snapshot_id=snapshot_id).plan_files():
        if task.delete_files:
            raise ConfigError(f"{name} has deletes of another writer, which cannot be read; compact it")
        paths.append(local_path(task.file.file_path))
    return Snapshot({(): sorted(paths)} if paths else {}, [field.name for field in table.schema().fields])


def _delta(path: str, version: int | None, as_of_ms: int | None) -> Snapshot:
    table = load_delta(path)
    if table is None:
        raise ConfigError(f"there is no table {path}")
    moment = None if as_of_ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=as_of_ms)
    wanted = moment if version is None else version
    if wanted is not None:
        try:
            table.load_as_version(wanted)
        except Exception as fault:  # of the library, by the kind of what is missing
            raise ConfigError(f"{path} has no such snapshot: {fault}") from None
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise ConfigError(f"{path} has deletion vectors, which cannot be read")
    by = list(table.metadata().partition_columns)
    files: dict[Constants, list[str]] = {}
    for add in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        constants = tuple((name, _text(add[f"partition.{name}"])) for name in by)
        files.setdefault(constants, []).append(f"{local_path(path)}/{unquote(add['path'])}")
    return Snapshot(files, [field.name for field in table.schema().fields if field.name not in by])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _range(times_ms: list[int]) -> str:
    if not times_ms:
        return "none"
    first, last = (datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (min(times_ms), max(times_ms)))
    return f"those from {first} to {last}"
