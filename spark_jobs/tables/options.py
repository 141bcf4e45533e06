"""Options of the jobs that write into tables."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from kafkalite.common.errors import ConfigError
from kafkalite.common.options import assignments
from spark_jobs.load_task import PARTITIONS
from spark_jobs.tables.delta import DeltaTable
from spark_jobs.tables.iceberg import IcebergTable

TABLE_FORMATS = ("iceberg", "delta")


Table = IcebergTable | DeltaTable
_LIBRARIES = ("pyiceberg.", "deltalake.", "_internal", "sqlalchemy.", "requests.")
"""Modules of errors, which have no base in common."""


def add_table(parser: argparse.ArgumentParser, name: str, partition_by: str = "topic,day") -> None:
    """The options that say into which table, and how."""
    add = parser.add_argument
    add(
        "--format",
        choices=("parquet", *TABLE_FORMATS),
        default="parquet",
        help="of the output: a directory of Parquet (default); an Iceberg table, CATALOG.NAMESPACE.TABLE; a Delta "
        "table, its directory or URI",
    )
    add_catalog(parser)
    add(
        "--partition-by",
        default=partition_by,
        metavar="A[,B]",
        help=f"of a new table: of {', '.join(PARTITIONS)}, or none (default: {partition_by})",
    )
    add("--name", default=name, help=f"of the load: its offsets are stored under it in the table (default: {name})")
    add("--into-existing", action="store_true", help="begin beside the rows that another writer has put in the table")


def add_catalog(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--catalog",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property of the Iceberg catalog, such as uri=http://... or warehouse=s3://...; may be repeated, and "
        "goes before pyiceberg's configuration",
    )


def maintain(options: argparse.Namespace, retain_ms: int) -> None:
    """Compacts small files, expires snapshots, and removes files that no snapshot has; a directory of Parquet stays as
    it is. Raises ConfigError."""
    if options.format in TABLE_FORMATS:
        with open_table(options) as table:
            table.maintain(retain_ms)


@contextmanager
def open_table(options: argparse.Namespace) -> Iterator[Table]:
    """The table that the options name. Raises ConfigError."""
    by = [name for name in options.partition_by.split(",") if name and name != "none"]
    unknown = [name for name in by if name not in PARTITIONS]
    if unknown:
        raise ConfigError(f"--partition-by {unknown[0]}: it may be {', '.join(PARTITIONS)}, or none")
    table: Table
    if options.format == "iceberg":
        properties = assignments("--catalog", options.catalog, "warehouse=file:///lake")
        table = IcebergTable(options.output, properties, options.name, by, options.into_existing)
    else:
        table = DeltaTable(options.output, options.name, by, options.into_existing)
    try:
        yield table
    except Exception as fault:
        if not type(fault).__module__.startswith(_LIBRARIES):
            raise
        raise ConfigError(f"{options.output}: {type(fault).__name__}: {fault}") from fault
    finally:
        table.close()
