"""latest.py into tables: what is new, merged by key; equal to the view that log compaction would leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyiceberg", reason="needs the extra 'tables'")
pytest.importorskip("deltalake", reason="needs the extra 'tables'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError
from spark_jobs import latest as latest_job
from spark_jobs import merge_task
from spark_jobs.job import add_source, new_parser, source_options
from spark_jobs.merge_task import last_of_keys
from spark_jobs.tables.options import TABLE_FORMATS, add_table, open_table
from tests.support.lake import read_table, table_options

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]
Pair = tuple[bytes | None, bytes | None]


class View:
    """A topic, its table, and the view that the table must be."""

    def __init__(self, spark: Any, topics: Any, place: Path, kind: str) -> None:
        self.spark, self.topics, self.place, self.kind = spark, topics, place, kind
        self.view: dict[tuple[int, bytes], tuple[bytes, int]] = {}
        self.ends = {0: 0, 1: 0}

    def write(self, *pairs: Pair, partition: int = 0) -> None:
        base = self.ends[partition]
        rows = [NewRecord(key, value, (("h", b"1"),)) for key, value in pairs]
        self.ends[partition] = self.topics.write(rows, base_offset=base, topic="users", partition=partition)
        for at, (key, value) in enumerate(pairs, base):
            if key is not None and value is None:
                self.view.pop((partition, key), None)
            elif key is not None and value is not None:
                self.view[partition, key] = value, at

    def merge(self, *arguments: str) -> list[str]:
        parser = new_parser("latest", "")
        add_source(parser)
        add_table(parser, "kafkalite-latest", ",".join(latest_job.PARTITION_BY))
        parser.add_argument("--output")
        words = ["--data-dir", str(self.topics.path), "--topic", "users", *table_options(self.kind, self.place)]
        options = parser.parse_args([*words, *arguments])
        runs = []
        with open_table(options) as table:
            while (run := latest_job.merge_into(self.spark, source_options(options), table, "zstd")) is not None:
                runs.append(run.path)
        return runs

    def check(self) -> None:
        rows = read_table(self.kind, self.place).to_pylist()
        assert {(row["partition"], row["key"]): (row["value"], row["offset"]) for row in rows} == self.view
        assert len(rows) == len(self.view) and all(row["topic"] == "users" for row in rows)


@pytest.fixture(params=TABLE_FORMATS)
def view(spark: Any, topics: Any, tmp_path: Path, request: Any) -> View:
    return View(spark, topics, tmp_path, request.param)


def test_what_is_new_is_merged_by_key_and_a_tombstone_removes_one(view: View) -> None:
    view.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"no key"), (b"c", b"1"), (b"b", None))
    view.write((b"a", b"in another partition"), (b"", b""), partition=1)
    assert len(view.merge()) == 1
    view.check()
    view.write((b"c", None), (b"b", b"again"), (b"d", b"1"))
    view.merge()
    view.check()
    view.write((b"a", None), (b"", None), partition=1)
    view.merge()
    view.check()
    assert view.merge() == []


def test_only_files_with_a_changed_key_are_written_again(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_task, "SMALL_BYTES", 0)
    for n in range(3):
        view.write((b"k%d" % n, b"1"), (b"l%d" % n, b"1"))
        run_in_driver(view, monkeypatch)
    before = set(view.place.rglob("*.parquet"))
    view.write((b"k1", b"2"), (b"m", None))
    run_in_driver(view, monkeypatch)
    view.check()
    (new,) = set(view.place.rglob("*.parquet")) - before
    import pyarrow.parquet as parquet

    assert sorted(parquet.ParquetFile(new).read(["key"])["key"].to_pylist()) == [b"k1", b"l1"]


def run_in_driver(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks in this process, so that they see what a test has changed."""

    class Here:
        sparkContext: Any

        def parallelize(self, tasks: Any, _: int) -> Any:
            self.tasks = tasks
            return self

        def map(self, work: Any) -> Any:
            self.results = [work(task) for task in self.tasks]
            return self

        def collect(self) -> Any:
            return self.results

    here = Here()
    here.sparkContext = here
    with monkeypatch.context() as patch:
        patch.setattr(view, "spark", here)
        view.merge()


def test_a_large_topic_is_merged_in_several_commits(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(4):
        view.write((b"k%d" % n, b"1"), (b"k0", b"%d" % n))
    monkeypatch.setattr(latest_job, "TASK_BYTES", 200)
    assert len(view.merge()) > 1
    view.check()


def test_two_merges_at_a_time_and_a_table_of_another_shape_are_refused(view: View) -> None:
    view.write((b"a", b"1"))
    with pytest.raises(ConfigError, match="must be partitioned by topic and partition"):
        view.merge("--partition-by", "topic", *(("--output", "lake.sales.other") if view.kind == "iceberg" else ()))


PAIRS = st.lists(st.tuples(st.sampled_from([None, b"", b"a", b"b", b"c"]), st.integers(0, 9)), max_size=40)


@given(PAIRS, st.integers(1, 7))
def test_the_last_row_of_each_key_stays(pairs: list[tuple[bytes | None, int]], size: int) -> None:
    schema = pa.schema([("key", pa.binary()), ("n", pa.int64())])
    rows = [{"key": key, "n": n} for key, n in pairs]
    batches = [pa.RecordBatch.from_pylist(rows[at : at + size], schema=schema) for at in range(0, len(rows), size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_task, "_ROWS_MIN", 4)
        found = last_of_keys(batches)
    wanted = {key: n for key, n in pairs if key is not None}
    assert dict(zip(found["key"].to_pylist(), found["n"].to_pylist() if len(found) else [], strict=True)) == wanted
