"""Defects that random histories of compacted logs have found, each in a few lines."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.schedule import CleanerState
from kafkalite.cleaner.workers.cleaning_task import make_job
from kafkalite.common.errors import StorageError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.segment.segment import Segment
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.cleaner.compacted_ledger import read
from tests.support.log.faulty_files import FaultyFiles
from tests.support.manual_clock import ManualClock

NOW_MS = 1_700_000_000_000
COMPACTED = TopicConfig(cleanup_policy=("compact",), segment_index_bytes=96)


class World:
    """A compacted log on a disk that can fail."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "orders-0"
        self.directory.mkdir()
        self.files = FaultyFiles(str(root))
        self.clock = ManualClock(NOW_MS)
        self.log = self.open(LoadOptions(clean=True))

    def open(self, options: LoadOptions) -> PartitionLog:
        services = LogContext(self.clock, files=self.files)
        self.log = open_log("orders", 0, str(self.directory), COMPACTED, options, services)
        return self.log

    def put(self, key: str, value: str) -> None:
        batch = build_batch([NewRecord(key.encode(), value.encode(), (), NOW_MS)])
        self.log.append(memoryview(batch), 0, NOW_MS)

    def offsets(self) -> list[int]:
        return read(self.log, self.log.start_offset, self.log.end_offset).offsets()

    def swap(self, cleaned: CleanedSegment) -> bool:
        told: list[Exception | None] = []
        self.log.swap.replace(cleaned, told.append)
        return told == [None]

    def compact(self) -> bool:
        plan = CleanerState(self.log).make_plan(None, NOW_MS)
        job = make_job(self.log, plan, BrokerConfig(), NOW_MS)
        return clean(job, self.files, self.swap).is_complete


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.log.abandon()


def test_a_pass_waits_while_the_disk_refuses_the_names_of_the_last_one(world: World) -> None:
    """Under the live name stands what was replaced: a cleaning would read that, and records would be gone."""
    for number in range(3):
        world.put("a" if number < 2 else "b", str(number))
    world.log.roll(NOW_MS)
    world.files.fail("rename", ".log", errno.EIO, times=2, after=1)  # .cleaned -> .swap goes, .log -> .deleted does not
    assert not world.compact()
    assert world.offsets() == [1, 2]
    with pytest.raises(StorageError):
        world.log.swap.clean_sources(3)
    assert len(world.log.swap.clean_sources(3)) == 1, "the disk takes it now"
    assert world.compact()
    assert world.offsets() == [1, 2]


def test_a_kill_after_the_disk_refused_a_name_costs_nothing(world: World) -> None:
    """A start that found a .cleaned beside the .swap would throw both away, and the sources are .deleted."""
    for number in range(3):
        world.put("a" if number < 2 else "b", str(number))
    world.log.roll(NOW_MS)
    world.files.fail("rename", "index", errno.EIO, times=2, after=2)
    assert not world.compact()
    with pytest.raises(StorageError):
        world.compact()
    world.log.abandon()
    world.files.kill()
    world.open(LoadOptions(clean=False, recovery_point=3))
    assert world.offsets() == [1, 2]


def test_a_segment_that_a_roll_could_not_begin_does_not_come_back(world: World) -> None:
    """The log went on in the one before it, so their offsets are the same ones. The next flush waits for the names."""
    world.put("a", "0")
    world.log.flusher.flush()
    world.files.fail("open", "1.timeindex", errno.ENOSPC)
    with pytest.raises(StorageError):
        world.log.roll(NOW_MS)
    assert world.log.directory in world.log.flusher.dirty_paths


@pytest.mark.parametrize("recovery_point", [0, 1])
def test_a_segment_that_came_back_all_the_same_hides_no_records(world: World, recovery_point: int) -> None:
    for number in range(3):
        world.put(f"k{number}", "v")
    world.log.abandon()
    segment = Segment(str(world.directory), 2, 0, COMPACTED, NOW_MS, world.files)
    segment.make_files(COMPACTED)
    segment.abandon()
    log = world.open(LoadOptions(clean=False, recovery_point=recovery_point))
    assert (log.end_offset, len(log.segments)) == (3, 1)
    assert world.offsets() == [0, 1, 2]
    world.put("k3", "v")
    assert world.offsets() == [0, 1, 2, 3]
