"""Records are committed when the disk has them, as far as flush.messages asks: the log with a disk that takes its time.

The hand that flushes is the test's: a job lies there until it is done, and then its end is told.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.files import Done, Job, SyncFailed
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.partition import Partition

if TYPE_CHECKING:
    from .conftest import Disk


class SlowDisk:
    """A partition whose log has flush.messages (1 unless it is said), and the flushes that wait to be done."""

    def __init__(self, disk: Any, **settings: object) -> None:
        self.jobs: list[tuple[Job, Done]] = []
        files = disk.files
        disk.services = LogContext(disk.clock, lambda: lambda job, done: self.jobs.append((job, done)), files)
        self.log: PartitionLog = disk.open(**{"flush_messages": 1, **settings}).log
        self.partition = Partition("orders", 0, self.log, 0)
        self.told: list[tuple[int, int | None]] = []
        self.synced: list[str] = []
        fsync = files.sync_open

        def sync_open(fd: int, path: str) -> None:
            if path.endswith(".log"):
                self.synced.append(path)
            fsync(fd, path)

        files.sync_open = sync_open

    def append(self, **how: Any) -> int:
        """One record by a producer who waits if need be; its offset."""
        records = build_batch([NewRecord(None, b"value", timestamp=1)], **how)
        result = self.partition.append(memoryview(records), 1, 9)
        if result.last_offset >= self.partition.high_watermark:
            self.partition.when_committed(result.last_offset, self._teller(result.last_offset))
        return result.last_offset

    def _teller(self, offset: int) -> Callable[[KafkaError | None], None]:
        return lambda error: self.told.append((offset, None if error is None else error.code))

    def flush(self, error: Exception | None = None) -> None:
        """The oldest flush comes to its end."""
        job, done = self.jobs.pop(0)
        if error is None:
            job()
        done(error)

    def offsets(self) -> tuple[int, int]:
        return self.partition.high_watermark, self.log.end_offset


@pytest.fixture
def slow(disk: Disk) -> SlowDisk:
    return SlowDisk(disk)


def fault(number: int = errno.EIO) -> SyncFailed:
    return SyncFailed(number, "the disk is broken", "somewhere")


def test_a_record_is_committed_by_the_flush_that_takes_it_along(slow: SlowDisk) -> None:
    slow.append()
    assert slow.offsets() == (0, 1) and slow.partition.read(0, 1000, True) is None
    slow.append()  # the flush under way may have passed it
    slow.flush()
    assert (slow.offsets(), slow.told) == ((1, 2), [(0, None)])
    slow.flush()
    assert (slow.offsets(), slow.told, slow.jobs) == ((2, 2), [(0, None), (1, None)], [])


def test_all_that_came_during_a_flush_goes_with_the_next_one(slow: SlowDisk) -> None:
    for _ in range(51):
        slow.append()
    assert len(slow.jobs) == 1
    slow.flush()
    slow.flush()
    assert (slow.offsets(), len(slow.told), slow.jobs, len(slow.synced)) == ((51, 51), 51, [], 2)


def test_only_every_so_many_records_wait(disk: Disk) -> None:
    slow = SlowDisk(disk, flush_messages=3)
    slow.append()
    slow.append()
    assert (slow.offsets(), slow.jobs) == ((2, 2), [])
    slow.append()
    slow.append()
    assert slow.offsets() == (2, 4) and len(slow.jobs) == 1
    slow.flush()  # and the one behind it is the first of the next three
    assert (slow.offsets(), slow.told, slow.jobs) == ((4, 4), [(2, None), (3, None)], [])


def test_an_fsync_that_fails_is_the_end_of_the_log(slow: SlowDisk) -> None:
    slow.append()
    slow.append()
    slow.flush(fault())
    code = ErrorCode.KAFKA_STORAGE_ERROR
    assert (slow.offsets(), slow.told, slow.jobs) == ((0, 2), [(0, code), (1, code)], [])
    with pytest.raises(StorageError, match="takes no more records"):
        slow.append()
    assert slow.offsets() == (0, 2)


def test_a_rolled_segment_that_cannot_be_flushed_is_the_end_too(disk: Disk) -> None:
    slow = SlowDisk(disk, flush_messages=1 << 40, segment_bytes=100)
    slow.append()
    slow.append()
    slow.flush(fault())
    with pytest.raises(StorageError, match="takes no more records"):
        slow.append()
    assert slow.offsets() == (2, 2)


def test_what_was_acknowledged_is_known_to_a_log_that_failed(slow: SlowDisk) -> None:
    first = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    second = {**first, "base_sequence": 1}
    slow.append(**first)
    slow.flush()
    slow.append(**second)
    slow.flush(fault())
    assert slow.append(**first) == 0  # it was told so before
    with pytest.raises(StorageError):
        slow.append(**second)


def test_a_flush_that_could_not_begin_is_healed_by_the_next(slow: SlowDisk) -> None:
    slow.append()
    slow.flush(OSError(errno.EMFILE, "too many"))
    assert (slow.offsets(), slow.told) == ((0, 1), [(0, ErrorCode.KAFKA_STORAGE_ERROR)])
    slow.append()
    slow.flush()
    assert (slow.offsets(), slow.told[1:]) == ((2, 2), [(1, None)])


def test_a_batch_that_comes_again_during_its_flush_waits_for_it(slow: SlowDisk) -> None:
    known = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert slow.append(**known) == slow.append(**known) == 0
    assert slow.offsets() == (0, 1)
    slow.flush()
    assert (slow.told, slow.jobs) == ([(0, None), (0, None)], [])


def test_a_batch_that_comes_again_after_a_flush_that_could_not_begin_has_another_begun(slow: SlowDisk) -> None:
    known = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    slow.append(**known)
    slow.flush(OSError(errno.EMFILE, "too many"))
    slow.append(**known)
    slow.flush()
    assert (slow.offsets(), slow.told[1:]) == ((1, 1), [(0, None)])


def test_what_is_cut_off_during_its_flush_was_never_committed(slow: SlowDisk) -> None:
    slow.append()
    slow.append()
    slow.flush()
    slow.append()
    slow.log.truncate_to(1)
    not_here = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (slow.offsets(), slow.told) == ((1, 1), [(0, None), (1, not_here), (2, not_here)])
    for _ in range(3):
        slow.append()
    slow.flush()  # the one that was under way: of the new records it says nothing
    assert (slow.offsets(), len(slow.told)) == ((1, 4), 3)
    slow.flush()
    assert (slow.offsets(), slow.told[3:]) == ((4, 4), [(1, None), (2, None), (3, None)])


def test_a_cut_to_the_middle_leaves_those_before_it_waiting(slow: SlowDisk) -> None:
    for _ in range(3):
        slow.append()
    slow.log.truncate_to(2)
    assert slow.told == [(2, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    while slow.jobs:
        slow.flush()
    assert (slow.offsets(), sorted(slow.told[1:])) == ((2, 2), [(0, None), (1, None)])


def test_a_flush_here_and_now_answers_those_who_wait(slow: SlowDisk) -> None:
    slow.append()
    slow.log.flusher.flush()
    assert (slow.offsets(), slow.told) == ((1, 1), [(0, None)])
    slow.flush()
    assert (slow.offsets(), slow.jobs) == ((1, 1), [])


def test_a_partition_that_goes_away_tells_those_who_wait(slow: SlowDisk) -> None:
    slow.append()
    slow.partition.retire()
    slow.log.abandon()
    assert slow.told == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    slow.flush()
    assert len(slow.told) == 1


def test_who_waits_for_bytes_hears_of_those_that_can_be_read(slow: SlowDisk) -> None:
    known = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    size = len(build_batch([NewRecord(None, b"value", timestamp=1)]))
    woken: list[Callable[[], None]] = []
    waiter = DelayedOperation(size + 1, lambda: None, woken.append)
    slow.partition.watch(waiter)
    slow.append(**known)
    slow.append(**known)  # a duplicate
    slow.append()
    with pytest.raises(KafkaError):
        slow.partition.append(memoryview(bytearray(70)), 1, 9)  # nothing
    slow.flush()
    assert (waiter.missing_bytes, woken) == (1, [])
    slow.flush()
    assert len(woken) == 1


def test_the_policy_may_change_during_a_flush(slow: SlowDisk, disk: Disk) -> None:
    slow.append()
    disk.settings["flush_messages"] = 1 << 40
    slow.log.config = disk.config
    slow.append()
    assert slow.offsets() == (2, 2)  # whoever waits no more commits what was before it
    slow.flush()
    assert (slow.told, slow.jobs) == ([(0, None)], [])


def test_nobody_is_forgotten_when_the_log_is_cut_and_the_policy_changes_too(slow: SlowDisk, disk: Disk) -> None:
    for _ in range(4):
        slow.append()
    slow.flush()
    slow.log.truncate_to(2)
    disk.settings["flush_messages"] = 1 << 40
    slow.log.config = disk.config
    slow.flush()
    assert slow.offsets() == (2, 2)
    assert sorted(slow.told) == [(0, None), (1, None), *((at, ErrorCode.NOT_LEADER_OR_FOLLOWER) for at in (2, 3))]


def test_flush_ms_flushes_by_another_hand_and_nobody_waits(disk: Disk) -> None:
    slow = SlowDisk(disk, flush_messages=1 << 40, flush_ms=1000)
    slow.append()
    slow.log.flusher.flush_if_due(disk.clock.wall_ms() + 999)
    assert not slow.jobs
    disk.clock.advance(1000)
    slow.log.flusher.flush_if_due(disk.clock.wall_ms())
    slow.append()
    assert slow.offsets() == (2, 2) and len(slow.jobs) == 1
    slow.flush()
    assert slow.log.flusher.recovery_point == 1
    slow.log.flusher.flush_if_due(disk.clock.wall_ms() + 999)
    assert not slow.jobs
