"""load.py in a real Spark: what is shown, what is new, what a run writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord, build_batch

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from pyspark.sql import functions as F

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
        done = load_job.load_into(spark, options(topics, *arguments), output)
    return None if done is None else done.path


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


def test_a_run_has_the_schema_and_the_rows_that_spark_itself_would_write(
    spark: Any, topics: Any, tmp_path: Path
) -> None:
    beyond = 1 << 62  # no time in microseconds
    topics.write(
        [NewRecord(None, b"", (), T0), NewRecord(b"", None, (("n", None), ("", b"v")), T0 + DAY_MS)],
        [NewRecord(b"k", b"v", (), at) for at in (-1, T0, beyond, 253_402_300_800_000, -62_167_219_200_001, T0)],
    )
    topics.write([NewRecord(b"a", b"b" * 3000, (), T0 - DAY_MS)] * 50, topic="bills", codec=2)
    wanted = options(topics, "--topic", "orders,bills", "--headers")
    lake, reference = tmp_path / "lake", tmp_path / "reference"
    with open_output(str(lake)) as output:
        done = load_job.load_into(spark, wanted, output)
    days = F.floor(F.unix_millis("timestamp") / F.lit(DAY_MS)).cast("int")
    dated = load_job.load(spark, wanted).withColumn("day", F.date_add(F.lit("1970-01-01").cast("date"), days))
    dated.write.partitionBy("topic", "day").parquet(str(reference / "run=000001"))

    def directories(path: Path) -> set[str]:
        return {str(file.parent.relative_to(path)) for file in path.glob("run=*/*/*/*.parquet")}

    assert directories(lake) == directories(reference)
    assert {"run=000001/topic=orders/day=+10000-01-01", "run=000001/topic=orders/day=-0001-12-31"} < directories(lake)
    ours, theirs = (spark.read.parquet(str(path)) for path in (lake, reference))
    assert ours.schema == theirs.schema
    # as they are: Python has no times behind the year 9999
    plain = {"timestamp": F.unix_micros("timestamp"), "day": F.unix_date("day")}
    found, expected = (sorted(map(str, rows.withColumns(plain).collect())) for rows in (ours, theirs))
    assert found == expected and len(found) == 58
    mixed = tmp_path / "mixed"  # runs of both, as in an output that was begun by a load of old
    shutil.copytree(lake, mixed)
    shutil.copytree(reference / "run=000001", mixed / "run=000002")
    assert spark.read.parquet(str(mixed)).where("timestamp is not null").count() == 2 * 57
    assert done is not None and done.loaded["bills", 0] == (50, 0, 49, (T0 - DAY_MS) * 1000, (T0 - DAY_MS) * 1000)


@pytest.mark.parametrize(("compression", "name"), [("snappy", "snappy."), ("gzip", "gz."), ("none", "")])
def test_the_codec_of_the_files_can_be_chosen(
    spark: Any, topics: Any, tmp_path: Path, compression: str, name: str
) -> None:
    topics.write(records(0, 1))
    with open_output(str(tmp_path / "lake")) as output:
        load_job.load_into(spark, options(topics), output, compression)
    (file,) = (tmp_path / "lake").glob("run=*/*/*/*")
    assert file.name == f"part-00000.{name}parquet"
    assert spark.read.parquet(str(tmp_path / "lake")).first().value == b"0"


def test_a_task_that_is_tried_again_leaves_nothing_twice(
    spark: Any, topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.write(records(0, 6))
    real = load_job.write_split

    def twice(task: Any) -> Any:
        real(task)
        return real(task)

    monkeypatch.setattr(load_job, "write_split", twice)
    run(spark, topics, tmp_path / "lake")
    assert offsets(spark, tmp_path / "lake") == [(0, n) for n in range(6)]
    assert [path.name for path in (tmp_path / "lake" / "_kafkalite").iterdir()] == ["lock"]


def test_a_corrupt_batch_ends_the_job_with_one_line_and_no_run(
    topics: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    topics.write(records(0, 3), records(3, 6))
    data = bytearray(topics.segment().read_bytes())
    data[70] ^= 1
    topics.segment().write_bytes(data)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # the session is that of all tests
    arguments = ["--data-dir", str(topics.path), "--topic", "orders", "--output", str(tmp_path / "lake")]
    assert load_job.main(arguments) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert "its checksum is wrong" in said[-1] and str(topics.segment()) in said[-1]
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["_kafkalite"]


def test_a_job_says_what_it_has_loaded(
    topics: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    topics.write(records(0, 6))
    arguments = ["--data-dir", str(topics.path), "--topic", "orders", "--output", str(tmp_path / "lake")]
    for _ in range(2):
        assert load_job.main(arguments) == 0
    told = capsys.readouterr()
    row = "orders          0     6             0            5  2023-11-14 22:13:20.123Z  2023-11-17 10:13:20.123Z"
    assert row in told.out
    assert "run=000001 is complete\n" in told.err and "nothing new" in told.err


def test_a_bound_that_is_none_of_the_kinds_is_named(topics: Any) -> None:
    with pytest.raises(ConfigError, match="--from yesterday: must be milliseconds since 1970, or a time"):
        options(topics, "--from", "yesterday")
