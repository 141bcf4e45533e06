"""A partition with several replicas on its leader: who waits for what, and what ends the wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.flusher import NEVER
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.metadata.cluster_metadata import PartitionRecord
from kafkalite.metadata.partition_state import WriteIsr, WriteOutcome
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica.leader_replica import ReplicaFetch
from tests.support.log.delayed_disk import DelayedDisk
from tests.support.manual_clock import ManualClock
from tests.support.replication.led_in_broker import WantedChanges

ME, TWO, THREE = 1, 2, 3
LAG_MS = 30_000
LIVE = {ME: 11, TWO: 12, THREE: 13}


class World:
    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.disk = DelayedDisk()
        self.isr = WantedChanges()
        self._directory = directory

    def log(self, **settings: object) -> PartitionLog:
        context = LogContext(self.clock, lambda: self.disk)
        return open_log("t", 0, str(self._directory), TopicConfig(**settings), LoadOptions(clean=True), context)

    def lead(
        self,
        log: PartitionLog | None = None,
        *,
        isr: tuple[int, ...] = (ME, TWO, THREE),
        min_isr: int = 2,
        epoch: int = 5,
    ) -> LeaderPartition:
        record = PartitionRecord((ME, TWO, THREE), ME, epoch, isr, 0)
        partition = LeaderPartition(
            "t", 0, log or self.log(), record, ME, LIVE, self.isr, self.clock,
            min_insync_replicas=min_isr, lag_time_max_ms=LAG_MS,
        )  # fmt: skip
        partition.begin()
        return partition

    def fetch(self, partition: LeaderPartition, broker: int, offset: int, *, epoch: int = -1) -> ErrorCode:
        fetch = ReplicaFetch(broker, LIVE[broker], partition.leader_epoch, offset, epoch, 0)
        return partition.on_replica_fetch(fetch).error


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def write(partition: Partition, value: bytes = b"value") -> int:
    batch = build_batch([NewRecord(None, value, timestamp=1_000)])
    return partition.append(memoryview(batch), 1_000, 9).last_offset


class Told:
    """A callback, and what it was told: None for success."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode | None] = []

    def __call__(self, error: KafkaError | None) -> None:
        self.codes.append(error.code if error is not None else None)


def test_a_record_is_committed_when_all_in_sync_replicas_have_it(world: World) -> None:
    partition, told = world.lead(), Told()
    assert write(partition) == 0 and partition.high_watermark == 0
    partition.when_committed(0, told)
    assert world.fetch(partition, TWO, 1) is ErrorCode.NONE
    assert partition.high_watermark == 0 and not told.codes
    world.fetch(partition, THREE, 1)
    assert partition.high_watermark == 1 and told.codes == [None]
    assert partition.log.replicated_offset == 1


def test_a_producer_with_acks_1_waits_for_this_disk_alone(world: World) -> None:
    partition = world.lead(world.log(flush_messages=1))
    world.disk.waits = True
    write(partition)
    assert partition.written_offset == 0
    written, committed = Told(), Told()
    partition.when_written(0, written)
    partition.when_committed(0, committed)
    world.fetch(partition, TWO, 1)
    world.fetch(partition, THREE, 1)
    assert not written.codes and not committed.codes
    world.disk.run()
    assert written.codes == [None] and committed.codes == [None]


def test_consumers_wait_for_the_high_watermark_and_followers_for_the_end_of_the_log(world: World) -> None:
    partition = world.lead()
    soon: list[Callable[[], None]] = []
    consumer = DelayedOperation(1, lambda: None, soon.append)
    follower = DelayedOperation(1, lambda: None, soon.append)
    partition.watch(consumer)
    follower.wait_in(partition.replica_fetches)
    write(partition)
    assert follower.woken and not consumer.woken
    follower.withdraw()
    follower = DelayedOperation(1, lambda: None, soon.append)
    follower.wait_in(partition.replica_fetches)
    world.fetch(partition, TWO, 1)
    assert not follower.woken
    world.fetch(partition, THREE, 1)
    assert consumer.woken and follower.woken  # the follower learns of the high watermark
    assert partition.read(0, 1_000, min_one=True) is not None


def test_a_consumer_reads_committed_records_and_a_follower_all(world: World) -> None:
    partition = world.lead()
    write(partition)
    assert partition.read(0, 1_000, min_one=True) is None
    assert partition.read_as_replica(0, 1_000, min_one=True) is not None


def test_with_too_few_in_sync_nothing_is_taken_and_nothing_more_is_committed(world: World) -> None:
    partition, told = world.lead(min_isr=2), Told()
    write(partition)
    partition.when_committed(0, told)
    world.clock.advance(LAG_MS + 1)
    partition.shrink_isr()
    (change,) = world.isr.asked
    assert isinstance(change, WriteIsr) and change.isr == {ME} and change.elr == {TWO, THREE}
    partition.on_write(change, WriteOutcome.WRITTEN)
    with pytest.raises(KafkaError) as caught:
        partition.check_in_sync()
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.high_watermark == 0 and not told.codes
    world.fetch(partition, TWO, 1)
    change = world.isr.asked[-1]
    assert isinstance(change, WriteIsr) and change.isr == {ME, TWO} and change.registrations == {TWO: 12}
    partition.on_write(change, WriteOutcome.WRITTEN)
    partition.check_in_sync()
    assert partition.high_watermark == 1 and told.codes == [None]


def test_a_leader_that_loses_its_office_answers_all_that_wait(world: World) -> None:
    partition, committed, written = world.lead(world.log(flush_messages=1)), Told(), Told()
    world.disk.waits = True
    write(partition)
    partition.when_committed(0, committed)
    partition.when_written(0, written)
    partition.retire()
    assert committed.codes == written.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    partition.on_write(WriteIsr(frozenset({ME}), frozenset(), 0, {}), WriteOutcome.WRITTEN)  # too late
    assert partition.replica.in_sync.isr == {ME, TWO, THREE}


def test_a_leader_that_has_lost_its_office_commits_nothing_more(world: World) -> None:
    partition = world.lead(world.log(flush_messages=1))
    world.disk.waits = True
    write(partition)
    world.fetch(partition, TWO, 1)
    world.fetch(partition, THREE, 1)
    partition.retire()
    world.disk.run()
    assert partition.high_watermark == partition.log.replicated_offset == 0


def test_the_next_leader_goes_on_from_the_high_watermark_that_the_log_has_kept(world: World) -> None:
    log = world.log()
    partition = world.lead(log)
    write(partition), write(partition)
    world.fetch(partition, TWO, 1), world.fetch(partition, THREE, 1)
    partition.retire()
    again = world.lead(log, epoch=6)
    assert again.high_watermark == 1
    with pytest.raises(KafkaError) as caught:  # KIP-207
        again.latest_offset()
    assert caught.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert log.epochs.end_offset_for(5, log.end_offset) == (5, 2)  # the new epoch begins at once


def test_deletion_is_over_when_all_live_replicas_have_deleted(world: World) -> None:
    partition = world.lead()
    write(partition), write(partition)
    for broker in (TWO, THREE):
        world.fetch(partition, broker, 2)
    told: list[int] = []
    partition.delete_records_before(1)
    assert partition.low_watermark == 0
    partition.when_deleted(1, told.append)
    for broker in (TWO, THREE):
        assert not told
        partition.on_replica_fetch(ReplicaFetch(broker, LIVE[broker], 5, 2, -1, 1))
    assert told == [1]


def test_a_partition_that_gets_its_first_further_replicas_forgets_nobody(world: World) -> None:
    log = world.log(flush_messages=1)
    world.disk.waits = True
    single = Partition("t", 0, log, 5)
    write(single)
    committed, soon = Told(), list[Callable[[], None]]()
    single.when_committed(0, committed)
    consumer = DelayedOperation(1, lambda: None, soon.append)
    single.watch(consumer)
    partition = world.lead(log, isr=(ME,), min_isr=1)
    partition.take_over(single)
    assert consumer.woken and not committed.codes
    world.disk.run()
    assert partition.high_watermark == 1 and committed.codes == [None]

    world.disk.waits = True
    write(partition)
    written = Told()
    partition.when_written(1, written)
    log.replicated_offset = NEVER
    single = Partition("t", 0, log, 5)
    single.take_over(partition)
    assert partition.is_retired and not written.codes
    world.disk.run()
    assert written.codes == [None] and single.high_watermark == 2


def test_a_mirrors_batches_are_committed_as_those_of_producers(world: World) -> None:
    partition, told = world.lead(), Told()
    soon: list[Callable[[], None]] = []
    follower = DelayedOperation(1, lambda: None, soon.append)
    follower.wait_in(partition.replica_fetches)
    batch = build_batch([NewRecord(b"k", b"v")], base_offset=7)
    partition.append_at(memoryview(batch), 0, -1, 1_000)
    assert follower.woken and partition.log.epochs.entries() == [(5, 0)]
    assert (partition.log.end_offset, partition.high_watermark) == (8, 0)
    partition.when_committed(7, told)
    world.fetch(partition, TWO, 8, epoch=5)
    world.fetch(partition, THREE, 8, epoch=5)
    assert partition.high_watermark == 8 and told.codes == [None]


def test_an_empty_log_that_begins_later_has_all_below_committed(world: World) -> None:
    partition = world.lead()
    for broker in (TWO, THREE):
        world.fetch(partition, broker, 0)
    partition.append_at(memoryview(b""), 0, 50, 1_000)
    assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (50, 50, 50)
    assert partition.latest_offset() == 50 and partition.log.epochs.entries() == [(5, 50)]
    batch = build_batch([NewRecord(b"k", b"v")], base_offset=50)
    partition.append_at(memoryview(batch), 50, -1, 1_000)
    assert world.fetch(partition, TWO, 0) is ErrorCode.OFFSET_OUT_OF_RANGE, "a follower begins there, too"
    for broker in (TWO, THREE):
        assert world.fetch(partition, broker, 51, epoch=5) is ErrorCode.NONE
    assert partition.high_watermark == 51


def test_a_log_with_records_does_not_begin_later(world: World) -> None:
    partition = world.lead()
    write(partition)
    for end_offset in (0, 1):
        with pytest.raises(KafkaError) as raised:
            partition.append_at(memoryview(b""), end_offset, 50, 1_000)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (partition.log.start_offset, partition.log.end_offset) == (0, 1)
