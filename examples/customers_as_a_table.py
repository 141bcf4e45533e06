"""The customers of a compacted topic as a table that is up to date: of each the last record, and none that was deleted.

    pip install 'kafkalite[spark,tables]'
    python -m examples.customers_as_a_table delta        # or iceberg

`spark_jobs.latest --every 1s` merges what is new by key. Customers move, and some close their accounts, which is a
tombstone in the topic. Each time the table is compared with the last word on every customer, at the end also with what
the broker's own compaction leaves of the topic. The towns before and after are drawn as bars of text.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import kafkalite
from examples.endless_job import EndlessJob, endless_job

CUSTOMERS, MOVED, CLOSED, PARTITIONS = 2_000, 600, 200, 3
TOWNS = {"Berlin": 8, "Hamburg": 5, "Leipzig": 4, "Munich": 3}  # with weights
BAR = 20  # customers of a character

Customers = dict[str, str]
"""The town of each customer."""


class Registry:
    """Writes what happens to customers, and remembers what is true of them now."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "log.connection.close": False}
        self._producer = Producer(settings)
        self._chance = random.Random(1)
        self.customers: Customers = {}

    def put(self, keys: list[str], towns: list[str], weights: list[int]) -> None:
        for key, town in zip(keys, self._chance.choices(towns, weights, k=len(keys)), strict=True):
            self._producer.produce("customers", json.dumps({"town": town}), key)
            self.customers[key] = town
        self._producer.flush()

    def close_accounts(self, keys: list[str]) -> None:
        for key in keys:
            self._producer.produce("customers", None, key)
            del self.customers[key]
        self._producer.flush()

    def some(self, count: int) -> list[str]:
        return self._chance.sample(sorted(self.customers), count)


class Table:
    """The table in the directory `lake`, read by a library that took no part in the job."""

    def __init__(self, kind: str, lake: Path) -> None:
        self._kind, self._lake = kind, lake
        catalog = ("--catalog", f"uri=sqlite:///{lake}/catalog.db", "--catalog", f"warehouse=file://{lake}")
        iceberg = ("--output", "lake.crm.customers", *catalog)
        delta = ("--output", f"{lake}/customers")
        self.options = ("--format", kind, *(iceberg if kind == "iceberg" else delta))

    def read(self) -> Customers:
        if self._kind == "iceberg":
            rows = load_catalog("lake", uri=f"sqlite:///{self._lake}/catalog.db").load_table("crm.customers").scan()
            columns = rows.to_arrow().select(["key", "value"]).to_pydict()
        else:
            columns = DeltaTable(f"{self._lake}/customers").to_pyarrow_table(columns=["key", "value"]).to_pydict()
        keys = [key.decode() for key in columns["key"]]
        assert len(set(keys)) == len(keys), "a customer has two rows"
        return {key: json.loads(value)["town"] for key, value in zip(keys, columns["value"], strict=True)}


def await_equality(job: EndlessJob, table: Table, registry: Registry) -> Customers:
    """The table, once all that has happened is in it."""
    for _ in job.commits():
        if (found := table.read()) == registry.customers:
            print(f"the table has {len(found):,} customers, the last word on each", flush=True)
            return found
    raise AssertionError("commits end by SystemExit")


def chart(before: Customers, after: Customers) -> str:
    lines = []
    counts = Counter(before.values()), Counter(after.values())
    for town in sorted({*before.values(), *after.values()}):
        for name, count in zip((town, ""), counts, strict=True):
            sign = "#" if name else "="
            lines.append(f"  {name:<9}{sign * (count[town] // BAR)} {count[town]}")
    return "\n".join([*lines, f"  # before, = after, a sign for {BAR} customers"])


def run(kind: str, place: Path) -> tuple[Customers, Customers]:
    """The table before and after customers have moved and left."""
    data, lake = place / "data", place / "lake"
    lake.mkdir()
    table = Table(kind, lake)
    source = ("--data-dir", str(data), "--topic", "customers")
    with kafkalite.Broker(data_dir=data, port=0) as broker:
        broker.create_topic("customers", partitions=PARTITIONS, cleanup_policy="compact")
        registry = Registry(broker.bootstrap_servers)
        registry.put([f"customer-{number}" for number in range(CUSTOMERS)], list(TOWNS), list(TOWNS.values()))
        with endless_job("latest", *source, *table.options, "--every", "1s") as job:
            before = await_equality(job, table, registry)
            registry.put(registry.some(MOVED), ["Leipzig", "Rostock"], [1, 1])
            registry.close_accounts(registry.some(CLOSED))
            print(f"{MOVED} customers move, {CLOSED} close their accounts", flush=True)
            after = await_equality(job, table, registry)
            print(job.stop())
        broker.roll("customers")
        broker.compact("customers")
        left = [(one.key.decode(), json.loads(one.value)["town"]) for one in broker.records("customers") if one.value]
        if sorted(left) != sorted(after.items()):
            raise SystemExit("the broker's compaction leaves other customers")
        print(f"compaction leaves the same {len(left):,} records of the topic")
    return before, after


def main(kind: str) -> None:
    if kind not in ("iceberg", "delta"):
        raise SystemExit("usage: python -m examples.customers_as_a_table iceberg|delta")
    with tempfile.TemporaryDirectory(prefix="kafkalite-example-") as place:
        before, after = run(kind, Path(place))
    print(chart(before, after))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "delta")
