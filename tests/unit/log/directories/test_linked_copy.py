"""Sealed segments of a neighbour's log are taken over by links, and never changed through them."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.common.names import parse_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories import linked_copy
from kafkalite.log.directories.linked_copy import find_neighbour, link_log
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.manual_clock import ManualClock

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = parse_uuid(CLUSTER)
KEY = "orders", 0
Start = Callable[..., LogManager]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: dict[int, LogManager] = {}

    def start(broker_id: int, cluster: str = CLUSTER) -> LogManager:
        if broker_id in started:
            started.pop(broker_id).close()
        config = BrokerConfig.load({"broker.id": str(broker_id)})
        manager = started[broker_id] = LogManager([tmp_path / f"broker{broker_id}"], ManualClock(), config)
        asyncio.run(manager.load(cluster, lambda topic: TopicConfig()))
        manager.complete_start()
        return manager

    yield start
    for manager in started.values():
        manager.close()


def write(log: PartitionLog, *values: bytes, epoch: int = 0) -> None:
    for value in values:
        log.append(memoryview(build_batch([NewRecord(None, value, (), 1)])), epoch, 1)


def leader_log(manager: LogManager) -> PartitionLog:
    """Two sealed segments and one that grows."""
    log = manager.create(*KEY, TOPIC_ID, TopicConfig())
    for epoch, values in enumerate([(b"a", b"b"), (b"c",), (b"d",)]):
        write(log, *values, epoch=epoch)
        if epoch < 2:
            assert log.roll(1)
    return log


def taken_over(manager: LogManager, leader_id: int = 0) -> PartitionLog | None:
    found = manager.link(KEY, leader_id, TOPIC_ID)
    if found is None:
        return None
    manager.create_from(KEY, found, TopicConfig())
    return manager.get(*KEY)


def batches(log: PartitionLog) -> bytes:
    return b"".join(bytes(batch) for segment in log.segments for _, _, batch in segment.iter_batches())


def inodes(log: PartitionLog) -> list[int]:
    return [os.stat(segment.path).st_ino for segment in log.segments]


def test_a_log_is_not_taken_over_without_the_producers_of_its_sealed_segments(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll makes the new segment first, and the snapshot of the producers next."""
    monkeypatch.setattr(linked_copy, "_PAUSE_S", 0.0)
    source, target = start(0), start(1)
    theirs = leader_log(source)
    snapshot = Path(theirs.directory, f"{theirs.segments[-1].base_offset:020}.snapshot")
    content = snapshot.read_bytes()
    snapshot.unlink()
    assert taken_over(target) is None
    snapshot.write_bytes(content)
    assert taken_over(target) is not None


def test_sealed_segments_are_shared_and_the_rest_is_not(start: Start) -> None:
    source, target = start(0), start(1)
    theirs = leader_log(source)
    log = taken_over(target)
    assert log is not None
    assert (log.start_offset, log.end_offset, log.metadata.topic_id) == (0, 3, TOPIC_ID)
    assert inodes(log)[:2] == inodes(theirs)[:2] and inodes(log)[2] != inodes(theirs)[2]
    assert log.epochs.entries() == [one for one in theirs.epochs.entries() if one[1] < 3]
    assert batches(theirs).startswith(batches(log))
    assert log.flusher.recovery_point == 0, "nothing of it is known to be on the disk"
    write(log, b"mine", epoch=3)
    write(theirs, b"theirs", epoch=3)
    assert log.end_offset == 4 and theirs.end_offset == 5
    again = start(1).get(*KEY)
    assert again is not None and again.end_offset == 4 and inodes(again)[:2] == inodes(theirs)[:2]


def test_a_cut_leaves_the_other_log_whole(start: Start) -> None:
    source, target = start(0), start(1)
    theirs = leader_log(source)
    before = batches(theirs)
    log = taken_over(target)
    assert log is not None
    log.truncate_to(1)
    write(log, b"other", epoch=5)
    assert batches(theirs) == before
    assert inodes(log)[0] != inodes(theirs)[0]
    theirs.truncate_to(3)
    assert theirs.end_offset == 3 and log.end_offset == 2


def test_names_that_go_leave_the_bytes(start: Start) -> None:
    source, target = start(0), start(1)
    leader_log(source)
    log = taken_over(target)
    assert log is not None
    before = batches(log)
    source.delete(*KEY)
    source.close()
    assert batches(log) == before


def test_a_log_of_one_segment_is_fetched(start: Start) -> None:
    source, target = start(0), start(1)
    write(source.create(*KEY, TOPIC_ID, TopicConfig()), b"a")
    assert taken_over(target) is None
    assert not any(name.startswith("orders") for name in os.listdir(target.online[0].path))


def test_only_neighbours_of_the_same_cluster_and_topic_share(start: Start, tmp_path: Path) -> None:
    source, target = start(0), start(1)
    leader_log(source)
    path, files = target.online[0].path, Files()
    assert find_neighbour(path, 0, files) == f"{tmp_path}/broker0"
    assert find_neighbour(path, 7, files) is None, "there is none"
    assert link_log(path, f"{tmp_path}/broker0", KEY, uuid.uuid4(), files) is None, "another topic of that name"
    assert link_log(path, f"{tmp_path}/broker0", ("gone", 0), TOPIC_ID, files) is None
    stranger = start(2, "AAAAAAAAAAAAAAAAAAAAAA")
    assert find_neighbour(stranger.online[0].path, 0, files) is None
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "meta.properties").write_bytes((tmp_path / "broker1" / "meta.properties").read_bytes())
    assert find_neighbour(str(alone), 0, files) is None, "not in the layout of a machine"
    assert not any(name.endswith("-delete") for name in os.listdir(path)), "nothing is left"
