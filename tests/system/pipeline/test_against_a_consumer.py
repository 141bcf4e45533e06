"""Tables have the rows that a stock consumer has, over random histories, read back by each library and by DuckDB.

A history is everything that may happen to a topic: compaction, open and aborted transactions, deleted prefixes, every
codec, formats v0, v1 and v2, headers, nulls.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyiceberg", reason="needs the extra 'tables': ./dev setup")
pytest.importorskip("deltalake", reason="needs the extra 'tables': ./dev setup")

import pyarrow as pa

from spark_jobs import latest, load
from tests.support.lake import duckdb_rows, read_table, spark_rows, table_options
from tests.support.reader.stock_consumer import Row, StockConsumer
from tests.support.reader.topic_history import TopicHistory, Writers
from tests.support.spark_session import pytest_collection_modifyitems, spark

TOPICS = int(os.environ.get("KAFKALITE_TEST_TABLES", "20"))
DEEDS = 40
FIRST_MS, END_MS = -62_135_596_800_000, 253_402_300_800_000  # of the years 1 to 9999


__all__ = ["pytest_collection_modifyitems", "spark"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Row]]]:
    """The data directory of topics at rest, and their committed rows."""
    data_dir = tmp_path_factory.mktemp("data")
    histories = [TopicHistory(7000 + number) for number in range(TOPICS)]
    for history in histories:
        history.write_before(data_dir)
    with Writers(data_dir, adopt=True) as writers:
        for history in histories:
            history.create(writers)
            history.live(writers, DEEDS)
        consumer = StockConsumer(writers.bootstrap, read_committed=True)
        rows = []
        for history in histories:
            bounds = {index: consumer.bounds(history.topic, index) for index in range(history.partitions)}
            rows += consumer.read(history.topic, bounds)
        consumer.close()
        yield data_dir, rows


def expected(row: Row) -> tuple[object, ...]:
    millis = row.timestamp if FIRST_MS <= row.timestamp < END_MS else None
    headers = [{"key": key, "value": value} for key, value in row.headers or ()]
    return row.topic, row.partition, row.offset, row.key, row.value, millis, headers


def found(rows: Any) -> list[tuple[object, ...]]:
    """Rows of an Arrow table. An empty list of headers is none: pyiceberg reads null so."""
    names = ("topic", "partition", "offset", "key", "value", "timestamp", "headers")
    columns = dict(zip(names, (rows.column(name).to_pylist() for name in names), strict=True))
    millis = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    columns["timestamp"] = [None if at is None else at // 1000 for at in millis]
    columns["headers"] = [of or [] for of in columns["headers"]]
    return sorted(zip(*columns.values(), strict=True), key=lambda row: row[:3])


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("job", ["load", "latest"])
def test_a_table_has_the_rows_of_a_stock_consumer(
    world: tuple[Path, list[Row]], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, kind: str
) -> None:
    data_dir, rows = world
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # the session is that of all tests
    topics = ",".join(sorted({row.topic for row in rows}))
    words = ["--data-dir", str(data_dir), "--topic", topics, "--headers", *table_options(kind, tmp_path)]
    assert {"load": load, "latest": latest}[job].main(words) == 0
    if job == "latest":
        last = {(row.topic, row.partition, row.key): row for row in rows if row.key is not None}
        rows = [row for row in last.values() if row.value is not None]
    wanted = sorted(map(expected, rows), key=lambda row: row[:3])
    assert len(wanted) > 10 * TOPICS, "the topics are empty"
    assert found(read_table(kind, tmp_path)) == wanted
    assert found(spark_rows(kind, tmp_path, spark)) == wanted
    if importlib.util.find_spec("duckdb_extension_iceberg") is None:
        pytest.skip("the libraries read the same rows; DuckDB is not here: run ./dev pipeline")
    assert found(duckdb_rows(kind, tmp_path)) == wanted
