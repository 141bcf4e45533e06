"""Waiting at partitions: who is woken, when, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage.files import Files
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.partition import OfflinePartition, Partition


class FakeLog:
    """A log of one segment that takes everything. `duplicate` is what it says of the next batch; `flush_fails` after
    taking it."""

    base_offset = 0
    end_offset = 0
    start_offset = 0
    duplicate = False
    flush_fails = False

    ack_offset = 0
    flushes_later = False

    def __init__(self) -> None:
        self.producers = ProducerState("", [], Files())

    @property
    def flusher(self) -> FakeLog:
        return self

    @property
    def segment_list(self) -> FakeLog:
        return self

    @property
    def active(self) -> FakeLog:
        return self

    def append(self, records: memoryview, leader_epoch: int, now_ms: int, *_: Any) -> Any:
        self.end_offset += 0 if self.duplicate else 1
        if self.flush_fails:
            raise StorageError("cannot flush")
        if not self.flushes_later:
            self.ack_offset = self.end_offset
        return self


def partition() -> Partition:
    return Partition("t", 0, FakeLog(), 5)  # type: ignore[arg-type]


def waiter(missing_bytes: int, *partitions: Partition) -> tuple[DelayedOperation, list[str], list[Callable[[], None]]]:
    woken: list[str] = []
    soon: list[Callable[[], None]] = []
    made = DelayedOperation(missing_bytes, lambda: woken.append("woken"), soon.append)
    for one in partitions:
        one.watch(made)
    return made, woken, soon


def test_a_waiter_is_woken_once_when_enough_came_from_all_its_partitions_together() -> None:
    a, b = partition(), partition()
    made, woken, soon = waiter(250, a, b)
    a.append(memoryview(bytes(100)), 0, 9)
    b.append(memoryview(bytes(100)), 0, 9)
    assert soon == []
    a.append(memoryview(bytes(100)), 0, 9)
    b.append(memoryview(bytes(100)), 0, 9)
    made.wake()
    assert woken == [] and len(soon) == 1  # not inside the append
    soon[0]()
    assert woken == ["woken"]


def test_whoever_withdrew_is_not_woken() -> None:
    one = partition()
    made, _, soon = waiter(1, one)
    made.withdraw()
    one.append(memoryview(bytes(100)), 0, 9)
    assert soon == [] and not one.delayed_operations


def test_a_duplicate_wakes_nobody() -> None:
    one = partition()
    _, _, soon = waiter(1, one)
    one.log.duplicate = True  # type: ignore[attr-defined]
    one.append(memoryview(bytes(100)), 0, 9)
    assert soon == []


def test_a_batch_whose_flush_failed_is_not_read_before_a_flush_succeeds() -> None:
    one = partition()
    log: Any = one.log
    _, _, soon = waiter(100, one)
    log.flush_fails = True
    with pytest.raises(StorageError):
        one.append(memoryview(bytes(100)), 0, 9)
    assert (one.high_watermark, log.end_offset, soon) == (0, 1, [])
    log.flush_fails = False
    log.duplicate = True
    one.append(memoryview(bytes(100)), 0, 9)
    assert (one.high_watermark, len(soon)) == (1, 1)


def test_who_waits_for_the_disk_is_told_when_it_has_the_batch() -> None:
    one = partition()
    log: Any = one.log
    told: list[object] = []
    _, _, soon = waiter(150, one)
    log.flushes_later = True
    for last_offset in range(3):
        one.append(memoryview(bytes(100)), 0, 9)
        one.when_committed(last_offset, lambda error, at=last_offset: told.append((at, error)))  # type: ignore[misc]
    assert (one.high_watermark, soon) == (0, [])
    log.ack_offset = 2
    log.on_ack(None)
    assert (one.high_watermark, told, len(soon)) == (2, [(0, None), (1, None)], 1)
    fault = StorageError("no")
    log.on_ack(fault)
    assert told[2:] == [(2, fault)]
    one.append(memoryview(bytes(100)), 0, 9)
    one.when_committed(3, told.append)
    one.retire()
    assert told[3].code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[attr-defined]


def test_a_partition_that_goes_away_wakes_everyone() -> None:
    one = partition()
    _, _, soon = waiter(1 << 40, one)
    one.retire()
    assert len(soon) == 1


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, None), (5, None), (4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_the_clients_leader_epoch_is_checked(epoch: int, code: ErrorCode | None) -> None:
    if code is None:
        partition().check_epoch(epoch)
    else:
        with pytest.raises(KafkaError) as caught:
            partition().check_epoch(epoch)
        assert caught.value.code is code


def test_an_offline_partition_refuses_every_use_and_says_why() -> None:
    partition = OfflinePartition("orders", 0, "its disk has failed", 3)
    assert (partition.topic, partition.index, partition.leader_epoch, partition.is_offline) == ("orders", 0, 3, True)
    for use in (
        lambda: partition.log,
        lambda: partition.log.start_offset,
        lambda: partition.append(memoryview(b""), 0, 9),
        lambda: partition.read(0, 1, True),
        lambda: partition.check_epoch(3),
        lambda: partition.producers.active(),
        lambda: partition.producers.begin_verification(1, 0, 0),
        lambda: partition.low_watermark,
        lambda: partition.end_offset_for_epoch(0),
    ):
        with pytest.raises(StorageError, match="orders-0 is offline: its disk has failed"):
            use()
    partition.retire()
