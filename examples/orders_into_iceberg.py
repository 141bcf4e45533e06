"""Orders go into an Iceberg table while they come in, and a dashboard in DuckDB reads the same table.

    pip install 'kafkalite[spark,tables,duckdb]'
    python -m examples.orders_into_iceberg revenue.svg

A shop writes a day of orders into a topic, a quarter of it at a time. `spark_jobs.load --every 1s` adds what is new to
the table, each order once, with its JSON as columns; it reads the topic's files beside the broker. After each quarter
DuckDB asks the table for the revenue by hour and country. The last answer becomes a picture.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import duckdb
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

import kafkalite
from examples.bar_chart import bar_chart
from examples.endless_job import endless_job

ORDERS, PARTITIONS = 20_000, 3
COUNTRIES = {"DE": 5, "FR": 4, "IT": 3, "PL": 2, "ES": 2}  # with weights
MONDAY_MS, HOUR_MS = 1_767_571_200_000, 3_600_000  # 2026-01-05 in UTC
SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "integer"}, "country": {"type": "string"}, "cents": {"type": "integer"}},
}
DASHBOARD = """
select hour("timestamp") as hour, value.country as country, count(*) as orders, sum(value.cents)::bigint as cents
from iceberg_scan($table) group by all order by all
"""


class Line(NamedTuple):
    """One line of the dashboard."""

    hour: int
    country: str
    orders: int
    cents: int


class Shop:
    """Writes the orders, and remembers their sum."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "log.connection.close": False}
        self._producer = Producer(settings)
        self._chance = random.Random(1)
        weights = [
            1.2 - math.cos(2 * math.pi * (hour - 3) / 24) for hour in range(24)
        ]  # most at three in the afternoon
        self._hours = sorted(self._chance.choices(range(24), weights, k=ORDERS))
        self.orders = self.cents = 0

    def sell_until(self, end: int) -> None:
        """The orders of the hours before this one that were not sold yet."""
        chance = self._chance
        while self.orders < ORDERS and (hour := self._hours[self.orders]) < end:
            cents, (country,) = chance.randrange(500, 20_000), chance.choices(*zip(*COUNTRIES.items(), strict=True))
            order = {"order": self.orders, "country": country, "cents": cents}
            moment = MONDAY_MS + hour * HOUR_MS + chance.randrange(HOUR_MS)
            self._producer.produce("orders", json.dumps(order), f"customer-{chance.randrange(500)}", timestamp=moment)
            self.orders, self.cents = self.orders + 1, self.cents + cents
        self._producer.flush()


class Dashboard:
    """DuckDB on the Iceberg table in the directory `lake`. The extensions are packages of the extra `duckdb`."""

    def __init__(self, lake: Path) -> None:
        self._catalog = load_catalog("lake", uri=f"sqlite:///{lake}/catalog.db")
        self._database = duckdb.connect()
        self._database.sql("set timezone = 'UTC'")
        for name in ("avro", "iceberg"):
            package = find_spec(f"duckdb_extension_{name}")
            if package is None or not package.submodule_search_locations:
                raise SystemExit("DuckDB's extensions are not here: pip install 'kafkalite[duckdb]'")
            (file,) = Path(package.submodule_search_locations[0]).rglob("*.duckdb_extension")
            self._database.sql(f"load '{file}'")

    def ask(self) -> list[Line]:
        """The revenue by hour and country of the table's newest snapshot, which the catalog names."""
        table = self._catalog.load_table("sales.orders").metadata_location
        return [Line(*row) for row in self._database.execute(DASHBOARD, {"table": table}).fetchall()]


def draw(lines: Sequence[Line]) -> str:
    revenue = {country: [0.0] * 24 for country in COUNTRIES}
    for line in lines:
        revenue[line.country][line.hour] += line.cents / 100
    labels = [(hour + 0.5, f"{hour:02}") for hour in range(0, 24, 3)]
    return bar_chart("Revenue by hour (UTC) and country", revenue, labels)


def run(place: Path) -> list[Line]:
    """The dashboard at the end of the day."""
    data, lake, schema = place / "data", place / "lake", place / "order.json"
    lake.mkdir()
    schema.write_text(json.dumps(SCHEMA))
    catalog = ("--catalog", f"uri=sqlite:///{lake}/catalog.db", "--catalog", f"warehouse=file://{lake}")
    table = ("--format", "iceberg", "--output", "lake.sales.orders", *catalog)
    source = ("--data-dir", str(data), "--topic", "orders", "--value", "json", "--value-schema", str(schema))
    # the day may be long ago, and retention goes by the records' timestamps
    with kafkalite.Broker(data_dir=data, port=0, log_retention_ms=-1) as broker:
        broker.create_topic("orders", partitions=PARTITIONS)
        shop, dashboard = Shop(broker.bootstrap_servers), Dashboard(lake)
        shop.sell_until(until := 6)
        with endless_job("load", *source, *table, "--every", "1s") as job:
            loaded = 0
            for commit in job.commits():
                loaded += int(re.findall(r"([\d,]+) rows", commit)[0].replace(",", ""))
                if loaded < shop.orders:
                    continue
                lines = dashboard.ask()
                orders, cents = sum(line.orders for line in lines), sum(line.cents for line in lines)
                if (orders, cents) != (shop.orders, shop.cents):
                    raise SystemExit(f"the table has {orders:,} orders, the shop sold {shop.orders:,}")
                print(f"{until:02}:00: {orders:>6,} orders, revenue {cents / 100:>12,.2f}, as the shop's", flush=True)
                if until == 24:
                    break
                shop.sell_until(until := until + 6)
            print(job.stop())
    return lines


def main(picture: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="kafkalite-example-") as place:
        lines = run(Path(place))
    picture.write_text(draw(lines))
    print(f"{len(lines)} figures are drawn in {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "revenue.svg"))
