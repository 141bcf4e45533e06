"""The last stable offset, and read_committed fetches that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.state.producer import ActiveProducer
from kafkalite.log.storage.files import Done, Job, outcome_of
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.partition import DelayedOperation, Partition
from tests.support.manual_clock import ManualClock

NOW_MS = 1_700_000_000_000


class Background:
    """Jobs wait until `run`; without `waits` they run at once."""

    def __init__(self) -> None:
        self.waits = False
        self._waiting: list[tuple[Job, Done]] = []

    def __call__(self, job: Job, done: Done) -> None:
        self._waiting.append((job, done))
        if not self.waits:
            self.run()

    def run(self) -> None:
        waiting, self._waiting = self._waiting, []
        for job, done in waiting:
            done(outcome_of(job))


class World:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.background = Background()
        self.clock = ManualClock(NOW_MS)
        self._sequences: dict[int, int] = {}

    def open(self, **settings: object) -> Partition:
        context = LogContext(self.clock, lambda: self.background)
        log = PartitionLog.open("t", 0, str(self._directory), TopicConfig(**settings), LoadOptions(clean=True), context)
        return Partition("t", 0, log, 3)

    def send(self, partition: Partition, producer: int, size: int = 1) -> int:
        """A transactional batch of one record; returns its size in bytes."""
        sequence = self._sequences[producer] = self._sequences.get(producer, -1) + 1
        batch = build_batch(
            [NewRecord(b"k", b"v" * size, (), NOW_MS)], producer_id=producer, producer_epoch=0, base_sequence=sequence,
            transactional=True,
        )  # fmt: skip
        guard = partition.begin_verification(producer, 0, sequence)
        partition.append(memoryview(batch), NOW_MS, 9, transactional=True, guard=guard)
        return len(batch)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def plain(partition: Partition, size: int = 1) -> None:
    partition.append(memoryview(build_batch([NewRecord(b"k", b"v" * size, (), NOW_MS)])), NOW_MS, 9)


def waiter(partition: Partition, missing_bytes: int) -> tuple[DelayedOperation, list[Callable[[], None]]]:
    soon: list[Callable[[], None]] = []
    made = DelayedOperation(missing_bytes, lambda: None, soon.append, read_committed=True)
    made.watch(partition)
    return made, soon


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(world: World) -> None:
    partition = world.open()
    plain(partition)
    assert partition.last_stable_offset == 1 and partition.oldest_open_transaction is None
    world.send(partition, 1)
    world.send(partition, 2)
    plain(partition)
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
    partition.append_marker(2, 0, 0, True, NOW_MS)
    assert partition.last_stable_offset == 1
    assert partition.oldest_open_transaction == ActiveProducer(1, 0, 0, NOW_MS, -1, 1)
    world.send(partition, 2)
    partition.append_marker(1, 0, 0, False, NOW_MS)
    assert partition.last_stable_offset == 5
    partition.append_marker(2, 0, 5, True, NOW_MS + 1)
    assert partition.last_stable_offset == partition.high_watermark == 8
    assert partition.aborted_transactions(0, 8) == [AbortedTxn(1, 1, 6, 5)]
    assert partition.active_producers() == [
        ActiveProducer(1, 0, 0, NOW_MS, 0, -1), ActiveProducer(2, 0, 1, NOW_MS + 1, 5, -1)
    ]  # fmt: skip


def test_a_read_committed_fetch_ends_there(world: World) -> None:
    partition = world.open()
    plain(partition)
    size = world.send(partition, 1)
    region = partition.read(0, 1000, True, read_committed=True)
    assert region is not None
    assert partition.read(1, 1000, True, read_committed=True) is None
    whole = partition.read(0, 1000, True)
    assert whole is not None
    assert whole.size == region.size + size
    assert partition.lookup_of_max_timestamp(read_committed=True).begin()


def test_a_marker_counts_when_it_is_committed(world: World) -> None:
    """With flush.messages the marker must be on the disk."""
    partition = world.open(flush_messages=1)
    world.send(partition, 1)
    world.background.waits = True
    partition.append_marker(1, 0, 0, False, NOW_MS)
    _, soon = waiter(partition, 1)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    world.background.run()
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 2)
    assert len(soon) == 1


def test_a_marker_that_was_not_committed_is_when_the_partition_is_led_again(world: World) -> None:
    partition = world.open(flush_messages=1)
    world.send(partition, 1)
    world.background.waits = True
    partition.append_marker(1, 0, 0, True, NOW_MS)
    partition.retire()
    world.background.run()
    again = Partition("t", 0, partition.log, 4)
    assert again.last_stable_offset == again.high_watermark == 2


def test_bytes_of_an_open_transaction_wake_nobody_who_reads_committed(world: World) -> None:
    partition = world.open()
    plain(partition)
    _, soon = waiter(partition, 1)
    world.send(partition, 1)
    plain(partition)
    assert soon == []
    partition.append_marker(1, 0, 0, True, NOW_MS)
    assert len(soon) == 1


def test_a_fetch_that_waits_for_many_bytes_is_woken_by_those_that_became_stable(world: World) -> None:
    partition = world.open()
    world.send(partition, 1)
    waiting, soon = waiter(partition, 1 << 20)
    before = waiting.missing_bytes
    sent = world.send(partition, 2, size=1000)
    partition.append_marker(1, 0, 0, True, NOW_MS)
    first = before - waiting.missing_bytes
    assert 0 < first < 1000, "only the first batch is stable"
    partition.append_marker(2, 0, 0, True, NOW_MS)
    whole = partition.read(0, 1 << 20, True)
    assert whole is not None
    assert before - waiting.missing_bytes == whole.size > sent
    plain(partition, 500)
    assert soon == [] and before - waiting.missing_bytes > whole.size + 500
    _, late = waiter(partition, 400)
    plain(partition, 500)
    assert len(late) == 1


def test_a_transaction_over_several_segments_wakes_at_once(world: World) -> None:
    partition = world.open(segment_bytes=200)
    world.send(partition, 1, 100)
    world.send(partition, 1, 100)
    waiting, soon = waiter(partition, 1 << 20)
    partition.append_marker(1, 0, 0, True, NOW_MS)
    assert len(soon) == 1 and waiting.woken


def test_deleted_records_of_an_open_transaction_do_not_come_back(world: World) -> None:
    partition = world.open()
    world.send(partition, 1)
    plain(partition)
    assert partition.delete_records_before(-1) == 2
    assert partition.last_stable_offset == 2
    plain(partition)
    assert partition.last_stable_offset == 2
    partition.append_marker(1, 0, 0, False, NOW_MS)
    assert partition.last_stable_offset == 4
    assert partition.aborted_transactions(2, 4) == [AbortedTxn(1, 0, 3, 4)]


def test_markers_of_the_past_are_refused(world: World) -> None:
    partition = world.open()
    partition.append_marker(1, 2, 5, True, NOW_MS)
    for epoch, coordinator_epoch, code in (
        (1, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(KafkaError) as raised:
            partition.append_marker(1, epoch, coordinator_epoch, True, NOW_MS)
        assert raised.value.code == code
    assert partition.log.end_offset == 1
