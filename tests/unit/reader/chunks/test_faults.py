"""Corrupt batches, and files that change after planning: named exactly, or left out and reported exactly."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.reader.planning.split import ReadReport, ReadSettings
from kafkalite.record.batch import CRC_FROM, NewRecord, build_batch, compute_crc
from kafkalite.record.message_set import build_set
from tests.support.plain_rows import chunk_of

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

SKIP = ReadSettings(skip_corrupt=True)
LOSE = ReadSettings(fail_on_data_loss=False)
SMALL = ReadSettings(batch_bytes=1, skip_corrupt=True)


def part(first: int, count: int = 10, value: bytes = b"value", codec: int = 0) -> bytes:
    rows = [NewRecord(b"k%d" % i, value, (), i) for i in range(count)]
    return bytes(build_batch(rows, base_offset=first, codec=codec))


def write(path: Path, parts: list[bytes]) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def offsets(chunks: list[Any], how: ReadSettings, report: ReadReport, *names: str) -> list[int]:
    from kafkalite.reader.chunk_reader import COLUMNS, read_split

    schema = pa.schema([(name, COLUMNS[name].arrow) for name in ("offset", *(names or ("value",)))])
    return [row["offset"] for batch in read_split(chunks, schema, how, report) for row in batch.to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


@pytest.mark.parametrize("codec", range(5))
def test_a_wrong_checksum_names_file_position_and_offsets(log: Path, codec: int) -> None:
    parts = [part(10 * i, codec=codec) for i in range(4)]
    at = len(parts[0]) * 2
    data = bytearray(b"".join(parts))
    data[at + 70] ^= 1
    chunk = chunk_of(write(log, [bytes(data)]))
    expected = rf"{log}: the batch at position {at}, offsets 20 to 29, is corrupt: its checksum is wrong; .* before 20 "
    with pytest.raises(Malformed, match=expected):
        offsets([chunk], ReadSettings(), ReadReport())
    for how in (SKIP, SMALL):
        report = ReadReport()
        assert offsets([chunk], how, report) == [*range(20), *range(30, 40)]
        (loss,) = report.lost
        assert loss[:7] == ("orders", 0, str(log), at, len(parts[2]), 20, 30)
    # rows that headers alone tell need no record
    assert offsets([chunk], ReadSettings(), ReadReport(), "partition") == list(range(40))


def test_records_that_contradict_a_right_checksum(log: Path) -> None:
    parts = [part(10 * i) for i in range(5)]
    bad = bytearray(parts[2])
    bad[61] += 2
    bad[17:21] = compute_crc(bad).to_bytes(4, "big")
    empty = bytearray(parts[4])
    empty[57:61] = struct.pack(">i", -5)
    chunk = chunk_of(write(log, [*parts[:2], bytes(bad), parts[3], bytes(empty)]))
    report = ReadReport()
    assert offsets([chunk], SKIP, report) == [*range(20), *range(30, 40)]
    assert [(loss.first_offset, loss.end_offset) for loss in report.lost] == [(20, 30), (40, None)]
    assert report.lost[1].reason == "it has a negative number of records"
    report = ReadReport()
    assert offsets([chunk], SKIP, report, "partition") == list(range(40))
    assert len(report.lost) == 1


@pytest.mark.parametrize("length", [-1, 0, 20, 48, 49, 5_000, 1 << 30])
@pytest.mark.parametrize("names", [("value",), ("partition",)])
def test_a_length_that_lies(log: Path, length: int, names: tuple[str, ...]) -> None:
    parts = [part(10 * i) for i in range(80)]
    lie = bytearray(parts[3])
    lie[8:12] = struct.pack(">i", length)
    lie[30] ^= 0xFF
    chunk = chunk_of(write(log, [*parts[:3], bytes(lie), *parts[4:]]))
    with pytest.raises(Malformed, match=rf"position {len(parts[0]) * 3}\b.* is corrupt"):
        offsets([chunk], ReadSettings(), ReadReport(), *names)
    for how in (SKIP, SMALL):
        report = ReadReport()
        assert offsets([chunk], how, report, *names) == [*range(30), *range(40, 800)]
        (loss,) = report.lost
        assert (loss.position, loss.size_bytes) == (len(parts[0]) * 3, len(parts[3]))
        assert (loss.first_offset, loss.end_offset) == (30, 40)


def test_a_length_that_leads_over_whole_batches_loses_none_of_them(log: Path) -> None:
    parts = [part(10 * i) for i in range(9)]
    lie = bytearray(parts[2])
    lie[8:12] = struct.pack(">i", sum(map(len, parts[2:6])) - 12)
    chunk = chunk_of(write(log, [*parts[:2], bytes(lie), *parts[3:]]))
    report = ReadReport()
    assert offsets([chunk], SKIP, report) == [*range(20), *range(30, 90)]
    assert [loss[3:7] for loss in report.lost] == [(len(parts[0]) * 2, len(parts[2]), 20, 30)]


def test_zeros_and_noise_between_batches_and_at_the_end(log: Path) -> None:
    parts = [part(10 * i, value=bytes(range(256)) * 8) for i in range(6)]
    for noise in (bytes(5_000), os.urandom(3_000), b"\2" * 400):
        broken = [*parts[:2], noise, *parts[2:4], noise]
        report = ReadReport()
        assert offsets([chunk_of(write(log, broken))], SKIP, report) == list(range(40))
        assert [loss.size_bytes for loss in report.lost] == [len(noise), len(noise)]
        assert [(loss.first_offset, loss.end_offset) for loss in report.lost] == [(20, 20), (40, None)]


def test_a_batch_inside_a_value_is_not_taken_for_one(log: Path) -> None:
    inside = part(25) + b"something else" + part(3)
    parts = [part(0), part(10), part(20, value=inside), part(30)]
    data = bytearray(b"".join(parts))
    data[len(parts[0]) * 2 + 8 : len(parts[0]) * 2 + 12] = b"\0\0\0\0"  # so that its length leads nowhere
    report = ReadReport()
    assert offsets([chunk_of(write(log, [bytes(data)]))], SKIP, report) == [*range(20), *range(30, 40)]


def test_corrupt_messages_of_old_formats(log: Path) -> None:
    for magic in (0, 1):
        entries = [build_set([(i, 5, b"k", b"value")], magic) for i in range(5)]
        entries.append(build_set([(i, 5, b"k", b"value") for i in range(5, 9)], magic, codec=1))
        entries.append(build_set([(9, 5, b"k", b"value")], magic))
        for which, gone in ((2, [2]), (5, [5, 6, 7, 8])):
            bad = bytearray(entries[which])
            bad[-2] ^= 1
            path = write(log, [*entries[:which], bytes(bad), *entries[which + 1 :], part(10)])
            at = sum(map(len, entries[:which]))
            with pytest.raises(Malformed, match=rf"position {at}, .* is corrupt: its checksum is wrong"):
                offsets([chunk_of(path)], ReadSettings(), ReadReport())
            report = ReadReport()
            assert offsets([chunk_of(path)], SKIP, report) == [i for i in range(20) if i not in gone]
            assert report.lost[0].position == at


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_is_broken_the_rest_is_read_once_and_the_gap_is_reported(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    count = data.draw(st.integers(2, 12))
    sizes = [data.draw(st.integers(1, 9)) for _ in range(count)]
    firsts = [sum(sizes[:i]) for i in range(count)]
    parts = [part(first, size, codec=data.draw(st.sampled_from([0, 0, 1, 3]))) for first, size in
             zip(firsts, sizes, strict=True)]  # fmt: skip
    victim = data.draw(st.integers(1, count - 1))
    broken = bytearray(parts[victim])
    for _ in range(data.draw(st.integers(1, 4))):
        # the leader's epoch and the bytes of the offset that are not covered change nothing that is checked
        at = data.draw(st.integers(8, 11) | st.integers(16, len(broken) - 1))
        broken[at] ^= data.draw(st.integers(1, 255))
    is_broken = bytes(broken[CRC_FROM:]) != parts[victim][CRC_FROM:] or broken[8:21] != parts[victim][8:21]
    path = tmp_path_factory.mktemp("log") / "0.log"
    write(path, [*parts[:victim], bytes(broken), *parts[victim + 1 :]])
    report = ReadReport()
    found = offsets([chunk_of(path, end_offset=sum(sizes))], data.draw(st.sampled_from([SKIP, SMALL])), report)
    gone = range(firsts[victim], firsts[victim] + sizes[victim]) if is_broken else range(0)
    assert found == [offset for offset in range(sum(sizes)) if offset not in gone]
    assert len(report.lost) == is_broken
    for loss in report.lost:
        assert loss.first_offset == gone.start
        assert loss.end_offset in (gone.stop, None)
        assert (loss.position, loss.size_bytes) == (sum(map(len, parts[:victim])), len(broken))


# -- files that change


def test_a_file_that_is_deleted_renamed_or_replaced(log: Path) -> None:
    chunk = chunk_of(write(log, [part(0), part(10)]), start_offset=4)
    data = log.read_bytes()
    log.rename(f"{log}.deleted")
    assert offsets([chunk], ReadSettings(), ReadReport()) == list(range(4, 20))
    Path(f"{log}.deleted").unlink()
    with pytest.raises(StorageError, match=rf"{log} was deleted by retention after planning: offsets 4 to "):
        offsets([chunk], ReadSettings(), ReadReport())
    other = chunk_of(write(log.with_name("other.log"), [part(20)]))
    report = ReadReport()
    assert offsets([chunk, other], LOSE, report) == list(range(20, 30))
    assert report.lost[0][:7] == ("orders", 0, str(log), 0, len(data), 4, chunk.end_offset)
    write(log, [part(2), part(12)])
    assert offsets([chunk._replace(end_offset=20)], ReadSettings(), ReadReport()) == list(range(4, 20)), "another file"
    with pytest.raises(StorageError, match=r"was changed by compaction or recovery after planning: offsets 22 to 24"):
        offsets([chunk._replace(end_offset=25)], ReadSettings(), ReadReport())
    report = ReadReport()
    assert offsets([chunk._replace(end_offset=25)], LOSE, report) == list(range(4, 22))
    assert "was changed" in report.lost[0].reason


@pytest.mark.parametrize("how", [ReadSettings(), ReadSettings(batch_bytes=1)])
def test_a_file_that_is_cut_gives_the_whole_batches_in_front(log: Path, how: ReadSettings) -> None:
    parts = [part(10 * i, value=bytes(4000)) for i in range(10)]
    chunk = chunk_of(write(log, parts))
    os.truncate(log, len(parts[0]) * 7 + 100)
    for names in (("value",), ("partition",)):
        with pytest.raises(StorageError, match="was changed by compaction or recovery"):
            offsets([chunk], how, ReadReport(), *names)
        report = ReadReport()
        lose = ReadSettings(how.batch_bytes, fail_on_data_loss=False)
        assert offsets([chunk], lose, report, *names) == list(range(70))
        (loss,) = report.lost
        assert (loss.position, loss.size_bytes) == (len(parts[0]) * 7, len(parts[0]) * 3)
        assert (loss.first_offset, loss.end_offset) == (70, None)


def test_files_of_a_split_stay_open_once_it_is_begun(tmp_path: Path) -> None:
    from kafkalite.reader.chunk_reader import COLUMNS, read_split

    chunks = []
    for i in range(4):
        path = write(tmp_path / f"{i}.log", [part(10 * i, value=bytes(100_000))])
        chunks += [chunk_of(path)]
    schema = pa.schema([("value", COLUMNS["value"].arrow)])
    batches = read_split(chunks, schema, ReadSettings(batch_bytes=1 << 20))
    count = next(batches).num_rows
    for path in tmp_path.iterdir():
        path.unlink()
    assert count + sum(batch.num_rows for batch in batches) == 40


def test_checksums_may_be_left_unread(log: Path) -> None:
    data = bytearray(part(0))
    data[17] ^= 1
    chunk = chunk_of(write(log, [bytes(data)]))
    assert offsets([chunk], ReadSettings(check_crcs=False), ReadReport()) == list(range(10))
