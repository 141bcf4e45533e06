"""load.py under kill -9: whatever is visible is whole, and in the end every record is there once.

The long form has four loads, each with an output of its own, in one application: its JVM takes longer to start than all
of them to run. They compete for its two tasks, so one kill meets them in different places.
"""

from __future__ import annotations

import os
from collections import Counter
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


class Lake:
    """An output. `known` are files that were seen before, by path and the time that they were written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[Row] = []
        self.known: dict[tuple[Path, int], list[Row]] = {}

    def after_kill(self, wanted: list[Row]) -> str:
        """Whether the load was killed before its rows were visible (inside its writes or not), or behind that."""
        before, self.seen = self.seen, visible(self.path, self.known)
        assert self.seen in (before, wanted), "half a run, or one twice, is visible"
        if self.seen != before:
            return "visible"
        return "writing" if any(self.path.glob("_kafkalite/staging-*")) else "before"


def story(place: Path, module: str, loads: int, kills: int, seed: int) -> Counter[str]:
    """Loads that are killed while the topic grows; returns in which places."""
    growing = Growing(Topics(place / "data"))
    lakes = [Lake(place / f"lake-{number}") for number in range(loads)]
    outputs = [word for lake in lakes for word in ("--output", lake.path)]
    arguments = ("--data-dir", place / "data", "--topic", "orders", *outputs)
    growing.grow()
    quiet = run(module, arguments, place)
    assert quiet.returncode == 0, quiet.output
    assert {lake.after_kill(growing.rows()) for lake in lakes} == {"visible"}
    met: Counter[str] = Counter()
    for moment in moments(quiet.working_s, 2 * kills, seed):
        growing.grow()
        ended = run(module, arguments, place, moment)
        assert ended.returncode in (0, -9), ended.output
        here = [lake.after_kill(growing.rows()) for lake in lakes]
        met.update(here if ended.returncode else ())  # a run that was faster than the first one has not been killed
        print(f"{met.total()} kills, the last after {moment:.2f} s: {', '.join(here)}", flush=True)
        if met.total() >= kills:
            break
    last = run(module, arguments, place)
    assert last.returncode == 0, last.output
    for lake in lakes:
        assert visible(lake.path, {}) == growing.rows()
        assert os.listdir(lake.path / "_kafkalite") == ["lock"]
    return met


@pytest.mark.timeout(600)
def test_a_load_that_is_killed_and_run_again_leaves_every_record_once(tmp_path: Path) -> None:
    story(tmp_path, "spark_jobs.load", 1, kills=2, seed=1)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_200_kills(tmp_path: Path) -> None:
    kills = int(os.environ.get("KAFKALITE_LOAD_KILLS", "200"))
    seed = int(os.environ.get("KAFKALITE_LOAD_SEED", "7"))
    met = story(tmp_path, "tests.system.spark.several_loads", 4, kills, seed)
    print(dict(met))
    assert met["writing"] > 0 and met["visible"] > 0, "kills on both sides of the rename"
