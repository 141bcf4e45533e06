"""Waiting at partitions: who is woken, when, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.errors import ErrorCode, KafkaError, StorageError
from kafkalite.partition import Partition, Waiter


class FakeLog:
    """A log that takes everything. `duplicate` is what it says of the next batch; `flush_fails` after taking it."""

    end_offset = 0
    start_offset = 0
    duplicate = False
    flush_fails = False

    def append(self, records: memoryview, leader_epoch: int, now_ms: int, **_: Any) -> Any:
        self.end_offset += 0 if self.duplicate else 1
        if self.flush_fails:
            raise StorageError("cannot flush")
        return self


def partition() -> Partition:
    return Partition("t", 0, FakeLog(), 5)  # type: ignore[arg-type]


def waiter(missing_bytes: int, *partitions: Partition) -> tuple[Waiter, list[str], list[Callable[[], None]]]:
    woken: list[str] = []
    soon: list[Callable[[], None]] = []
    made = Waiter(missing_bytes, lambda: woken.append("woken"), soon.append)
    for one in partitions:
        made.wait_on(one)
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
    assert soon == [] and not one.waiters


def test_a_duplicate_wakes_nobody() -> None:
    one = partition()
    _, _, soon = waiter(1, one)
    one.log.duplicate = True  # type: ignore[attr-defined]
    one.append(memoryview(bytes(100)), 0, 9)
    assert soon == []


def test_a_batch_whose_flush_failed_is_in_the_log_and_wakes_who_waits_for_it() -> None:
    one = partition()
    _, _, soon = waiter(100, one)
    one.log.flush_fails = True  # type: ignore[misc]
    with pytest.raises(StorageError):
        one.append(memoryview(bytes(100)), 0, 9)
    assert one.high_watermark == one.log.end_offset == 1
    assert len(soon) == 1
    one.log.duplicate = True  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        one.append(memoryview(bytes(100)), 0, 9)
    assert one.high_watermark == 1


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
