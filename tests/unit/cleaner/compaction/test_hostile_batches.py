"""Batches whose checksum is right and whose content is not: told with their place or compacted, nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.record.batch import HEADER_BYTES, compute_crc
from kafkalite.record.message_set import build_set
from kafkalite.record.message_set import compute_crc as compute_old_crc
from kafkalite.record.record import read_records
from tests.support.cleaner.compacted_log import Log


def with_checksum(batch: bytearray) -> bytes:
    batch[17:21] = compute_crc(batch).to_bytes(4)
    return bytes(batch)


@pytest.mark.parametrize("dirty", [0, 300])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_bytes_that_changed_before_the_checksum_was_made(tmp_path: Path, codec: int, dirty: int) -> None:
    random = Random(codec * 1000 + dirty)
    kept = 0
    for number in range(60):
        directory = tmp_path / str(number)
        directory.mkdir()
        log = Log(directory)
        count = random.choice((1, 3, 10, 300))
        batch = bytearray(log.batch(*(f"k{random.randrange(20)}=v" for _ in range(count)), codec=codec))
        for _ in range(random.choice((1, 1, 3))):
            at = random.choice((random.randrange(21, HEADER_BYTES), random.randrange(HEADER_BYTES, len(batch))))
            batch[at] = random.choice((random.randrange(256), 0x80, 0xFF, 0, batch[at] ^ 1))
        spoiled = with_checksum(batch)
        log.segment(spoiled, log.batch("k1=2", codec=codec), base=0)
        try:
            stats = log.compact(dirty=min(dirty, count)).stats
        except CleaningFailed as failed:
            assert "00000000000000000000.log" in str(failed) or "offset" in str(failed)
            continue
        if stats.unread_batches:
            kept += 1
            assert spoiled in log.path(0).read_bytes()
            assert "00000000000000000000.log: the batch at position 0: " in stats.first_unread
    assert kept > 3


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_messages_that_changed_before_the_checksum_was_made(tmp_path: Path, magic: int, codec: int) -> None:
    random = Random(magic * 10 + codec)
    for number in range(40):
        directory = tmp_path / str(number)
        directory.mkdir()
        log = Log(directory)
        entries = bytearray(build_set([(n, 5, b"k%d" % (n % 3), b"v") for n in range(5)], magic, codec=codec))
        size = int.from_bytes(entries[8:12]) + 12
        at = random.randrange(16, size)
        entries[at] = random.choice((random.randrange(256), 0x80, 0xFF, 0))
        entries[12:16] = compute_old_crc(entries[:size]).to_bytes(4)
        log.end_offset = 5
        log.segment(bytes(entries), base=0)
        try:
            log.compact()
        except CleaningFailed as failed:
            assert "00000000000000000000.log" in str(failed) or "offset" in str(failed)


def test_a_key_that_reaches_out_of_its_record(tmp_path: Path) -> None:
    log = Log(tmp_path)
    batch = bytearray(log.batch("a=1", "b=1"))
    batch[HEADER_BYTES + 4] = 40  # the key's size
    spoiled = with_checksum(batch)
    log.segment(spoiled)
    assert "position 0: a record whose key" in log.compact().stats.first_unread
    assert log.path(0).read_bytes() == spoiled


def test_more_records_than_bytes(tmp_path: Path) -> None:
    log = Log(tmp_path)
    batch = bytearray(log.batch("a=1"))
    batch[57:61] = (1 << 30).to_bytes(4)
    spoiled = with_checksum(batch)
    log.segment(spoiled)
    assert "cannot hold" in log.compact().stats.first_unread
    assert log.path(0).read_bytes() == spoiled


@pytest.mark.parametrize("dirty", [0, 6])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("pieces", [1, 8 << 20])
def test_the_rest_of_the_log_is_compacted_around_what_cannot_be_read(
    tmp_path: Path, codec: int, dirty: int, pieces: int
) -> None:
    """Its records supersede none: the older one of its key stays."""
    log = Log(tmp_path, pieces=pieces)
    first = log.batch("a=1", "b=1", codec=codec)
    spoiled = bytearray(log.batch("a=2", "c=1", codec=codec))
    spoiled[HEADER_BYTES:] = bytes(len(spoiled) - HEADER_BYTES)
    spoiled = bytearray(with_checksum(spoiled))
    log.segment(first, bytes(spoiled), log.batch("b=2", codec=codec), log.batch("d=1", codec=codec))
    log.segment(bytes(spoiled[:0]) + log.batch("d=2", codec=codec))
    stats = log.compact(dirty=dirty).stats
    assert stats.unread_batches == 1
    assert stats.unread is not None
    assert stats.unread.startswith("1 batch is kept unread, the first: ")
    batches = [data for _, data in log.batches()]
    assert bytes(spoiled) in batches
    batches.remove(bytes(spoiled))
    kept = {(one.key, one.value) for data in batches for one in read_records(data)}
    assert {(b"a", b"1"), (b"b", b"2"), (b"d", b"2")} <= kept
    if not dirty:
        assert kept == {(b"a", b"1"), (b"b", b"2"), (b"d", b"2")}


def test_a_length_that_is_none(tmp_path: Path) -> None:
    log = Log(tmp_path)
    first, second = log.batch("a=1"), bytearray(log.batch("b=1"))
    second[8:12] = (5).to_bytes(4)
    log.segment(first, bytes(second))
    with pytest.raises(CleaningFailed, match=r"\.log"):
        log.compact()
