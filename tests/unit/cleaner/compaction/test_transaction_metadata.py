"""Transactions and producers in a cleaning: which data and markers go, and whose header stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.cleaner.job.job import LastRecord
from tests.support.cleaner.compacted_log import DAY_MS, NOW_MS, Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_aborted_data_go_and_the_marker_stays_one_pass_longer(log: Log) -> None:
    before = log.batch("a=0")
    data = log.batch("a=1", "b=1", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.segment(before, data, log.marker(5, commits=False))
    log.aborts(5, 1, 3)
    log.compact()
    assert log.offsets() == [0, 3]
    assert log.path(0, ".txnindex").stat().st_size == 34
    log.compact()  # nothing is left of its transaction now: it gets a horizon
    assert [header.has_delete_horizon for header in log.headers()] == [False, True]
    assert not log.path(0, ".txnindex").exists()
    result = log.compact(now_ms=NOW_MS + DAY_MS)
    assert log.offsets() == [0]
    assert result.stats.markers_dropped == 1


def test_committed_data_count_and_their_marker_stays_as_long_as_they_do(log: Log) -> None:
    first = log.batch("a=1", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.segment(first, log.marker(5, commits=True))
    log.segment(log.batch("b=1"))
    log.compact()
    assert log.offsets() == [0, 1, 2]
    assert not log.headers()[1].has_delete_horizon
    log.segment(log.batch("a=2"))
    log.compact(dirty=3)
    log.compact()
    assert log.offsets() == [1, 2, 3]
    assert log.headers()[0].has_delete_horizon


def test_a_transaction_that_is_aborted_in_a_later_segment(log: Log) -> None:
    """The marker may even be in a segment that is not compacted yet."""
    log.segment(
        log.batch("a=1"), log.batch("a=2", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    )
    job = log.job()
    log.segment(log.marker(5, commits=False))
    log.aborts(5, 1, 2)
    log.run(job)
    assert log.offsets() == [0, 2]


def test_the_last_batch_of_a_producer_leaves_its_header(log: Log) -> None:
    old = log.batch("a=1", "b=1", producer_id=5, producer_epoch=1, base_sequence=10)
    log.segment(old, log.batch("a=2", producer_id=5, producer_epoch=1, base_sequence=12), log.batch("a=3", "b=3"))
    log.lasts = {5: LastRecord(2, 1), 6: LastRecord(-1, 1)}
    log.compact()
    assert log.offsets() == [3, 4]
    header = log.headers()[0]
    assert (header.base_offset, header.size_bytes, header.record_count) == (2, 61, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 12)
    assert (header.base_timestamp, header.max_timestamp) == (-1, NOW_MS)
    log.lasts = {}
    log.compact()
    assert [header.base_offset for header in log.headers()] == [3]


def test_a_marker_that_is_all_that_is_known_of_a_producer_leaves_its_header(log: Log) -> None:
    log.segment(log.marker(5, commits=True, epoch=3), log.batch("a=1"))
    log.lasts = {5: LastRecord(-1, 3)}
    log.compact()
    log.compact(now_ms=NOW_MS + DAY_MS)
    header = log.headers()[0]
    assert (header.is_control, header.record_count, header.producer_epoch) == (True, 0, 3)
