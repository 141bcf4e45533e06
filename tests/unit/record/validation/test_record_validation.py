"""Records are checked and packed anew in two ways, a few of them by a loop and many as columns, with one result."""

from __future__ import annotations

import tracemalloc

import pytest

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import NewRecord, build_batch, compute_crc, parse_header
from kafkalite.record.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from kafkalite.record.record import RECORDS_MAX, read_records
from kafkalite.record.validation import record_validation
from kafkalite.record.validation.record_validation import FAULTS_MAX, find_faults, repack

NOW_MS = 1_700_000_000_000
CODECS = pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
BOTH_WAYS = pytest.mark.parametrize("columns_min", [0, 1 << 30], ids=["columns", "loop"])


@pytest.fixture(autouse=True)
def way(columns_min: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "COLUMNS_MIN", columns_min)


def some(count: int) -> list[NewRecord]:
    """Every third without a key, every fifth from long ago, every seventh without a time."""
    return [
        NewRecord(
            None if i % 3 == 0 else b"k%d" % i,
            b"v" * (i % 50),
            (("h", b"x"),) * (i % 2),
            -1 if i % 7 == 0 else NOW_MS - (1000 if i % 5 == 0 else 0),
        )
        for i in range(count)
    ]


@CODECS
@BOTH_WAYS
@pytest.mark.parametrize("count", [1, 2, 300])
def test_missing_keys_and_old_records_are_found(codec: int, count: int, columns_min: int) -> None:
    records = some(count)
    batch = memoryview(build_batch(records, codec=codec))
    no_keys = [i for i in range(count) if records[i].key is None]
    old = [(i, NOW_MS - 1000) for i in range(count) if i % 5 == 0 and i % 7]
    assert find_faults(batch, keys_required=False, earliest_ms=NOW_MS - 10) == ([], old)
    keyed = [one for one in old if one[0] not in no_keys]
    assert find_faults(batch, keys_required=True, earliest_ms=NOW_MS - 10) == (no_keys, keyed)
    assert find_faults(batch, keys_required=True, earliest_ms=-(1 << 63)) == (no_keys, [])


@CODECS
@BOTH_WAYS
@pytest.mark.parametrize("to", [GZIP, SNAPPY, LZ4, ZSTD, 0])
def test_what_is_packed_anew_holds_the_same(codec: int, to: int, columns_min: int) -> None:
    batch = memoryview(build_batch(some(300), codec=codec, producer_id=5, producer_epoch=1, base_sequence=9))
    out = repack(batch, to, None)
    assert read_records(out) == read_records(batch)
    old, new = parse_header(batch), parse_header(out)
    assert new.codec == to and new.crc == compute_crc(out) and new.size_bytes == len(out)
    for name in (
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
        "last_offset_delta",
        "max_timestamp",
    ):
        assert getattr(new, name) == getattr(old, name)


@BOTH_WAYS
def test_offsets_with_gaps_are_counted_anew(columns_min: int) -> None:
    batch = memoryview(build_batch(some(4), offset_deltas=[0, 2, 3, 9], last_offset_delta=3))
    assert [record.offset for record in read_records(repack(batch, ZSTD, None))] == [0, 1, 2, 3]


@pytest.mark.parametrize("columns_min", [0])
def test_too_many_records_to_be_numbered_anew_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "MISNUMBERED_MAX", 4)
    assert repack(memoryview(build_batch(some(5))), ZSTD, None)
    gaps = memoryview(build_batch(some(5), offset_deltas=[0, 0, 0, 0, 0], last_offset_delta=4))
    with pytest.raises(Malformed, match="5 records whose offsets"):
        repack(gaps, ZSTD, None)


@BOTH_WAYS
def test_a_batch_of_too_many_records_is_malformed(columns_min: int) -> None:
    batch = bytearray(build_batch([NewRecord(b"", None)] * 10, codec=GZIP))
    batch[57:61] = (RECORDS_MAX + 1).to_bytes(4, "big")
    for work in (lambda: repack(memoryview(batch), ZSTD, None), lambda: find_faults(memoryview(batch), **ANYTHING)):
        with pytest.raises(Malformed, match="more than"):
            work()


ANYTHING = {"keys_required": True, "earliest_ms": 0}


@pytest.mark.parametrize("columns_min", [1000])
def test_a_quarter_of_a_million_records_in_some_hundred_bytes_take_little(columns_min: int) -> None:
    bomb = memoryview(build_batch([NewRecord(None, None)] * RECORDS_MAX, codec=ZSTD))
    assert len(bomb) < 200_000
    find_faults(memoryview(build_batch([NewRecord(None, None)] * 1001)), **ANYTHING)  # so that imports do not count
    tracemalloc.start()
    try:
        assert len(find_faults(bomb, **ANYTHING).without_key) == FAULTS_MAX
        repack(bomb, GZIP, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
