"""load.py under kill -9: whatever is visible is whole, and in the end every record is there once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalite.record.batch import NewRecord
from tests.support.segment_writer import Topics
from tests.system.spark.killed_job import moments, run

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
parquet = pytest.importorskip("pyarrow.parquet")

T0 = 1_700_000_000_000
PARTITIONS = 2
NEW_RECORDS = 200  # in each partition, before each load
HOURS_MS = 3_600_000

Row = tuple[str, int, int, bytes]


class Growing:
    """A topic that gets a segment in each partition, spread over three days."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.end = 0

    def grow(self) -> None:
        end = self.end + NEW_RECORDS
        rows = [NewRecord(b"k%d" % n, b"%d" % n, (), T0 + n % 50 * HOURS_MS) for n in range(self.end, end)]
        for partition in range(PARTITIONS):
            half = NEW_RECORDS // 2
            self.topics.write(rows[:half], rows[half:], base_offset=self.end, partition=partition, codec=4)
        self.end = end

    def rows(self) -> list[Row]:
        return [("orders", at, n, b"%d" % n) for at in range(PARTITIONS) for n in range(self.end)]


def visible(lake: Path, known: dict[tuple[Path, int], list[Row]]) -> list[Row]:
    """Every record that a reader of the output sees, without names that begin with `_`; `known` are files seen before,
    by path and the time that they were written."""
    found = []
    for path in lake.glob("run=*/topic=*/day=*/*.parquet"):
        key = path, path.stat().st_mtime_ns
        if key not in known:
            table = parquet.ParquetFile(path).read(["partition", "offset", "value"])
            topic = path.parent.parent.name.removeprefix("topic=")
            columns = (table[name].to_pylist() for name in table.schema.names)
            known[key] = [(topic, *row) for row in zip(*columns, strict=True)]
        found += known[key]
    return sorted(found)


def story(place: Path, kills: int, seed: int) -> int:
    """Loads that are killed while the topic grows; returns how many of them died with data that was not visible."""
    growing = Growing(Topics(place / "data"))
    lake = place / "lake"
    arguments = ("--data-dir", place / "data", "--topic", "orders", "--output", lake)
    growing.grow()
    quiet = run("load", arguments, place)
    assert quiet.returncode == 0, quiet.output
    in_vain = 0
    known: dict[tuple[Path, int], list[Row]] = {}
    for number, moment in enumerate(moments(quiet.working_s, kills, seed)):
        growing.grow()
        before = visible(lake, known)
        ended = run("load", arguments, place, moment)
        assert ended.returncode in (0, -9), ended.output
        after = visible(lake, known)
        assert after in (before, growing.rows()), f"half a run, or one twice, is visible after {moment:.2f} s"
        in_vain += after == before
        print(f"kill {number + 1} after {moment:.2f} s: {'no run' if after == before else 'a run'}", flush=True)
    last = run("load", arguments, place)
    assert last.returncode == 0, last.output
    assert visible(lake, {}) == growing.rows()
    assert os.listdir(lake / "_kafkalite") == ["lock"]
    return in_vain


@pytest.mark.timeout(600)
def test_a_load_that_is_killed_and_run_again_leaves_every_record_once(tmp_path: Path) -> None:
    story(tmp_path, kills=2, seed=1)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_200_kills(tmp_path: Path) -> None:
    kills = int(os.environ.get("KAFKALITE_LOAD_KILLS", "200"))
    in_vain = story(tmp_path, kills, seed=int(os.environ.get("KAFKALITE_LOAD_SEED", "7")))
    print(f"{kills} kills, {in_vain} of them before the rename")
