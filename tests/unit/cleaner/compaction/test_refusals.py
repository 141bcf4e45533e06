"""Logs that a cleaning refuses, and header fields that it does not trust: offsets, checksums, transaction indexes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from kafkalite.cleaner.compaction import decompressed_batches
from kafkalite.cleaner.compaction.transaction_metadata import TransactionMetadata, read_aborted
from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.log.storage.files import Files
from kafkalite.record.message_set import build_set
from tests.support.cleaner.compacted_log import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def at(log: Log, base_offset: int, *pairs: str) -> bytes:
    log.end_offset = base_offset
    return log.batch(*pairs)


@pytest.mark.parametrize("dirty", [0, 30])
@pytest.mark.parametrize("pieces", [1, 8 << 20])
@pytest.mark.parametrize("second", [10, 11, 5])
def test_offsets_that_go_back_inside_a_segment(log: Log, second: int, pieces: int, dirty: int) -> None:
    """Which value is the last one? In one order a=1, in the other a=2."""
    log.pieces = pieces
    log.segment(at(log, 10, "a=1", "a=3"), at(log, second, "a=2"), base=0)
    log.segment(at(log, 30, "c=1"))
    before = log.batches()
    with pytest.raises(CleaningFailed, match="not behind those before"):
        log.compact(dirty=dirty)
    assert log.batches() == before


def test_old_messages_whose_offsets_go_back(log: Log) -> None:
    log.segment(build_set([(5, 1, b"a", b"1")], 1) + build_set([(4, 1, b"a", b"2")], 1), base=0)
    log.end_offset = 6
    with pytest.raises(CleaningFailed, match="not behind those before"):
        log.compact()


def test_a_batch_of_the_clean_range_whose_header_says_that_it_is_empty(log: Log) -> None:
    """Its checksum tells, though none of its records would be looked at."""
    rotten = bytearray(log.batch("a=1"))
    rotten[57:61] = bytes(4)
    log.segment(bytes(rotten))
    log.segment(log.batch("b=1"))
    with pytest.raises(CleaningFailed, match="checksum"):
        log.compact(dirty=1)


def test_an_aborted_transaction_without_a_marker_ends_where_the_index_says(log: Log) -> None:
    """Later commits of its producer stay."""
    how: dict[str, int | bool] = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    log.segment(log.batch("a=1", **how), log.batch("x=1"), log.batch("b=1", **how), log.marker(5, commits=True))
    log.aborts(5, 0, 1)
    log.compact()
    assert log.offsets() == [1, 2, 3]


def test_a_transaction_behind_one_without_a_marker(log: Log) -> None:
    how: dict[str, int | bool] = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    log.segment(log.batch("a=1", **how), log.batch("x=1"), log.batch("b=1", **how), log.marker(5, commits=False))
    log.aborts(5, 0, 1)
    log.aborts(5, 2, 3)
    log.compact()
    assert log.offsets() == [1, 3]


def test_many_aborted_transactions_take_little_memory(log: Log) -> None:
    log.segment(log.batch("a=1"))
    entry = np.dtype([("version", ">i2"), ("producer", ">i8"), ("first", ">i8"), ("last", ">i8"), ("stable", ">i8")])
    entries = np.zeros(100_000, entry)
    entries["first"] = np.arange(100_000)[::-1]
    entries["last"] = entries["first"] + 1
    log.path(0, ".txnindex").write_bytes(entries.tobytes() + b"torn")
    tracemalloc.start()
    try:
        aborted = read_aborted(Files(), str(log.directory))
        TransactionMetadata(aborted)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(aborted) == 100_000
    assert aborted["first_offset"][:3].tolist() == [0, 1, 2]
    assert peak_bytes < 5 * entries.nbytes


def test_more_records_in_a_batch_than_there_is_memory_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompressed_batches, "RECORDS_MAX", 3)
    log.segment(log.batch("a=1", "b=1", "c=1"), log.batch("a=1", "b=1", "c=1", "d=1", codec=4))
    with pytest.raises(CleaningFailed, match="holds 4 records"):
        log.compact()
