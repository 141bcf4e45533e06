"""Tables that the jobs write, by their options, and read back by libraries that took no part in it."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any


def table_options(kind: str, place: Path | str) -> list[str]:
    """The words that name the table `orders` of a format in a directory."""
    if kind == "delta":
        return ["--format", "delta", "--output", f"{place}/orders"]
    catalog = (f"uri=sqlite:///{place}/catalog.db", f"warehouse=file://{place}/warehouse")
    words = [word for text in catalog for word in ("--catalog", text)]
    return ["--format", "iceberg", "--output", "lake.sales.orders", *words]


def iceberg_table(place: Path | str, name: str = "orders") -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", uri=f"sqlite:///{place}/catalog.db").load_table(f"sales.{name}")


def read_table(kind: str, place: Path | str, name: str = "orders") -> Any:
    """All rows, as an Arrow table."""
    if kind == "iceberg":
        return iceberg_table(place, name).scan().to_arrow()
    from deltalake import DeltaTable

    return DeltaTable(f"{place}/{name}").to_pyarrow_table()


def spark_rows(kind: str, place: Path | str, spark: Any) -> Any:
    """All rows as Spark's Parquet reader sees them in the files that the table's library names, as an Arrow table.
    The readers of Iceberg and Delta for Spark do not run on the Spark of these tests."""
    from spark_jobs.tables.snapshot import read_snapshot

    words = table_options(kind, place)
    options = argparse.Namespace(
        format=kind,
        input=words[words.index("--output") + 1],
        catalog=[words[at + 1] for at, word in enumerate(words) if word == "--catalog"],
        snapshot=None,
        as_of=None,
    )
    rows = read_snapshot(spark, options)
    return rows.withColumn("partition", rows["partition"].cast("int")).toArrow()


def duckdb_rows(kind: str, place: Path | str) -> Any:
    """All rows as DuckDB's own readers of the formats see them, as an Arrow table."""
    import duckdb

    connection = duckdb.connect()
    connection.sql("set timezone = 'UTC'")
    for name in ("avro", "iceberg", "delta"):
        package = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert package is not None and package.submodule_search_locations is not None
        (file,) = Path(package.submodule_search_locations[0]).rglob("*.duckdb_extension")
        connection.sql(f"load '{file}'")
    source = f"delta_scan('{place}/orders')"
    if kind == "iceberg":
        source = f"iceberg_scan('{iceberg_table(place).metadata_location}')"
    return connection.sql(f"select * from {source}").to_arrow_table()
