"""Epochs of many elections in one file: no power cut loses one, and none comes back that is not the log's."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random

import pytest

from kafkalite.common.names import random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.file_names import ELECTIONS, LEADER_EPOCHS
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch, stamp
from tests.support.log.faulty_files import FaultyFiles
from tests.support.log.three_disks import CLUSTER, CONFIG, TOPIC_ID, Machine, create, write
from tests.support.manual_clock import ManualClock

_POWER_CUTS = 200
_SMALL = TopicConfig(segment_index_bytes=4096)


def start(root: str, files: Files) -> LogManager:
    manager = LogManager([root], ManualClock(), BrokerConfig.load({}), None, files)
    asyncio.run(manager.load(CLUSTER, lambda topic: CONFIG, lambda topic: TOPIC_ID))
    manager.complete_start()
    return manager


def record(manager: LogManager, elected: Collection[tuple[PartitionLog, int]]) -> None:
    for job, note in list(manager.record_elections(elected)):
        job()
        note()


def elect(manager: LogManager, epoch: int, logs: Collection[PartitionLog] | None = None) -> None:
    logs = list(manager.logs.values()) if logs is None else logs
    record(manager, [(log, epoch) for log in logs])
    for log in logs:
        log.assign_epoch(epoch)


def epochs_of(manager: LogManager) -> list[list[tuple[int, int]]]:
    return [log.epochs.entries() for _, log in sorted(manager.logs.items())]


def test_no_power_cut_loses_an_election(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    disk = FaultyFiles(str(tmp_path / "disk"))
    manager = start(disk.root, disk)
    logs = [manager.create("orders", index, TOPIC_ID, _SMALL) for index in range(3)]
    for log in logs:
        log.flusher.flush()
        disk.sync_all([log.metadata.path, log.directory, disk.root])
    elect(manager, 5)
    for seed in range(_POWER_CUTS):
        root = tmp_path / f"left-{seed}"
        after = disk.power_cut(str(root), Random(seed))
        again = start(str(root), after)
        assert epochs_of(again) == [[(5, 0)]] * 3
        again.abandon()
    manager.abandon()


def test_a_clean_stop_leaves_each_file_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    disk = FaultyFiles(str(tmp_path / "disk"))
    manager = start(disk.root, disk)
    log = manager.create("orders", 0, TOPIC_ID, _SMALL)
    elect(manager, 5)
    append(log, 5)
    manager.close()
    for seed in range(_POWER_CUTS):
        root = tmp_path / f"left-{seed}"
        disk.power_cut(str(root), Random(seed))
        assert (root / "orders-0" / LEADER_EPOCHS).read_bytes() == b"0\n1\n5 0\n"


def test_all_elections_cost_two_fsyncs(machine: Machine) -> None:
    manager = machine.start(machine.paths[0])
    logs = create(manager, "orders", 50)
    machine.disks.synced.clear()
    elect(manager, 3)
    assert machine.disks.synced == [f"{machine.paths[0]}/{ELECTIONS}.tmp", machine.paths[0]]
    assert [log.epochs.entries() for log in logs] == [[(3, 0)]] * 50
    logs[0].assign_epoch(4)
    assert len(machine.disks.synced) == 4, "one that was not recorded waits for the disk itself"


def test_each_directory_has_its_own(machine: Machine) -> None:
    manager = machine.start()
    create(manager, "orders", 6)
    elect(manager, 2)
    assert machine.file(0, ELECTIONS).read_text() == f"0\n2\norders 0 {CLUSTER} 2 0\norders 3 {CLUSTER} 2 0\n"
    machine.disks.broken[machine.paths[0]] = errno.EIO
    elected = [(log, 3) for log in manager.logs.values()]
    outcomes = []
    for job, note in list(manager.record_elections(elected)):
        try:
            job()
            note()
            outcomes.append(True)
        except OSError:
            outcomes.append(False)
    assert outcomes == [False, True, True]
    recorded = [log.epochs.is_recorded(3, 0) for _, log in sorted(manager.logs.items())]
    assert recorded == [False, True, True, False, True, True]


def append(log: PartitionLog, epoch: int) -> None:
    log.append(memoryview(build_batch([NewRecord(None, b"a", (), 1)])), epoch, 1)


def elected_once(machine: Machine) -> PartitionLog:
    """An empty log, whose leader was elected for epoch 4, in a directory of its own."""
    manager = machine.start(machine.paths[0])
    (log,) = create(manager, "orders")
    elect(manager, 4)
    return log


@pytest.mark.parametrize("stop", [Machine.kill, Machine.close])
@pytest.mark.parametrize("content", [None, b"", b"0\n1\n", b"0\n1\n4 0\n"])
def test_every_start_finds_it(machine: Machine, stop: Callable[[Machine], None], content: bytes | None) -> None:
    elected_once(machine)
    for _ in range(2):
        stop(machine)
        if content is not None:
            machine.file(0, f"orders-0/{LEADER_EPOCHS}").write_bytes(content)
        assert epochs_of(machine.start(machine.paths[0])) == [[(4, 0)]]


@pytest.mark.parametrize("stop", [Machine.kill, Machine.close])
def test_the_first_batch_puts_it_into_the_file_of_the_log(machine: Machine, stop: Callable[[Machine], None]) -> None:
    log = elected_once(machine)
    append(log, 4)
    assert log.epochs.entries() == [(4, 0)]
    assert machine.file(0, f"orders-0/{LEADER_EPOCHS}").read_bytes() == b"0\n1\n4 0\n"
    stop(machine)
    machine.file(0, ELECTIONS).unlink()
    assert epochs_of(machine.start(machine.paths[0])) == [[(4, 0)]]


def test_batches_of_a_leader_put_it_into_the_file_too(machine: Machine) -> None:
    log = elected_once(machine)
    batch = build_batch([NewRecord(None, b"a", (), 1)])
    stamp(batch, 0, 4)
    log.append_as_follower(memoryview(batch), 1)
    assert log.epochs.entries() == [(4, 0)]
    assert machine.file(0, f"orders-0/{LEADER_EPOCHS}").read_bytes() == b"0\n1\n4 0\n"


def test_a_log_with_batches_has_their_epochs(machine: Machine) -> None:
    """As a follower it may have taken batches of an older epoch, from the offset on where it was elected once."""
    log = elected_once(machine)
    log.truncate_to(0)
    write(log, "a", "b")  # in epoch 0
    machine.kill()
    assert epochs_of(machine.start(machine.paths[0])) == [[(0, 0)]]


def test_a_log_that_begins_elsewhere_does_not_have_the_epoch(machine: Machine) -> None:
    log = elected_once(machine)
    log.restart_at(7)
    machine.kill()
    assert epochs_of(machine.start(machine.paths[0])) == [[]]


def test_a_topic_of_that_name_that_was_made_anew_has_no_epoch_of_the_former_one(machine: Machine) -> None:
    manager = machine.start(machine.paths[0])
    create(manager, "orders")
    elect(manager, 4)
    manager.delete("orders", 0)
    manager.create("orders", 0, random_uuid(), TopicConfig())
    machine.kill()
    assert epochs_of(machine.start(machine.paths[0])) == [[]]


def test_what_is_over_is_left_out_of_the_next_write(machine: Machine) -> None:
    manager = machine.start(machine.paths[0])
    logs = create(manager, "orders", 5)
    elect(manager, 1)
    manager.delete("orders", 0)
    logs[1].restart_at(7)
    logs[2].assign_epoch(7)  # by itself: that is on the disk
    record(manager, [(logs[3], 2)])  # recorded, and about to be elected
    record(manager, [(logs[4], 3)])
    kept = machine.file(0, ELECTIONS).read_text().splitlines()[2:]
    assert kept == [f"orders {index} {CLUSTER} {epoch} 0" for index, epoch in ((3, 2), (4, 3))]


def test_a_damaged_file_is_ignored(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    append(elected_once(machine), 4)
    machine.close()
    machine.file(0, ELECTIONS).write_text("0\n1\norders 0 x\n")
    assert epochs_of(machine.start(machine.paths[0])) == [[(4, 0)]]
    assert "continuing without it" in caplog.text
