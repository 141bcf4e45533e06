"""mirror.py and replay.py under kill -9: consumers that read committed see every record once and in order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.record.batch import NewRecord
from tests.support.segment_writer import Topics
from tests.system.spark.killed_job import moments, run

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

T0 = 1_700_000_000_000
PARTITIONS = 2
NEW_RECORDS = 300  # in each partition, before each run
COPY_STARTS = ("mirror: ", "replay: ")  # the line before the first transaction
KILLS = int(os.environ.get("KAFKALITE_COPY_KILLS", "20"))
SMALL = ("--transaction-bytes", "2000")  # some tens of transactions in a run

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Any]:
    # the records are old, and retention goes by their timestamps
    with kafkalite.Broker(data_dir=tmp_path / "target", port=0, log_retention_ms=-1) as broker:
        yield broker


def grow(topics: Topics, first: int) -> int:
    end = first + NEW_RECORDS
    rows = [NewRecord(b"k%d" % n, b"%d" % n, (), T0 + n) for n in range(first, end)]
    for partition in range(PARTITIONS):
        batches = [rows[at : at + 10] for at in range(0, len(rows), 10)]
        topics.write(*batches, base_offset=first, partition=partition)
    return end


def check(broker: Any, topic: str, end: int, *, whole: bool) -> int:
    """The number of committed records, which are the first ones of each partition, or all."""
    table = kafkalite.read(broker.data_dir, topic, isolation_level="read_committed").read_all()
    seen = 0
    for partition in range(PARTITIONS):
        rows = zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True)
        values = [value for index, value in rows if index == partition]
        assert values == [b"%d" % n for n in range(len(values))], f"partition {partition}: lost, repeated or moved"
        assert not whole or len(values) == end
        seen += len(values)
    return seen


def test_a_mirror_that_is_killed_goes_on_without_loss_or_repetition(tmp_path: Path, broker: Any) -> None:
    topics = Topics(tmp_path / "data")
    to = ("--to", broker.bootstrap_servers, "--topic-prefix", "copy-", *SMALL)
    arguments = ("--data-dir", topics.path, "--topic", "orders", *to)
    end = grow(topics, 0)
    quiet = run("spark_jobs.mirror", arguments, tmp_path, None, COPY_STARTS)
    assert quiet.returncode == 0, quiet.output
    progress = check(broker, "copy-orders", end, whole=True)
    partial = 0
    for moment in moments(quiet.working_s, KILLS, seed=3):
        end = grow(topics, end)
        ended = run("spark_jobs.mirror", arguments, tmp_path, moment, COPY_STARTS)
        assert ended.returncode in (0, -9), ended.output
        seen = check(broker, "copy-orders", end, whole=False)
        partial += progress < seen < PARTITIONS * end
        print(f"kill after {moment:.2f} s: {seen - progress} records more", flush=True)
        progress = seen
    last = run("spark_jobs.mirror", arguments, tmp_path)
    assert last.returncode == 0, last.output
    check(broker, "copy-orders", end, whole=True)
    print(f"{KILLS} kills of mirror.py, {partial} of them between two transactions")


def test_a_replay_that_is_killed_goes_on_without_loss_or_repetition(tmp_path: Path, broker: Any) -> None:
    topics, lake = Topics(tmp_path / "data"), tmp_path / "lake"
    load = ("--data-dir", topics.path, "--topic", "orders", "--output", lake)
    arguments = ("--input", lake, "--to", broker.bootstrap_servers, "--topic-prefix", "again-", *SMALL)
    end = grow(topics, 0)
    assert run("spark_jobs.load", load, tmp_path).returncode == 0
    quiet = run("spark_jobs.replay", arguments, tmp_path, None, COPY_STARTS)
    assert quiet.returncode == 0, quiet.output
    progress = check(broker, "again-orders", end, whole=True)
    partial = 0
    for moment in moments(quiet.working_s, KILLS // 2, seed=4):
        end = grow(topics, end)
        assert run("spark_jobs.load", load, tmp_path).returncode == 0
        ended = run("spark_jobs.replay", arguments, tmp_path, moment, COPY_STARTS)
        assert ended.returncode in (0, -9), ended.output
        seen = check(broker, "again-orders", end, whole=False)
        partial += progress < seen < PARTITIONS * end
        print(f"kill after {moment:.2f} s: {seen - progress} records more", flush=True)
        progress = seen
    last = run("spark_jobs.replay", arguments, tmp_path)
    assert last.returncode == 0, last.output
    check(broker, "again-orders", end, whole=True)
    print(f"{KILLS // 2} kills of replay.py, {partial} of them between two transactions")
