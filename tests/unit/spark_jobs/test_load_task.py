"""A task of load.py without Spark: its files by topic and day, its report, its memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyarrow.parquet")

import pyarrow.parquet as parquet

from kafkalite.reader.chunk_reader import COLUMNS
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from spark_jobs.load_task import Loaded, LoadTask, Written, together, write_split
from spark_jobs.partitioned_files import Layout, file_schema
from tests.support.places import ROOT

DAY_MS = 86_400_000
T0 = 1_700_000_000_000
DAY = T0 // DAY_MS
LAYOUT = Layout(file_schema([name for name in COLUMNS if name not in ("topic", "headers")]), ("topic", "day"))


def write(topics: Any, place: Path, batch_bytes: int = 64 << 20, **named: Any) -> Written:
    options = parse_options({**topics.options, "subscribePattern": ".*", "batchBytes": str(batch_bytes), **named})
    (split,) = plan(options)
    place.mkdir(exist_ok=True)
    return write_split(LoadTask(7, split, options, str(place), "snappy", LAYOUT))


def rows(done: Written) -> dict[str, list[int]]:
    """Offsets by topic and day."""
    found = {}
    for path, *_ in done.files:
        topic, day, name = path.split(os.sep)
        assert name == "part-00007.snappy.parquet"
        table = parquet.ParquetFile(os.path.join(done.directory, path)).read()
        found[f"{topic.removeprefix('topic=')} {day.removeprefix('day=')}"] = table["offset"].to_pylist()
    return found


def test_rows_are_by_topic_and_day_in_their_order(topics: Any, tmp_path: Path) -> None:
    times = [T0, T0 + DAY_MS, T0, -1, T0 + DAY_MS]
    topics.write([NewRecord(b"k", b"v", (), at) for at in times], base_offset=5)
    topics.write([NewRecord(b"k", b"v", (), T0)] * 2, partition=1)
    topics.write([NewRecord(b"k", b"v", (), T0)], topic="bills")
    done = write(topics, tmp_path / "out")
    assert rows(done) == {
        "bills 2023-11-14": [0],
        "orders 1969-12-31": [8],
        "orders 2023-11-14": [5, 7, 0, 1],
        "orders 2023-11-15": [6, 9],
    }
    assert done.loaded == {
        ("bills", 0): (1, 0, 0, T0 * 1000, T0 * 1000),
        ("orders", 0): (5, 5, 9, -1000, (T0 + DAY_MS) * 1000),
        ("orders", 1): (2, 0, 1, T0 * 1000, T0 * 1000),
    }


def test_there_may_be_more_days_than_file_descriptors(topics: Any, tmp_path: Path) -> None:
    days = 300
    for base in range(0, 3 * days, days):
        batch = [NewRecord(b"k", b"%d" % n * 500, (), T0 + n * DAY_MS) for n in range(days)]
        topics.write(batch, base_offset=base)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/proc/self/fd"))  # also by other tests in this process
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 100, hard))
    try:
        done = write(topics, tmp_path / "out", 1 << 18)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = rows(done)
    assert len(found) == days
    assert found["orders 2023-11-14"] == [0, days, 2 * days]
    file = parquet.ParquetFile(os.path.join(done.directory, done.files[0].path))
    assert file.metadata.num_row_groups > 1, "rows were written before the end"


def test_a_row_group_has_about_the_bytes_of_the_batch_size(topics: Any, tmp_path: Path) -> None:
    for base in range(0, 4000, 100):
        topics.write([NewRecord(None, bytes(1000), (), T0)] * 100, base_offset=base)
    done = write(topics, tmp_path / "out", 1 << 20)
    (found,) = done.files
    file = parquet.ParquetFile(os.path.join(done.directory, found.path))
    assert 4 <= file.metadata.num_row_groups <= 5
    assert file.read()["offset"].to_pylist() == list(range(4000))


def test_an_attempt_that_comes_too_late_makes_nothing_anew(topics: Any, tmp_path: Path) -> None:
    topics.write([NewRecord(b"k", b"v", (), T0)])
    options = parse_options({**topics.options, "subscribe": "orders"})
    with pytest.raises(FileNotFoundError):
        write_split(LoadTask(0, plan(options)[0], options, str(tmp_path / "gone"), "snappy", LAYOUT))
    assert not (tmp_path / "gone").exists()


def test_parts_without_a_time_do_not_count_for_the_first_and_the_last() -> None:
    assert together([Loaded(1, 5, 5, None, None), Loaded(2, 1, 3, 10, 20), Loaded(1, 9, 9, 4, 4)]) == (4, 1, 9, 4, 20)
    assert together([Loaded(1, 5, 5, None, None)]) == (1, 5, 5, None, None)


TASK = """
import sys
from kafkalite.reader.chunk_reader import COLUMNS
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from spark_jobs.load_task import LoadTask, write_split
from spark_jobs.partitioned_files import Layout, file_schema

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

options = parse_options({"path": sys.argv[1], "subscribe": "orders", "batchBytes": sys.argv[3]})
(split,) = plan(options)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins anew
before = peak()
layout = Layout(file_schema([name for name in COLUMNS if name not in ("topic", "headers")]), ("topic", "day"))
done = write_split(LoadTask(0, split, options, sys.argv[2], "snappy", layout))
print(done.loaded["orders", 0].rows, peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("days", [1, 60])
def test_a_task_takes_three_times_the_batch_size_at_most(topics: Any, tmp_path: Path, days: int) -> None:
    batch_bytes = 32 << 20
    batch = [NewRecord(b"key", bytes(range(250)) * 40, (), T0 + n % days * DAY_MS) for n in range(3000)]
    for base in range(0, 30_000, 3000):  # 300 MB, in compressed batches
        topics.write(*(batch[at : at + 100] for at in range(0, 3000, 100)), base_offset=base, codec=4)
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", TASK, str(topics.path), str(tmp_path / "out"), str(batch_bytes)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    count, growth = map(int, done.stdout.split())
    assert count == 30_000
    assert growth <= 3 * batch_bytes
