"""A follower's files are its leader's, however the fetches have cut the log into pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.file_names import LEADER_EPOCHS, RECORD_COUNTS
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.log.transactional_batches import end, send
from tests.unit.log.conftest import START_MS, Disk, Log

producers = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 5), st.integers(0, 4)),
    st.tuples(st.just("plain"), st.integers(1, 5), st.integers(0, 4)),
    st.tuples(st.just("idempotent"), producers, st.integers(1, 3)),
    st.tuples(st.just("send"), producers, st.integers(1, 3)),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("elect"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("time"), st.integers(-300, 600), st.none()),
)
fetches = st.lists(st.tuples(st.integers(0, 1500), st.sampled_from(["", "", "", "", "kill", "restart"])), min_size=1)


class Leader:
    """Writes a history of many epochs, segments, transactions and codecs."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.log = disk.open(segment_bytes=700, index_interval_bytes=150, segment_index_bytes=120, segment_ms=700)
        self.epoch = 0
        self.time_ms = START_MS
        self.sequences: dict[int, int] = {}

    def play(self, history: list[tuple[str, Any, Any]]) -> None:
        for name, first, second in history:
            getattr(self, name)(first, second)

    def plain(self, count: int, codec: int) -> None:
        times = [self.time_ms + number * 7 for number in range(count)]
        records = [
            NewRecord(b"%d" % number, None if number % 3 == 1 else b"v" * 20 * number, (), times[number])
            for number in range(count)
        ]
        self.append(build_batch(records, codec=codec))

    def idempotent(self, producer: int, count: int) -> None:
        sequence = self.sequences.get(producer, 0)
        records = [NewRecord(None, b"x" * 30, (), self.time_ms)] * count
        self.append(build_batch(records, producer_id=100 + producer, producer_epoch=0, base_sequence=sequence))
        self.sequences[producer] = sequence + count

    def append(self, batch: bytearray) -> None:
        self.log.append(batch, epoch=self.epoch)

    def send(self, producer: int, count: int) -> None:
        send(self.log, producer, *"abc"[:count], leader_epoch=self.epoch)

    def end(self, producer: int, commit: bool) -> None:
        end(self.log, producer, commit=commit, leader_epoch=self.epoch)

    def elect(self, more: int, is_told: bool) -> None:
        self.epoch += more
        if is_told:
            self.log.log.assign_epoch(self.epoch)

    def time(self, by_ms: int, _: None) -> None:
        self.time_ms += by_ms
        self.disk.clock.advance(max(0, by_ms))


def producers_of(log: PartitionLog) -> dict[int, object]:
    return {
        producer_id: (one.epoch, one.last_sequence, list(one.batches), one.last_timestamp_ms, one.txn_first_offset)
        for producer_id, one in log.producers._producers.items()
    }


def content(disk: Disk, *but: str) -> dict[str, bytes]:
    return {
        name: (disk.directory / name).read_bytes()
        for name in disk.names()
        if name != RECORD_COUNTS and not name.endswith(but)
    }


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(steps, max_size=60), fetched=fetches)
def test_the_files_are_the_leaders(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Any, Any]], fetched: list[tuple[int, str]]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        root: Path = tmp_path_factory.mktemp("pair")
        disks = []
        for name in ("leader", "follower"):
            (root / name).mkdir()
            disks.append(Disk(root / name, monkeypatch))
        leader = Leader(disks[0])
        leader.play(history)
        follower = disks[1].open(**disks[0].settings)
        follower.log.replicated_offset = 0
        follower, was_stopped = copy(leader.log.log, disks[1], follower, fetched)
        compare(leader, disks, follower, was_stopped)


def copy(leader: PartitionLog, disk: Disk, follower: Log, fetched: list[tuple[int, str]]) -> tuple[Log, set[str]]:
    """Fetches of these sizes, again and again; after some of them the follower stops."""
    stops: set[str] = set()
    number = 0
    while (offset := follower.log.end_offset) < leader.end_offset:
        size, stop = fetched[number % len(fetched)]
        number += 1
        region = leader.read(offset, size, leader.end_offset)
        assert region is not None
        assert follower.log.append_as_follower(memoryview(region.read()), disk.clock.wall_ms()) > offset
        if stop and stop not in stops:
            stops.add(stop)
            follower = disk.kill(follower) if stop == "kill" else disk.restart(follower)
    return follower, stops


def compare(leader: Leader, disks: list[Disk], follower: Log, stops: set[str]) -> None:
    theirs, ours = leader.log.log, follower.log
    assert (ours.start_offset, ours.end_offset) == (theirs.start_offset, theirs.end_offset)
    if not stops:  # a snapshot has the last batch of each producer only
        assert producers_of(ours) == producers_of(theirs)
    assert ours.producers.ongoing == theirs.producers.ongoing
    ours.producers.acknowledge(ours.end_offset)
    assert ours.producers.first_unstable_offset == theirs.producers.first_unstable_offset
    assert ours.epochs.entries() == [entry for entry in theirs.epochs.entries() if entry[1] < theirs.end_offset]
    assert ours.transactions.aborted(0, ours.end_offset) == theirs.transactions.aborted(0, theirs.end_offset)
    assert ours.record_counts.current().live_records == theirs.record_counts.current().live_records
    assert ours.record_counts.current().control_records == theirs.record_counts.current().control_records
    theirs.close()
    ours.close()
    # what is not indexed yet is forgotten at a stop, and sealing adds an entry
    but = (LEADER_EPOCHS, ".index", ".timeindex", ".snapshot") if stops else (LEADER_EPOCHS,)
    assert content(disks[1], *but) == content(disks[0], *but)
