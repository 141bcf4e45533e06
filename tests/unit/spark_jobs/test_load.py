"""load.py in a real Spark: what is shown, what is new, what a run writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord, build_batch

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from kafkalite.common.errors import ConfigError
from spark_jobs import load as load_job
from spark_jobs.job import add_source, new_parser, source_options
from spark_jobs.load_output import open_output

DAY_MS = 86_400_000
T0 = 1_700_000_000_123
pytestmark = pytest.mark.timeout(300)


def records(first: int, end: int) -> list[NewRecord]:
    """Two a day."""
    return [NewRecord(b"k", b"%d" % n, (("n", b""),), T0 + n * DAY_MS // 2) for n in range(first, end)]


def options(topics: Any, *arguments: str) -> dict[str, str]:
    parser = new_parser("load", "")
    add_source(parser)
    return source_options(parser.parse_args(["--data-dir", str(topics.path), "--topic", "orders", *arguments]))


def run(spark: Any, topics: Any, lake: Path, *arguments: str) -> str | None:
    with open_output(str(lake)) as output:
        return load_job.load_into(spark, options(topics, *arguments), output)


def offsets(spark: Any, lake: Path) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in spark.read.parquet(str(lake)).collect())


def test_what_there_is_is_shown(spark: Any, topics: Any, capsys: Any) -> None:
    topics.write(records(0, 20))
    load_job.describe(load_job.load(spark, options(topics)), 2)
    out = capsys.readouterr().out
    assert "value: binary" in out
    assert "orders          0    20             0           19  2023-11-1" in out
    assert "|  k|    0|orders|        0|     0|" in out


def test_runs_are_by_topic_and_day_and_add_only_what_is_new(spark: Any, topics: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    topics.write(records(0, 6))
    assert run(spark, topics, lake) == str(lake / "run=000001")
    topics.write(records(6, 9), base_offset=6)
    topics.write(records(0, 2), partition=1)
    assert run(spark, topics, lake) == str(lake / "run=000002")
    assert run(spark, topics, lake) is None
    assert offsets(spark, lake) == [*((0, n) for n in range(9)), (1, 0), (1, 1)]
    rows = spark.read.parquet(str(lake))
    found = rows.selectExpr("topic", "cast(day as string)", "cast(value as string)", "unix_millis(timestamp)", "run")
    assert sorted(map(tuple, found.where("partition = 0").collect()), key=lambda row: int(row[2]))[5:7] == [
        ("orders", "2023-11-17", "5", T0 + 5 * DAY_MS // 2, 1),
        ("orders", "2023-11-17", "6", T0 + 6 * DAY_MS // 2, 2),
    ]


def test_open_and_aborted_transactions_wait_or_stay_out(spark: Any, topics: Any, tmp_path: Path) -> None:
    def marker(offset: int, *, commit: bool) -> bytes:
        key = b"\0\0\0\1" if commit else b"\0\0\0\0"
        how = {"producer_id": 7, "producer_epoch": 0, "control": True, "transactional": True}
        return build_batch([NewRecord(key, bytes(6), (), T0)], base_offset=offset, **how)

    how = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    topics.write(records(0, 2), **how)
    lake = tmp_path / "lake"
    run(spark, topics, lake)
    assert not list(lake.glob("run=*/*/*/*.parquet")), "the run knows its offsets, which wait for the end"
    with open(topics.segment(), "ab") as file:
        file.write(marker(2, commit=False) + build_batch(records(3, 5), base_offset=3, **how))
    run(spark, topics, lake)
    with open(topics.segment(), "ab") as file:
        file.write(marker(5, commit=True))
    run(spark, topics, lake)
    assert offsets(spark, lake) == [(0, 3), (0, 4)]


def test_bounds_are_for_partitions_that_are_new(spark: Any, topics: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    topics.write(records(0, 6))
    run(spark, topics, lake, "--from", '{"orders": {"0": 2}}', "--until", '{"orders": {"0": 4}}')
    assert offsets(spark, lake) == [(0, 2), (0, 3)]
    assert run(spark, topics, lake, "--until", '{"orders": {"0": 3}}') is None
    run(spark, topics, lake, "--from", '{"orders": {"0": 5}}')
    assert offsets(spark, lake) == [(0, n) for n in (2, 3, 4, 5)]


def test_records_that_retention_took_are_an_error_unless_told_otherwise(
    spark: Any, topics: Any, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    topics.write(records(0, 6))
    run(spark, topics, lake)
    topics.segment().unlink()
    topics.write(records(8, 10), base_offset=8)
    with pytest.raises(ConfigError, match="orders-0 is loaded up to offset 6, but offsets 8 to 10 are there"):
        run(spark, topics, lake)
    run(spark, topics, lake, "--ignore-data-loss")
    assert offsets(spark, lake) == [(0, n) for n in (*range(6), 8, 9)]


def test_the_schema_of_an_output_stays(spark: Any, topics: Any, tmp_path: Path) -> None:
    topics.write(records(0, 2))
    run(spark, topics, tmp_path / "lake", "--headers")
    assert spark.read.parquet(str(tmp_path / "lake")).first().headers[0].key == "n"
    topics.write(records(2, 3), base_offset=2)
    with pytest.raises(ConfigError, match="give --headers"):
        run(spark, topics, tmp_path / "lake")


def test_a_bound_that_is_none_of_the_kinds_is_named(topics: Any) -> None:
    with pytest.raises(ConfigError, match="--from is 'yesterday'; write"):
        options(topics, "--from", "yesterday")
