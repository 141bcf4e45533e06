"""Small logs compacted by Apache Kafka 3.9.1, kept as files: ours leaves the same. Needs no Java.

`make_golden_cleaner.py` made them; tests/compatibility/interop/test_cleaner_against_kafka.py compares with a running
Kafka.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cleaner.job.job import CleanJob
from tests.support import places
from tests.support.cleaner.partition_directory import batches, clean_job, contents, run

GOLDEN = places.GOLDEN / "cleaner" / "kafka-3.9.1"
CASES = sorted(path.stem for path in GOLDEN.glob("*.zip"))


class Case:
    """One case unpacked: `log` is what is to be cleaned, `theirs` what Kafka made of it."""

    def __init__(self, name: str, place: Path) -> None:
        with zipfile.ZipFile(GOLDEN / f"{name}.zip") as pack:
            pack.extractall(place)
        self.log = place / "before" / "orders-0"
        self.theirs = place / "after" / "orders-0"
        self.told: dict[str, Any] = json.loads((place / "job.json").read_text())
        for stem, modified_ms in self.told["modified_ms"].items():
            os.utime(self.log / f"{stem}.log", ns=(modified_ms * 1_000_000 + 600_000,) * 2)

    def job(self) -> CleanJob:
        told = self.told
        return clean_job(self.log, told["plan"], told["now_ms"], index_interval_bytes=256, **told["settings"])


@pytest.mark.parametrize("name", CASES)
def test_what_kafka_left_of_it(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    result = run(case.job())
    assert (result.is_complete, result.end_offset) == (True, case.told["clean_end"])
    for ours, kafkas in zip(batches(case.log), batches(case.theirs), strict=False):
        assert ours == kafkas
    # an archive forgets when a file was written
    ours, theirs = ([each | {"modified_ms": 0} for each in contents(log)] for log in (case.log, case.theirs))
    assert ours == theirs
    assert not [path.name for path in case.log.iterdir() if path.suffix in (".cleaned", ".swap")]


def test_there_is_something_to_clean(tmp_path: Path) -> None:
    """Every kind of thing that a cleaning may drop or keep is in the cases."""
    cases = [Case(name, tmp_path / name) for name in CASES]
    before = [each for case in cases for each in batches(case.log)]
    after = [each for case in cases for each in batches(case.theirs)]
    assert sum(len(each["records"]) for each in after) < 0.8 * sum(len(each["records"]) for each in before)
    headers = [each["header"] for each in after]
    assert {header.magic for header in headers} == {0, 1, 2}
    assert {header.codec for header in headers} == {0, 1, 2, 3, 4}
    assert any(header.has_delete_horizon for header in headers)
    assert any(header.is_control for header in headers)
    assert any(header.magic == 2 and header.record_count == 0 for header in headers)
    assert any(record.value is None for each in after for record in each["records"])
    assert any(segment["aborted"] for case in cases for segment in contents(case.theirs))


def test_index_entries_lead_to_batches(tmp_path: Path) -> None:
    """Each says at which position a batch begins, and which offset is its last."""
    case = Case("plain-1", tmp_path)
    run(case.job())
    entries = 0
    for segment in contents(case.log):
        base, last_offsets, position = segment["base"], {}, 0
        for each in segment["batches"]:
            last_offsets[position] = each["header"].last_offset
            position += len(each["bytes"])
        for relative_offset, at in struct.iter_unpack(">ii", (case.log / f"{base:020}.index").read_bytes()):
            if relative_offset:
                assert last_offsets[at] == base + relative_offset
                entries += 1
    assert entries > 0
