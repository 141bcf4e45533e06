"""Logs move to another directory while they are used: everything is there, once, whenever the broker dies."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories import log_moves
from kafkalite.log.directories.log_manager import LogManager, ManagerState
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.record import read_records
from tests.support.log.faulty_files import Ended, FaultyFiles, Killed, PowerCut
from tests.support.log.three_disks import CLUSTER, TOPIC_ID, Machine, create, write
from tests.support.manual_clock import ManualClock

KEY = ("orders", 0)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_moves, "_PIECE_BYTES", 200)
    monkeypatch.setattr(log_moves, "_LAST_BYTES", 150)


def values(log: PartitionLog) -> list[str]:
    found: list[str] = []
    offset = log.start_offset
    while (region := log.read(offset, 1 << 20, log.end_offset)) is not None:
        data, position = region.read(), 0
        while position < len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            for record in read_records(data[position : position + size]):
                if record.offset >= offset:
                    found.append((record.value or b"").decode())
                    offset = record.offset + 1
            position += size
    return found


def bytes_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("*.log")}


def move(manager: LogManager, which: int) -> None:
    manager.moves.begin(KEY, list(manager.directories)[which])


def place(manager: LogManager) -> str:
    return os.path.basename(manager.directory_of(KEY).path)


@pytest.fixture
def log(machine: Machine) -> PartitionLog:
    (log,) = create(machine.start(), "orders")
    write(log, *[f"v{number}" for number in range(20)])
    return log


def test_a_log_moves_as_it_is(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    log.delete_records_before(3)
    before = bytes_of(machine.file(0, "orders-0"))
    told: list[object] = []
    log.flusher.on_ack = told.append
    move(manager, 1)
    machine.clock.advance(1)
    assert place(manager) == "b" and manager.get(*KEY) is log and KEY not in manager.moves
    ((name, after),) = bytes_of(machine.file(1, "orders-0")).items()
    assert name == f"{3:020d}.log" and before[f"{0:020d}.log"].endswith(after) and after
    assert values(log) == [f"v{number}" for number in range(3, 20)] and log.metadata.topic_id == TOPIC_ID
    assert machine.names(1) == ["orders-0"] and machine.names(0)[0].endswith("-delete")
    write(log, "next")
    assert log.flusher.on_ack == told.append
    machine.clock.advance(60_000)
    assert machine.names(0) == []
    manager.close()
    again = machine.start()
    assert place(again) == "b" and values(again.logs[KEY]) == [*[f"v{number}" for number in range(3, 20)], "next"]


def test_what_comes_meanwhile_comes_along(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    manager.moves.rate = 50_000  # bytes per second
    move(manager, 2)
    seen = set()
    for number in range(20, 60):
        write(log, f"v{number}")
        machine.clock.advance(1)
        if copy := manager.moves.copies().get(KEY):
            seen.add(copy.offset_lag)
    machine.clock.advance(1_000)
    assert place(manager) == "c" and values(log) == [f"v{number}" for number in range(60)]
    assert len(seen) > 5 and max(seen) >= 15


def test_a_truncation_reaches_the_copy(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    manager.moves.rate = 100_000
    move(manager, 1)
    machine.clock.advance(10)
    assert 0 < manager.moves.copies()[KEY].offset_lag < 20
    log.truncate_to(4)
    write(log, "other")
    machine.clock.advance(1_000)
    assert place(manager) == "b" and values(log) == ["v0", "v1", "v2", "v3", "other"]
    manager.moves.rate = 1_000
    move(manager, 0)
    machine.clock.advance(2)
    log.restart_at(100)
    write(log, "anew")
    machine.clock.advance(10_000)
    assert place(manager) == "a" and values(log) == ["anew"] and log.start_offset == 100


def test_retention_may_go_on(machine: Machine) -> None:
    manager = machine.start()
    log = manager.create(*KEY, TOPIC_ID, TopicConfig(segment_bytes=150))
    write(log, *[f"v{number}" for number in range(20)])
    manager.moves.rate = 50_000
    move(manager, 1)
    machine.clock.advance(4)
    log.delete_records_before(15)
    machine.clock.advance(1_000)
    assert place(manager) == "b" and values(log) == [f"v{number}" for number in range(15, 20)]


def test_an_open_transaction_goes_on(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    first = build_batch(
        [NewRecord(None, b"x", (), 1)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    guard = log.producers.begin_verification(7, 0, 0)
    log.append(memoryview(first), 0, 1, transactional=True, guard=guard)
    unstable = log.producers.first_unstable_offset
    log.assign_epoch(5)
    move(manager, 1)
    machine.clock.advance(1)
    assert place(manager) == "b" and log.producers.first_unstable_offset == unstable == 20
    assert log.epochs.entries() == [(0, 0), (5, 21)]
    more = build_batch(
        [NewRecord(None, b"y", (), 1)], producer_id=7, producer_epoch=0, base_sequence=1, transactional=True
    )
    log.append(memoryview(more), 5, 1, transactional=True)
    assert log.end_offset == 22


def test_another_way_is_another_move_and_home_is_none(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    manager.moves.rate = 1_000
    move(manager, 1)
    machine.clock.advance(2)
    assert manager.moves.target_of(KEY) is list(manager.directories)[1] and machine.names(1)[0].endswith("-future")
    move(manager, 2)
    machine.clock.advance(2)
    assert machine.names(1) == [] and machine.names(2)[0].endswith("-future")
    move(manager, 0)
    machine.clock.advance(100)
    assert KEY not in manager.moves and machine.names(2) == [] and machine.names(0) == ["orders-0"]
    write(log, "still")
    assert values(log)[-1] == "still"


def test_a_deleted_log_leaves_no_copy(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    manager.moves.rate = 1_000
    move(manager, 1)
    machine.clock.advance(2)
    manager.delete(*KEY)
    machine.clock.advance(100_000)
    assert KEY not in manager.moves and machine.names(0) == machine.names(1) == []


def test_a_log_that_is_being_cleaned_waits(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    manager.being_cleaned.add(KEY)
    move(manager, 1)
    machine.clock.advance(1_000)
    assert place(manager) == "a" and KEY in manager.moves and machine.names(1) == []
    manager.being_cleaned.clear()
    machine.clock.advance(1_000)
    assert place(manager) == "b"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_where_the_disk_refuses_the_log_stays(machine: Machine, log: PartitionLog, number: int) -> None:
    manager = machine.managers[0]
    manager.moves.rate = 100_000
    move(manager, 1)
    machine.clock.advance(10)
    machine.disks.broken[machine.paths[1]] = number
    machine.clock.advance(1_000)
    assert KEY not in manager.moves and place(manager) == "a"
    assert len(manager.online) == (3 if number == errno.ENOSPC else 2)
    write(log, "still")
    assert values(log)[-1] == "still"


def test_only_so_many_move_at_once(machine: Machine) -> None:
    manager = machine.start(num_replica_alter_log_dirs_threads=2, replica_alter_log_dirs_io_max_bytes_per_second=5_000)
    logs = create(manager, "orders", 6)
    for one in logs:
        write(one, *[f"v{number}" for number in range(5)])
    third = list(manager.directories)[2]
    for one in logs:
        manager.moves.begin((one.topic, one.partition), third)
    machine.clock.advance(3)
    assert len(manager.moves.copies()) == 2
    machine.clock.advance(60_000)
    assert {manager.directory_of((one.topic, one.partition)) for one in logs} == {third}


def test_a_log_that_is_wanted_in_a_directory_is_created_there(machine: Machine) -> None:
    manager = machine.start()
    manager.want_in(KEY, list(manager.directories)[2])
    create(manager, "orders", 2)
    assert place(manager) == "c"


def test_the_next_start_begins_anew(machine: Machine, log: PartitionLog) -> None:
    manager = machine.managers[0]
    manager.moves.rate = 1_000
    move(manager, 1)
    machine.clock.advance(2)
    manager.close()
    assert machine.names(1)[0].endswith("-future")
    again = machine.start()
    assert values(again.logs[KEY]) == [f"v{number}" for number in range(20)]
    machine.clock.advance(1_000)
    assert place(again) == "b" and values(again.logs[KEY]) == [f"v{number}" for number in range(20)]


# a broker that dies


STRIDE = 5  # of the calls; with 1 it takes half a minute
SMALL = TopicConfig(segment_bytes=400, segment_index_bytes=1024)


class World:
    """Two directories on a disk that can end at any call."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.paths = [f"{root}/a", f"{root}/b"]
        for path in self.paths:
            os.makedirs(path)
        self.files = FaultyFiles(root)
        self.clock = ManualClock()

    def cut_power(self, random: Random) -> None:
        root = f"{self.root}-again"
        self.files = self.files.power_cut(root, random)
        self.paths = [path.replace(self.root, root) for path in self.paths]
        self.root = root

    def start(self) -> LogManager:
        manager = LogManager(self.paths, self.clock, BrokerConfig.load({}), files=self.files)
        asyncio.run(manager.load(CLUSTER, lambda topic: SMALL, lambda topic: TOPIC_ID))
        manager.complete_start()
        return manager


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[str]:
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path)
    directory = tempfile.mkdtemp(dir=parent, prefix="kafkalite-moves-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("by", [Killed, PowerCut])
def test_whenever_the_broker_dies_everything_is_there_once(memory: str, by: type[Ended]) -> None:
    wanted = [f"v{number}" for number in range(12)]
    places = set()
    at = 1
    while True:
        world = World(f"{memory}/{at}")
        manager = world.start()
        log = manager.create(*KEY, TOPIC_ID, SMALL)
        write(log, *wanted)
        log.flusher.flush()
        manager.checkpoint()
        move(manager, 1 if manager.directory_of(KEY).path.endswith("a") else 0)
        world.files.end_at, world.files.end_by = world.files.calls + at, by
        try:
            world.clock.advance(100_000)
            is_over = True
        except Ended:
            is_over = False
        for one in manager.logs.values():
            one.abandon()
        manager._state = ManagerState.LOCKED
        manager.close()
        if by is PowerCut:
            world.cut_power(Random(at))
        else:
            world.files = world.files.kill()
        was_begun = is_over or any("-future" in name for path in world.paths for name in os.listdir(path))
        again = world.start()
        assert values(again.logs[KEY]) == wanted, at
        places.add(where := place(again))
        world.clock.advance(100_000)
        assert values(again.logs[KEY]) == wanted and place(again) == ("b" if was_begun else where), at
        names = [name for path in world.paths for name in os.listdir(path) if name.startswith("orders-0")]
        assert names == ["orders-0"], (at, names)
        again.close()
        if is_over:
            break
        at += STRIDE
    assert places == {"a", "b"} and at > 30
