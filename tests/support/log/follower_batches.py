"""Batches as a leader has them, and a log that follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.record.batch import NewRecord, build_batch

if TYPE_CHECKING:
    from tests.unit.log.conftest import Log

T0 = 1_700_000_000_000


def batch(base: int, *values: str, epoch: int = 0, timestamp: int = T0, **more: int) -> bytes:
    records = [NewRecord(value.encode(), value.encode(), (), timestamp) for value in values]
    return bytes(build_batch(records, base_offset=base, leader_epoch=epoch, **more))


def follow(log: Log, *batches: bytes, leader_epoch: int = 99) -> int:
    return log.log.append_as_follower(memoryview(b"".join(batches)), log.clock.wall_ms(), leader_epoch)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.log.segments]
