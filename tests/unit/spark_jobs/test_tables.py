"""load.py into Iceberg and Delta: rows and offsets in one commit, read back by the format's library and by DuckDB."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyiceberg", reason="needs the extra 'tables'")
pytest.importorskip("deltalake", reason="needs the extra 'tables'")

from kafkalite.common.errors import ConfigError
from spark_jobs import load as load_job
from spark_jobs import load_output
from spark_jobs.job import add_source, new_parser, source_options
from spark_jobs.load_task import Written
from spark_jobs.tables.options import TABLE_FORMATS, add_table, maintain, open_table
from tests.support.lake import read_table, table_options

DAY_MS = 86_400_000
T0 = 1_700_000_000_123
pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]


class Load:
    """Loads of one topic into one table."""

    def __init__(self, spark: Any, topics: Any, place: Path, kind: str) -> None:
        self.spark, self.topics, self.kind = spark, topics, kind
        self.place = place
        self.words = table_options(kind, place)

    def options(self, *arguments: str) -> argparse.Namespace:
        parser = new_parser("load", "")
        add_source(parser)
        add_table(parser, "kafkalite-load")
        parser.add_argument("--output")
        words = ["--data-dir", str(self.topics.path), "--topic", "orders", *self.words, *arguments]
        return parser.parse_args(words)

    def run(self, *arguments: str, columns: tuple[str, ...] = ()) -> str | None:
        options = self.options(*arguments)
        with open_table(options) as table:
            done = load_job.load_into(self.spark, source_options(options), table, columns=columns)
        return None if done is None else done.path

    def rows(self) -> Any:
        return read_table(self.kind, self.place)

    def offsets(self) -> list[tuple[int, int]]:
        rows = self.rows().select(["partition", "offset"]).to_pylist()
        return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.fixture(params=TABLE_FORMATS)
def load(spark: Any, topics: Any, tmp_path: Path, request: Any) -> Load:
    return Load(spark, topics, tmp_path, request.param)


def records(first: int, end: int) -> list[NewRecord]:
    """Two a day."""
    return [NewRecord(b"k", b"%d" % n, (("n", b""),), T0 + n * DAY_MS // 2) for n in range(first, end)]


def test_a_run_is_one_commit_that_adds_only_what_is_new(load: Load) -> None:
    load.topics.write(records(0, 6))
    load.run()
    load.topics.write(records(6, 9), base_offset=6)
    load.topics.write(records(0, 2), partition=1)
    load.run()
    assert load.run() is None
    assert load.offsets() == [*((0, n) for n in range(9)), (1, 0), (1, 1)]
    (row,) = (row for row in load.rows().to_pylist() if row["offset"] == 5)
    assert (row["topic"], row["key"], row["value"], row["timestampType"]) == ("orders", b"k", b"5", 0)
    assert round(row["timestamp"].timestamp() * 1000) == T0 + 5 * DAY_MS // 2


def test_headers_nulls_and_strange_times_come_through(load: Load) -> None:
    far, farther = 253_402_300_800_000, 1 << 62  # in the year 10000; no time in microseconds
    load.topics.write(
        [NewRecord(None, b"", (), T0), NewRecord(b"", None, (("n", None), ("", b"v")), T0 + DAY_MS)],
        [NewRecord(b"k", b"v", (), at) for at in (-1, T0, farther, far, -62_167_219_200_001)],
    )
    load.run("--headers")
    rows = load.rows().sort_by("offset").to_pylist()
    assert [row["offset"] for row in rows if row["timestamp"] is None] == [4, 5, 6]
    assert [(row["key"], row["value"]) for row in rows[:2]] == [(None, b""), (b"", None)]
    assert not rows[0]["headers"]  # pyiceberg itself reads a null list of structs as an empty one
    assert rows[1]["headers"] == [{"key": "n", "value": None}, {"key": "", "value": b"v"}]
    assert [row["offset"] for row in rows] == list(range(7))


def test_columns_and_partitions_can_be_chosen(load: Load) -> None:
    load.topics.write(records(0, 4))
    load.run("--partition-by", "partition", columns=("partition", "offset", "value"))
    assert load.rows().sort_by("offset").to_pylist() == [
        {"partition": 0, "offset": n, "value": b"%d" % n} for n in range(4)
    ]
    with pytest.raises(ConfigError, match="of another schema: it has no column 'key'"):
        load.run()


def test_a_task_that_is_tried_again_leaves_nothing_twice(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    load.topics.write(records(0, 6))
    real: Callable[[Any], Written] = load_job.write_split

    def twice(task: Any) -> Written:
        real(task)
        return real(task)

    monkeypatch.setattr(load_job, "write_split", twice)
    load.run()
    assert load.offsets() == [(0, n) for n in range(6)]


def test_data_files_are_on_the_disk_before_the_commit(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()

    def fsync(fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))

    load.topics.write(records(0, 6))
    monkeypatch.setattr(load_output.os, "fsync", fsync)
    load.run()
    files = [str(one) for one in load.place.rglob("part-*.parquet")]
    assert files
    for path in files:
        below = os.path.relpath(path, load.place).partition("/data/")[2].split("/")
        table = path.removesuffix("/".join(["", "data", *below]))
        names = ["/".join([table, "data", *below[:depth]]) for depth in range(len(below) + 1)]
        assert {table, *(name.rstrip("/") for name in names)} <= synced


def test_files_that_do_not_get_to_the_disk_are_not_committed(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    load.topics.write(records(0, 6))
    load.run()
    load.topics.write(records(6, 9), base_offset=6)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="the disk is gone"):
        patch.setattr(load_output.os, "fsync", fsync)
        load.run()
    assert load.offsets() == [(0, n) for n in range(6)]
    load.run()
    assert load.offsets() == [(0, n) for n in range(9)]


def test_of_two_loads_at_a_time_one_is_refused(load: Load) -> None:
    load.topics.write(records(0, 3))
    load.run()
    load.topics.write(records(3, 6), base_offset=3)
    options = load.options()
    with open_table(options) as slow:
        known = slow.offsets([("orders", 0)])
        slow.layout(load_job.file_schema([name for name in load_job.COLUMNS if name != "headers"]))
        slow.begin()
        load.run()
        with pytest.raises(ConfigError, match="another writer has committed"):
            slow.commit([], {key: offset + 3 for key, offset in known.items()})
    assert load.offsets() == [(0, n) for n in range(6)]


def test_a_load_notices_that_another_one_has_made_the_table(load: Load) -> None:
    load.topics.write(records(0, 3))
    with open_table(load.options()) as slow:
        assert slow.offsets([("orders", 0)]) == {}
        load.run()
        slow.layout(load_job.file_schema([name for name in load_job.COLUMNS if name != "headers"]))
        slow.begin()
        with pytest.raises(ConfigError, match="another writer has committed"):
            slow.commit([], {("orders", 0): 3})


def test_other_writers_and_loads_of_other_names_share_a_table(load: Load) -> None:
    load.topics.write(records(0, 3))
    load.run()
    with pytest.raises(ConfigError, match="no offsets of a load with the name 'second'"):
        load.run("--name", "second")
    load.run("--name", "second", "--into-existing")
    load.topics.write(records(3, 5), base_offset=3)
    load.run()
    load.run("--name", "second")
    assert load.offsets() == sorted([(0, n) for n in range(5)] * 2)


def test_a_run_that_fails_leaves_no_files(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    load.topics.write(records(0, 3), records(3, 6))
    load.run()
    files = set(load.place.rglob("*.parquet"))
    load.topics.write(records(6, 9), records(9, 12), base_offset=6)
    data = bytearray(load.topics.segment(6).read_bytes())
    data[70] ^= 1
    load.topics.segment(6).write_bytes(data)
    with pytest.raises(Exception, match="its checksum is wrong"):
        load.run()
    assert set(load.place.rglob("*.parquet")) == files
    assert load.offsets() == [(0, n) for n in range(6)]


def test_a_name_without_a_namespace_is_refused(load: Load) -> None:
    if load.kind == "iceberg":
        with pytest.raises(ConfigError, match=r"orders must be CATALOG\.NAMESPACE\.TABLE"):
            load.run("--output", "orders")
    with pytest.raises(ConfigError, match="--partition-by week"):
        load.run("--partition-by", "week")


def test_maintenance_writes_small_files_together_and_removes_what_no_snapshot_names(load: Load) -> None:
    for n in range(5):
        load.topics.write(records(n, n + 1), base_offset=n)
        load.run("--partition-by", "topic")
    orphan = load.place / ("warehouse/sales/orders/data/x" if load.kind == "iceberg" else "orders/data/x") / "a.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"killed")
    os.utime(orphan, (0, 0))
    wanted = load.rows().sort_by("offset")
    maintain(load.options(), DAY_MS)
    assert not orphan.exists() and load.rows().sort_by("offset").equals(wanted)
    assert len(list(load.place.rglob("part-*.parquet"))) == 6, "older snapshots are kept"
    maintain(load.options(), 0)
    assert len(list(load.place.rglob("part-*.parquet"))) == 1
    assert load.rows().sort_by("offset").equals(wanted)
    load.topics.write(records(5, 6), base_offset=5)
    load.run()
    assert load.offsets() == [(0, n) for n in range(6)], "the offsets outlive it"
