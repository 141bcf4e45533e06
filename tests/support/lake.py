"""Tables that the jobs write, by their options, and read back by libraries that took no part in it."""

from __future__ import annotations

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
