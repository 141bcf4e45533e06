"""The bench of Spark's sources: what is run, its figures, and one small comparison in a real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.keyed_log import CODECS
from bench.reference import ReferenceUnavailable
from bench.spark.environment import environment
from bench.spark.main import main, parse, shapes, work_of
from bench.spark.table import figures, table, to_json
from bench.spark.work import (
    AGGREGATE,
    BEST,
    BY_OFFSET,
    COUNT,
    DEFAULT,
    DELTA,
    HEADERS,
    ICEBERG,
    LOAD,
    OURS,
    PARQUET,
    PRUNED,
    STREAM,
    STREAM_SPLIT,
    TABLES,
    WRITE,
    Sample,
    Work,
)


def names(*words: str) -> list[str]:
    return [f"{shape.name} {sink}" for shape in shapes(parse(words)) for sink in shape.sinks]


def test_every_size_codec_and_sink_is_run_unless_some_are_chosen() -> None:
    sizes = ("100B", "1KB")
    all_rows = [
        f"{size} {codec} {sink}"
        for size in sizes
        for codec in CODECS
        for sink in (AGGREGATE, PARQUET, WRITE)
        if sink != WRITE or codec == "none"
    ]
    assert names() == [f"small query {AGGREGATE}", *all_rows]
    assert names("--count-records", "1000")[-1] == f"count {COUNT}"
    assert names("--table-records", "1000")[-1] == f"100B none {TABLES}"
    assert names("--only", "1KB*parquet,small*") == [
        f"small query {AGGREGATE}", *[f"1KB {codec} {PARQUET}" for codec in CODECS]
    ]  # fmt: skip


def test_a_small_query_has_two_sides_and_the_stock_source_is_run_at_its_best_beside_the_others() -> None:
    small, rows = shapes(parse([]))[:2]
    assert work_of(small, AGGREGATE, "t", 5).sides == (OURS, DEFAULT)
    assert work_of(rows, AGGREGATE, "t", 5) == Work(
        "100B none aggregate", "t", 8_000_000, AGGREGATE, (OURS, DEFAULT, PRUNED, BEST), 5
    )


def test_figures_are_medians_and_a_missed_target_is_bold() -> None:
    work = Work("100B none aggregate", "t", 4_000_000, AGGREGATE, (OURS, DEFAULT, BEST), 3)
    samples = [
        *[Sample(work.name, OURS, seconds, 1.0, 0.0) for seconds in (1.0, 4.0, 2.0)],
        *[Sample(work.name, DEFAULT, seconds, 3.0, 1.0) for seconds in (10.0, 9.0, 20.0)],
        *[Sample(work.name, BEST, seconds, 3.0, 1.0, 4) for seconds in (5.0, 5.0, 5.0)],
    ]
    ours = figures(work, samples)[OURS]
    assert (ours.seconds, ours.rate, ours.least, ours.most, ours.cpu_ns) == (2.0, 2.0, 1.0, 4.0, 250.0)
    (line,) = table({work: samples}).splitlines()[2:]
    assert line == "| 100B none aggregate | 2.00 | 1.00-4.00 |  | 0.40 | 0.80 | 4 | 5.0 | **2.5** | 250 | 1000 |"
    write = Work("100B none write", "t", 4_000_000, WRITE, (OURS, DEFAULT), 3)
    (line,) = table({write: samples[:6]}).splitlines()[2:]
    assert line == "| 100B none write | 2.00 | 1.00-4.00 |  | 0.40 |  |  | 5.0 |  | 250 | 1000 |"
    loaded = [*samples, Sample(work.name, LOAD, 1.0, 0.4, 0.0)]
    assert table({work: loaded}).splitlines()[3] == (
        "| 100B none aggregate, spark_jobs.load | 4.00 | 4.00-4.00 |  | 0.40 | 0.80 | 4 | 10.0 | 5.0 | 100 | 1000 |"
    )
    count = Work("count", "t", 100, COUNT, (HEADERS,), 1)
    taken = [Sample("count", HEADERS, 0.5, 0.1, 0.0), Sample("count", BY_OFFSET, 0.25, 0.1, 0.0, 0, 0.01, 0.0123)]
    expected = "count: spark_jobs.count 0.50 s, 1 % by offset 0.25 s (1.00% of the records from 1.23% of the bytes)"
    assert table({count: taken}) == expected
    assert json.loads(to_json("4.0.0", {work: samples}))["works"][0]["taken"][0]["seconds"] == 1.0


def test_loads_into_tables_stand_beside_a_stream_into_parquet() -> None:
    (shape,) = shapes(parse(["--table-records", "1000000", "--only", "*tables"]))
    work = work_of(shape, TABLES, "t", 1)
    assert work.sides == (ICEBERG, DELTA, STREAM, STREAM_SPLIT)
    took = {ICEBERG: 0.5, DELTA: 0.25, STREAM: 2.0, STREAM_SPLIT: 1.0}
    printed = table({work: [Sample(work.name, side, seconds, seconds, 0.0) for side, seconds in took.items()]})
    assert f"| {DELTA} | 4.00 | 4.00-4.00 | 8.0 | 250 |" in printed.splitlines()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_small_comparison_in_a_real_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        environment("4.0.0")
    except ReferenceUnavailable as missing:
        pytest.skip(str(missing))
    file = tmp_path / "spark.json"
    words = ["--records", "3000", "--pairs", "1", "--count-records", "1000000", "--min-partitions", "2"]
    words += ["--table-records", "3000", "--only", "small*,100B zstd*,1KB*write,count*,*tables"]
    assert main([*words, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "| 100B zstd parquet |" in printed and "spark_jobs.count" in printed
    taken = json.loads(file.read_text())["works"]
    assert [(work["name"], len(work["taken"])) for work in taken] == [
        ("small query aggregate", 22), ("100B zstd aggregate", 4), ("100B zstd parquet", 4), ("1KB none write", 2),
        ("count", 2), ("100B none tables", 4)
    ]  # fmt: skip
