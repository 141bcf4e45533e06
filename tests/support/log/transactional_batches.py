"""Batches and markers of transactions, appended to a log."""

from __future__ import annotations

from kafkalite.log.partition.partition_log import AppendResult
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.transaction_marker import build_marker
from tests.unit.log.conftest import START_MS, Log


def send(
    log: Log, producer: int, *values: str, epoch: int = 0, size: int = 1, leader_epoch: int = 0
) -> AppendResult:  # fmt: skip
    """A transactional batch in sequence, verified if it opens the transaction."""
    producers = log.log.producers
    known = producers.get(producer)
    sequence = known.last_sequence + 1 if known is not None and known.epoch == epoch else 0
    records = [NewRecord(None, value.encode() * size, (), START_MS) for value in values]
    batch = build_batch(
        records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )  # fmt: skip
    guard = producers.begin_verification(producer, epoch, sequence)
    return log.log.append(memoryview(batch), leader_epoch, log.clock.wall_ms(), transactional=True, guard=guard)


def end(
    log: Log, producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, leader_epoch: int = 0
) -> AppendResult:  # fmt: skip
    now_ms = log.clock.wall_ms()
    batch = build_marker(producer, epoch, coordinator_epoch, now_ms, commit=commit)
    return log.log.append(memoryview(batch), leader_epoch, now_ms, trusted=True)
