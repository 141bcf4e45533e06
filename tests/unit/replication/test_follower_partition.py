"""A partition with several replicas on a follower: real logs, and a leader that answers at once."""

from __future__ import annotations

import errno
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.partition.flusher import NEVER
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.transaction_marker import build_marker
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.follower_partition import FollowerPartition
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, ReplicaLog, diverging_epoch
from kafkalite.replication.replica.follower_replica import (
    FAILED,
    FETCHING,
    LATEST,
    AskEpochEnd,
    AskOffset,
    Fetch,
    FetchAnswer,
)
from tests.support.log.delayed_disk import DelayedDisk
from tests.support.manual_clock import ManualClock

TOPIC_ID = uuid.UUID(int=7)
NOW = 5.0
ALL = 1 << 30


class World:
    """The log of a leader, to which `write` appends, and those of followers."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.disk = DelayedDisk()
        self.directory = directory
        self.leader = self.log("leader")
        self.epoch = 1
        self.high_watermark = 0

    def log(self, name: str, options: LoadOptions | None = None, **settings: object) -> PartitionLog:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        context = LogContext(self.clock, lambda: self.disk)
        config = TopicConfig(**{"segment_bytes": 2000, **settings})
        return open_log("t", 0, str(directory), config, options or LoadOptions(clean=True), context)

    def follow(self, log: PartitionLog | None = None) -> FollowerPartition:
        log = log or self.log("follower")
        partition = FollowerPartition("t", 0, TOPIC_ID, log, self.epoch, 2, backoff_ms=1000)
        partition.begin()
        return partition

    def write(self, *values: bytes, log: PartitionLog | None = None, epoch: int | None = None) -> None:
        """Each value is a batch; all are committed."""
        for value in values:
            batch = build_batch([NewRecord(None, value, timestamp=1_000)])
            (log or self.leader).append(memoryview(batch), self.epoch if epoch is None else epoch, 1_000)
        self.high_watermark = self.leader.end_offset

    def answer(self, sent: Fetch, max_bytes: int = ALL) -> tuple[FetchAnswer, memoryview | None]:
        log = self.leader
        seen = ReplicaLog(log.start_offset, log.end_offset, log.end_offset, self.high_watermark, log.epochs)
        found = diverging_epoch(sent.fetch_offset, sent.last_fetched_epoch, seen)
        if isinstance(found, EpochEndOffset):
            return FetchAnswer(ErrorCode.NONE, self.high_watermark, log.start_offset, found), None
        if found:
            return FetchAnswer(found), None
        region = log.read(sent.fetch_offset, max_bytes, log.end_offset)
        records = None if region is None else memoryview(bytearray(region.read()))
        first_offset = None if records is None else int.from_bytes(records[:8], "big")
        return FetchAnswer(ErrorCode.NONE, self.high_watermark, log.start_offset, None, first_offset), records

    def step(self, partition: FollowerPartition, max_bytes: int = ALL, now_ms: float = NOW) -> bool:
        """One request and its answer; False if there was none to send."""
        sent = partition.next_request(now_ms)
        if isinstance(sent, Fetch):
            partition.on_fetch(sent, *self.answer(sent, max_bytes), now_ms, self.clock.wall_ms())
        elif isinstance(sent, AskEpochEnd):
            end = self.leader.epochs.end_offset_for(sent.epoch, self.leader.end_offset)
            partition.on_epoch_end(ErrorCode.NONE, EpochEndOffset(*end), now_ms)
        elif isinstance(sent, AskOffset):
            offset = self.leader.end_offset if sent.timestamp == LATEST else self.leader.start_offset
            partition.on_offset(sent, ErrorCode.NONE, offset, now_ms)
        return sent is not None

    def catch_up(self, partition: FollowerPartition, max_bytes: int = ALL) -> None:
        for _ in range(200):
            assert self.step(partition, max_bytes)
            if (partition.end_offset, partition.high_watermark) == (self.leader.end_offset, self.high_watermark):
                return
        raise AssertionError(f"{partition.log} does not become {self.leader}")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def content(log: PartitionLog) -> bytes:
    return b"".join(map(bytes, log.batches(log.start_offset)))


class Waiting:
    """A fetch of a consumer that waits for a byte."""

    def __init__(self, partition: FollowerPartition) -> None:
        self.woken = 0

        def call_soon(callback: Callable[[], None], /) -> None:
            callback()

        def wake() -> None:
            self.woken += 1

        partition.watch(DelayedOperation(1, wake, call_soon))


def test_what_a_power_cut_took_from_the_middle_is_fetched_again(world: World) -> None:
    """The end of a segment is gone and the next one is there. Both logs have the same end and the same epochs."""
    world.write(*(b"value %d" % number for number in range(60)))
    partition = world.follow()
    world.catch_up(partition, max_bytes=700)
    segments = partition.log.segments
    assert len(segments) > 2
    path, second_base, third_base = Path(segments[1].path), segments[1].base_offset, segments[2].base_offset
    partition.log.abandon()
    data = path.read_bytes()
    path.write_bytes(data[: int.from_bytes(data[8:12], "big") + 12])
    log = world.log("follower", LoadOptions(False, second_base))
    assert (log.gap_offset, log.end_offset, log.segments[2].base_offset) == (second_base + 1, 60, third_base)
    world.write(b"one more")
    partition = world.follow(log)
    world.catch_up(partition, max_bytes=700)
    assert content(log) == content(world.leader)
    assert partition.high_watermark == 61 and log.gap_offset == NEVER


def test_it_becomes_equal_to_its_leader(world: World) -> None:
    world.write(*(b"value %d" % number for number in range(50)))
    partition = world.follow()
    world.catch_up(partition, max_bytes=700)
    assert content(partition.log) == content(world.leader)
    assert partition.log.epochs.entries() == world.leader.epochs.entries()
    assert partition.high_watermark == partition.log.replicated_offset == 50
    assert partition.lag == 0


def test_a_consumer_that_waits_here_is_woken_when_more_is_committed(world: World) -> None:
    partition = world.follow()
    waiting = Waiting(partition)
    world.write(b"a")
    world.high_watermark = 0
    world.step(partition)
    assert partition.end_offset == 1 and not waiting.woken
    assert partition.read(0, ALL, True) is None
    world.high_watermark = 1
    world.step(partition)
    assert waiting.woken == 1 and partition.read(0, ALL, True) is not None


def test_the_high_watermark_of_the_leader_counts_as_far_as_the_log_reaches(world: World) -> None:
    world.write(b"a" * 300, b"b" * 300, b"c" * 300)
    partition = world.follow()
    world.step(partition, max_bytes=400)
    assert (partition.end_offset, partition.high_watermark, partition.lag) == (1, 1, 2)


def test_a_log_that_departs_is_cut_where_it_does_and_its_high_watermark_with_it(world: World) -> None:
    log = world.log("follower")
    world.write(b"a", b"b", log=log, epoch=1)
    world.write(b"x", b"y", log=log, epoch=2)
    log.replicated_offset = 4
    world.write(b"a", b"b", epoch=1)
    world.write(b"c", epoch=3)
    world.epoch = 3
    partition = world.follow(log)
    assert partition.high_watermark == 4
    waiting = Waiting(partition)
    world.step(partition)
    assert (partition.end_offset, partition.high_watermark) == (2, 2) and waiting.woken == 1
    world.catch_up(partition)
    assert content(log) == content(world.leader)


def test_a_log_behind_the_start_of_its_leader_starts_there(world: World) -> None:
    log = world.log("follower")
    world.write(b"old", log=log)
    world.write(*(b"value %d" % number for number in range(30)))
    world.leader.delete_records_before(20)
    partition = world.follow(log)
    world.catch_up(partition)
    assert partition.log.start_offset == 20
    assert content(log) == content(world.leader)


def test_records_that_the_leader_deletes_go_here_too_also_above_the_high_watermark(world: World) -> None:
    world.write(*(b"value %d" % number for number in range(10)))
    world.high_watermark = 4
    partition = world.follow()
    world.catch_up(partition)
    waiting = Waiting(partition)
    world.high_watermark = 10
    world.leader.delete_records_before(8)
    sent = partition.next_request(NOW)
    assert isinstance(sent, Fetch)
    answer, records = world.answer(sent)
    partition.on_fetch(sent, answer._replace(high_watermark=8), records, NOW, 0)
    assert (partition.log.start_offset, partition.high_watermark) == (8, 8)
    assert waiting.woken == 1


def test_an_answer_for_another_offset_or_epoch_changes_nothing(world: World) -> None:
    world.write(b"a", b"b")
    partition = world.follow()
    sent = partition.next_request(NOW)
    assert isinstance(sent, Fetch)
    late = world.answer(sent)
    world.catch_up(partition)
    before = content(partition.log)
    assert partition.on_fetch(sent, *late, NOW, 0) == 0
    other = Fetch(partition.leader_epoch + 1, partition.end_offset, 1, 0)
    assert partition.on_fetch(other, *late, NOW, 0) == 0
    assert content(partition.log) == before and partition.high_watermark == 2


@pytest.mark.parametrize("at", [8, 20, 40])
def test_corrupt_records_are_fetched_again_after_a_pause(world: World, at: int) -> None:
    world.write(b"a", b"b")
    partition = world.follow()
    sent = partition.next_request(NOW)
    assert isinstance(sent, Fetch)
    answer, records = world.answer(sent)
    assert records is not None
    records[at] ^= 0x55
    assert partition.on_fetch(sent, answer, records, NOW, 0) == 0
    assert partition.end_offset == 0 and partition.replica.phase is FETCHING
    assert partition.next_request(NOW) is None and partition.retry_at_ms == NOW + 1000
    assert partition.next_request(NOW + 1000) == sent


def test_records_of_a_later_epoch_are_not_of_its_leader(world: World) -> None:
    partition = world.follow()
    world.write(b"a", epoch=9)
    world.step(partition)
    assert partition.end_offset == 0 and partition.retry_at_ms > NOW


def test_a_part_of_a_batch_is_no_progress(world: World) -> None:
    world.write(b"a")
    partition = world.follow()
    sent = partition.next_request(NOW)
    assert isinstance(sent, Fetch)
    answer, records = world.answer(sent)
    assert records is not None
    assert partition.on_fetch(sent, answer, records[:40], NOW, 0) == 0
    assert partition.end_offset == 0 and partition.retry_at_ms > NOW


def test_with_flush_messages_the_next_fetch_waits_for_the_disk(world: World) -> None:
    world.write(b"a", b"b")
    partition = world.follow(world.log("flushing", flush_messages=1))
    ready: list[int] = []
    partition.on_ready = lambda: ready.append(partition.end_offset)
    world.disk.waits = True
    world.step(partition)
    assert partition.end_offset == 2 and partition.next_request(NOW) is None and not ready
    world.disk.run_all()
    assert ready[-1] == 2
    sent = partition.next_request(NOW)
    assert isinstance(sent, Fetch) and sent.fetch_offset == 2


def test_what_a_flush_has_left_behind_is_flushed_before_the_first_fetch(world: World) -> None:
    """The former leader could not flush for a moment, such as for want of descriptors."""
    log = world.log("flushing", flush_messages=1)
    world.disk.waits = True
    world.write(b"a", log=log)
    world.disk.fails = True
    world.disk.run_all()
    assert (log.flusher.ack_offset, log.failure) == (0, None)
    world.disk.fails = False
    partition = world.follow(log)
    assert partition.next_request(NOW) is None
    world.disk.run_all()
    assert isinstance(partition.next_request(NOW), Fetch)


def test_a_disk_that_fails_ends_the_replica(world: World) -> None:
    world.write(b"a")
    partition = world.follow(world.log("flushing", flush_messages=1))
    world.disk.waits = True
    world.step(partition)
    world.disk.fails = True
    world.disk.run_all()
    assert partition.replica.phase is FAILED and partition.is_failed
    assert partition.next_request(1e9) is None


def test_a_log_that_takes_no_more_ends_the_replica(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(b"a")
    partition = world.follow()
    partition.log.flusher.failure = "an earlier fsync failed"
    world.step(partition)
    assert partition.is_failed and partition.end_offset == 0


def test_a_full_disk_is_asked_again_until_it_has_room(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int, data: memoryview, position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    world.write(b"a", b"b")
    partition = world.follow()
    with monkeypatch.context() as patch:
        patch.setattr(partition.log.segments[-1], "_pwrite", full)
        for now_ms in (0, 2_000):
            assert world.step(partition, now_ms=now_ms)
            assert partition.next_request(now_ms) is None and not partition.is_failed
    assert len(caplog.messages) == 1 and "no space left" in caplog.text
    world.step(partition, now_ms=4_000)
    assert partition.end_offset == 2


def test_a_leader_that_had_no_room_to_index_an_abort_can_follow(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(txn: AbortedTxn) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = world.log("follower")
    data = build_batch([NewRecord(None, b"a")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    guard = log.producers.begin_verification(1, 0, 0)
    log.append(memoryview(data), world.epoch, 1_000, transactional=True, guard=guard)
    marker = build_marker(1, 0, 0, 1_000, commit=False)
    with monkeypatch.context() as patch:
        patch.setattr("kafkalite.log.index.transaction_index.encode_entry", full)
        with pytest.raises(StorageError, match="no space left"):
            log.append(memoryview(marker), world.epoch, 1_000, trusted=True)
    world.epoch = 2
    world.write(b"a", b"b", b"c")
    world.catch_up(world.follow(log))
    assert content(log) == content(world.leader)


def test_it_begins_with_the_high_watermark_that_the_log_has_kept(world: World) -> None:
    log = world.log("follower")
    world.write(b"a", b"b", b"c", log=log)
    log.replicated_offset = 2
    assert world.follow(log).high_watermark == 2
    log.replicated_offset = NEVER  # with one replica all that was written is committed
    assert world.follow(log).high_watermark == 3


def test_a_log_without_epochs_keeps_only_what_is_committed(world: World) -> None:
    log = world.log("follower")
    world.write(b"a", b"b", b"c", log=log, epoch=-1)
    log.replicated_offset = 2
    partition = world.follow(log)
    assert (partition.end_offset, partition.high_watermark) == (2, 2)


def test_when_it_ends_consumers_that_wait_are_woken(world: World) -> None:
    partition = world.follow()
    waiting = Waiting(partition)
    partition.retire(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert waiting.woken == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 5)),
        st.tuples(st.just("fetch"), st.integers(60, 2000)),
        st.tuples(st.just("commit"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("elect"), st.integers(0, 6)),
        st.tuples(st.just("lead"), st.integers(1, 4)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_leaders_and_logs_have_been_through_the_logs_become_equal(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        world = World(Path(directory))
        partition = world.follow()
        for what, number in steps:
            log = partition.log
            if what == "write":
                before = world.high_watermark
                world.write(*(b"%d" % each for each in range(number)))
                world.high_watermark = before
            elif what == "fetch":
                world.step(partition, max_bytes=number)
            elif what == "commit":
                world.high_watermark = min(world.leader.end_offset, world.high_watermark + number)
            elif what == "delete":
                world.leader.delete_records_before(min(world.high_watermark, world.leader.start_offset + number))
            elif what == "lead":  # this broker led meanwhile, cut off from the others
                partition.retire()
                world.epoch += 1
                world.write(*(b"own %d" % each for each in range(number)), log=log, epoch=world.epoch)
                world.high_watermark = min(world.high_watermark, world.leader.end_offset)
                world.epoch += 1
                world.leader.assign_epoch(world.epoch)
                partition = world.follow(log)
            else:  # another leader, which lacks the last records of the one before
                partition.retire()
                world.epoch += 1
                world.leader.truncate_to(max(world.high_watermark, world.leader.end_offset - number))
                world.leader.assign_epoch(world.epoch)
                partition = world.follow(log)
            log = partition.log
            assert log.start_offset <= partition.high_watermark <= log.end_offset
            assert log.replicated_offset == partition.high_watermark
        world.write(b"the last one")
        world.catch_up(partition)
        assert content(partition.log) == content(world.leader)
        assert partition.log.start_offset == world.leader.start_offset
