"""The compaction bench's parts: keyed batches that stock code reads, an honest count, and one small log compacted."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from bench.beside_compaction import beside_compaction
from bench.compaction import CLEANER, Compaction, clean_end, count_in, sample
from bench.compaction_by_turns import main, parse, table
from bench.keyed_log import CODECS, KeyedLog
from bench.session import Session
from bench.startup import kafkalite_launcher, overrides, started
from bench.wire import BrokerError


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 64, 65, 700])
def test_a_stock_client_reads_keyed_batches(codec: str, size: int) -> None:
    log = KeyedLog(1500, 40, size, 100, codec)
    keys: list[int] = []
    for batch, count in log.batches():
        records = MemoryRecords(batch)
        parsed = records.next_batch()
        assert parsed.validate_crc()
        rows = list(parsed)
        assert len(rows) == count <= size
        assert [row.offset for row in rows] == list(range(count))
        assert {(len(row.key), len(row.value)) for row in rows} == {(10, 90)}
        keys += [int(row.key) for row in rows]
        assert not records.has_next()
    assert keys == log.keys().tolist()
    assert log.survivors(1500) == len(set(keys))
    assert log.survivors(1000) == len(set(keys[:1000])) + 500


def test_large_values_and_the_shortest_codec() -> None:
    sizes = {codec: sum(len(batch) for batch, _ in KeyedLog(2000, 40, 500, 1010, codec).batches()) for codec in CODECS}
    assert sizes["zstd"] < sizes["lz4"] < sizes["none"]


def test_where_a_log_is_clean(tmp_path: Path) -> None:
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert clean_end(checkpoint, "orders", 1) == -1
    checkpoint.write_text("0\n2\norders 0 7\norders 1 41\n")
    assert clean_end(checkpoint, "orders", 1) == 41
    assert clean_end(checkpoint, "orders", 2) == -1


def header(base: int, delta: int, count: int, size: int) -> bytes:
    return struct.pack(">qi11xi30xi", base, size - 12, delta, count) + bytes(size - 61)


def test_records_are_counted_by_headers_and_cut_batches_are_not() -> None:
    data = header(5, 9, 3, 80) + header(20, 0, 1, 70) + header(30, 0, 1, 90)[:-1]
    assert count_in(memoryview(data), 5) == (4, 21)
    with pytest.raises(BrokerError):
        count_in(memoryview(data[:50]), 5)


def test_a_small_log_is_compacted_and_counted() -> None:
    log = KeyedLog(20_000, 500, 100)
    with started(kafkalite_launcher(overrides(CLEANER)), settle_s=0.0) as broker:
        session = Session(broker.bootstrap, broker.process, seconds=0.2, fill_bytes=2 * 10**6)
        found = sample(session, "compact", log, 1 << 20)
        assert found.records_after == 501
        assert found.bytes_after < found.bytes_before / 10
        assert found.peak_resident_bytes >= found.peak_own_bytes > 0
        beside = beside_compaction(session, "beside-compaction-lz4", "lz4")
        assert not beside.error
        assert "produce p50" in beside.note
        assert "fetch p50" in beside.note


def test_the_table_tells_of_both_and_of_failures() -> None:
    ours, theirs = Compaction(2.0, records_after=7), Compaction(4.0, records_after=7)
    text = table({"compact-1-none": ([ours], [theirs]), "compact-2-none": ([Compaction(error="no room")], [theirs])})
    assert "| 0.50 |" in text
    assert "FAILED: no room" in text
    assert parse(["--batch", "1,2", "--codec", "lz4"]).batch == [1, 2]
    with pytest.raises(SystemExit):
        main(["--codec", "brotli"])
