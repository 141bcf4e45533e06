"""Jobs into tables under kill -9: whatever is visible is whole, and in the end every record is there once."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from kafkalite.record.batch import NewRecord
from tests.support.lake import read_table
from tests.support.segment_writer import Topics
from tests.system.spark.killed_job import moments, run

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyiceberg", reason="needs the extra 'tables': ./dev setup")
pytest.importorskip("deltalake", reason="needs the extra 'tables': ./dev setup")

MODULE = "tests.system.pipeline.several_tables"
T0 = 1_700_000_000_000
PARTITIONS = 2
NEW_RECORDS = 200  # in each partition, before each load
HOURS_MS = 3_600_000

Row = tuple[int, int, bytes]


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
        return [(at, n, b"%d" % n) for at in range(PARTITIONS) for n in range(self.end)]


class Lake:
    """A table of one format in a place of its own."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind = kind
        self.place = place
        self.seen: list[Row] = []

    def visible(self) -> list[Row]:
        columns = read_table(self.kind, self.place).select(["partition", "offset", "value"]).to_pydict()
        return sorted(zip(*columns.values(), strict=True))

    def after_kill(self, wanted: list[Row], files: int) -> str:
        """Whether the load was killed before its rows were visible (inside its writes or not), or behind that."""
        before, self.seen = self.seen, self.visible()
        assert self.seen in (before, wanted), "half a run, or one twice, is visible"
        if self.seen != before:
            return "visible"
        return "writing" if self.files() > files else "before"

    def files(self) -> int:
        return sum(1 for _ in self.place.rglob("*.parquet"))


def story(place: Path, kinds: list[str], kills: int, seed: int) -> Counter[str]:
    """Loads that are killed while the topic grows; returns in which places."""
    growing = Growing(Topics(place / "data"))
    lakes = [Lake(kind, place / f"{kind}-{number}") for number, kind in enumerate(kinds)]
    for lake in lakes:
        lake.place.mkdir()
    into = [word for lake in lakes for word in ("--into", f"{lake.kind}={lake.place}")]
    arguments = ("load", "--data-dir", place / "data", "--topic", "orders", *into)
    growing.grow()
    quiet = run(MODULE, arguments, place)
    assert quiet.returncode == 0, quiet.output
    assert {lake.after_kill(growing.rows(), 0) for lake in lakes} == {"visible"}
    met: Counter[str] = Counter()
    for moment in moments(quiet.working_s, 2 * kills, seed):
        growing.grow()
        files = [lake.files() for lake in lakes]
        ended = run(MODULE, arguments, place, moment)
        assert ended.returncode in (0, -9), ended.output
        here = [lake.after_kill(growing.rows(), before) for lake, before in zip(lakes, files, strict=True)]
        met.update(here if ended.returncode else ())  # a run that was faster than the first one has not been killed
        print(f"{met.total()} kills, the last after {moment:.2f} s: {', '.join(here)}", flush=True)
        if met.total() >= kills:
            break
    last = run(MODULE, arguments, place)
    assert last.returncode == 0, last.output
    for lake in lakes:
        assert lake.visible() == growing.rows()
    return met


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_200_kills(tmp_path: Path, kind: str) -> None:
    kills = int(os.environ.get("KAFKALITE_LOAD_KILLS", "200"))
    seed = int(os.environ.get("KAFKALITE_LOAD_SEED", "7"))
    met = story(tmp_path, [kind] * 4, kills, seed)
    print(dict(met))
    assert met["writing"] > 0 and met["visible"] > 0, "kills on both sides of the commit"
