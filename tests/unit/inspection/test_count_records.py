"""`kafkalite log count` against reading every record one by one, and against what the broker says."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.cli.main import main
from kafkalite.common.errors import Malformed
from kafkalite.inspection.count_records import Count, count
from kafkalite.inspection.files.directory_listing import list_directory
from kafkalite.inspection.files.log_file import LogFile, rows_of_window
from kafkalite.record.batch import MAGIC, NewRecord, build_batch, parse_header
from tests.support import places
from tests.support.inspection.damages import cut_tail, set_offset
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

GOLDEN = places.GOLDEN / "inspection"
DIRECTORIES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


def counted_one_by_one(data_dir: Path, starts: dict[str, int]) -> dict[str, Count]:
    """The plain way: unpack everything."""
    found: dict[str, Count] = {}
    for partition in list_directory(str(data_dir)).partitions:
        one = found[partition.name] = Count()
        for base in partition.bases:
            with LogFile(partition.file(base, ".log")) as log:
                one.bytes += log.size_bytes
                for window in log.windows():
                    for at, blocks in zip(window.bounds, rows_of_window(window), strict=False):
                        assert not isinstance(blocks, Malformed)
                        one.batches += 1
                        live = sum(row.offset >= starts.get(partition.name, 0) for block in blocks for row in block)
                        batch = window.data[at:]
                        if batch[16] >= MAGIC and parse_header(batch).is_control:
                            one.control_records += live
                        else:
                            one.live_records += live
    return found


@pytest.mark.parametrize("name", DIRECTORIES)
@pytest.mark.parametrize("start", [0, 1, 7, 13, 1000])
def test_headers_say_the_same_as_the_records(name: str, start: int, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(GOLDEN / name, data_dir)
    starts = {}
    if start:
        for partition in list_directory(str(data_dir)).partitions:
            set_offset("log-start-offset-checkpoint", start)(Path(partition.path))
            starts[partition.name] = start
    else:
        starts = {"rolled-1": 10}  # as its records were deleted
    expected = counted_one_by_one(data_dir, starts)
    for one in count(str(data_dir)).partitions:
        there = expected[one.partition.name]
        there.aborted_records = one.total.aborted_records
        assert one.total == there, one.partition.name
        total = Count()
        for segment in one.segments.values():
            total.add(segment)
        assert total == one.total


def test_aborted_records_are_told_apart() -> None:
    (money,) = count(str(GOLDEN / "kafka-3.9.1"), ["money"]).partitions
    assert (money.total.live_records, money.total.control_records, money.total.aborted_records) == (49, 12, 16)


def test_an_abort_counts_only_what_is_live(tmp_path: Path) -> None:
    marker = NewRecord(struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 0))
    directory = tmp_path / "txn-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(
        build_batch([NewRecord(None, b"v")] * 5, producer_id=7, base_sequence=0, transactional=True)
        + build_batch([marker], base_offset=5, producer_id=7, transactional=True, control=True)
        + build_batch([NewRecord(None, b"v")], base_offset=6, producer_id=7, base_sequence=5, transactional=True)
    )
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ntxn 0 3\n")
    (tmp_path / "meta.properties").write_text("version=0\n")
    (one,) = count(str(tmp_path)).partitions
    assert (one.total.live_records, one.total.aborted_records, one.total.control_records) == (3, 2, 1)


def test_what_is_no_batch_is_said_and_not_counted(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "kafkalite", tmp_path / "data")
    cut_tail(tmp_path / "data" / "rolled-0")
    (one,) = [one for one in count(str(tmp_path / "data")).partitions if one.partition.name == "rolled-0"]
    assert one.total.live_records == 29 and one.total.unread_bytes == 211
    for form in ((), ("--json",)):
        assert main(["log", "count", str(tmp_path / "data"), *form]) == 1
        assert main(["log", "count", str(GOLDEN / "kafkalite"), *form]) == 0


def test_the_command_knows_topics_and_directories() -> None:
    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        run = [sys.executable, "-m", "kafkalite", "log", "count", *map(str, arguments)]
        return subprocess.run(run, capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT)

    data_dir = GOLDEN / "kafka-3.9.1"
    table = command("--data-dir", data_dir, "rolled", "--segments").stdout
    assert table.splitlines()[-1].split()[:2] == ["2", "partitions"] and "money" not in table
    objects = [json.loads(line) for line in command("--json", data_dir).stdout.splitlines()]
    topics = {one["topic"]: one["live_records"] for one in objects if one["type"] == "topic"}
    assert topics["codecs"] == 60 and topics["rolled"] == 50
    partitions = [one for one in objects if one["type"] == "partition"]
    assert sum(one["live_records"] for one in partitions) == sum(topics.values())
    unknown = command("--data-dir", data_dir, "nobody")
    assert unknown.returncode == 2 and "topic nobody not found" in unknown.stderr
