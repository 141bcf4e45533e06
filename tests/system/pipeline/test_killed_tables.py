"""Jobs into tables under kill -9: whatever is visible is whole, and in the end every record is there once, or of every
key the last one.

One application has ten tables, which compete for its two tasks: one kill meets them in different places, and its JVM
takes longer to start than all of them to run.
"""

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
NEW_RECORDS = 200  # in each partition, before each run
KEYS = 350
HOURS_MS = 3_600_000
WRITING = ("load: lake.", "load: /", "latest: lake.", "latest: /")
"""The lines behind which a job writes."""

Row = tuple[int, int, bytes | None]


class Growing:
    """A topic that gets a segment in each partition, spread over three days; a fifth are tombstones."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.end = 0

    def grow(self) -> None:
        end = self.end + NEW_RECORDS
        rows = [NewRecord(_key(n), _value(n), (), T0 + n % 50 * HOURS_MS) for n in range(self.end, end)]
        for partition in range(PARTITIONS):
            half = NEW_RECORDS // 2
            self.topics.write(rows[:half], rows[half:], base_offset=self.end, partition=partition, codec=4)
        self.end = end

    def rows(self, job: str) -> list[Row]:
        """The rows that the table of a job has when all records are in it."""
        wanted = list(range(self.end))
        if job == "latest":
            last = {_key(n): n for n in range(self.end)}
            wanted = [n for n in sorted(last.values()) if _value(n) is not None]
        return [(at, n, _value(n)) for at in range(PARTITIONS) for n in wanted]


def _key(n: int) -> bytes:
    return b"k%d" % (n * 7 % KEYS)


def _value(n: int) -> bytes | None:
    return None if n % 5 == 0 else b"%d" % n


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


def story(place: Path, job: str, kinds: list[str], kills: int, seed: int) -> Counter[str]:
    """Runs of a job that are killed while the topic grows; returns in which places."""
    growing = Growing(Topics(place / "data"))
    lakes = [Lake(kind, place / f"{kind}-{number}") for number, kind in enumerate(kinds)]
    for lake in lakes:
        lake.place.mkdir()
    into = [word for lake in lakes for word in ("--into", f"{lake.kind}={lake.place}")]
    arguments = (job, "--data-dir", place / "data", "--topic", "orders", *into)
    for _ in range(2):  # the first one makes the tables
        growing.grow()
        quiet = run(MODULE, arguments, place, line_begins=WRITING)
        assert quiet.returncode == 0, quiet.output
        assert {lake.after_kill(growing.rows(job), 0) for lake in lakes} == {"visible"}
    met: Counter[str] = Counter()
    for moment in moments(quiet.working_s, 2 * kills, seed):
        growing.grow()
        files = [lake.files() for lake in lakes]
        ended = run(MODULE, arguments, place, moment, WRITING)
        assert ended.returncode in (0, -9), ended.output
        here = [lake.after_kill(growing.rows(job), before) for lake, before in zip(lakes, files, strict=True)]
        met.update(here if ended.returncode else ())  # a run that was faster than the first one has not been killed
        print(f"{met.total()} kills, the last after {moment:.2f} s: {', '.join(here)}", flush=True)
        if met.total() >= kills:
            break
    last = run(MODULE, arguments, place)
    assert last.returncode == 0, last.output
    for lake in lakes:
        assert lake.visible() == growing.rows(job)
    return met


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("job", ["load", "latest"])
def test_200_kills(tmp_path: Path, job: str, kind: str) -> None:
    kills = int(os.environ.get("KAFKALITE_PIPELINE_KILLS", "200"))
    seed = int(os.environ.get("KAFKALITE_PIPELINE_SEED", "7"))
    met = story(tmp_path, job, [kind] * 10, kills, seed)
    print(dict(met))
    assert kills < 100 or 0 < met["visible"] < kills, "kills on both sides of the commit"
