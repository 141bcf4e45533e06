"""The three index files: bytes on disk, look-ups against a plain list, and a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.log.index import sparse_index
from kafkalite.log.index.sparse_index import OffsetIndex, TimeIndex
from kafkalite.log.index.transaction_index import AbortedTxn, TransactionIndex
from kafkalite.log.storage.files import Files


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000001000")


def test_offset_index_bytes(path: str) -> None:
    index = OffsetIndex(path, 1000, 4096 * 3 + 5, Files())
    index.open_writable()
    assert os.path.getsize(path) == 4096 * 3, "preallocated, rounded down to whole entries"
    assert os.stat(path).st_blocks <= 8, "and sparse"
    index.append(1005, 4200)
    index.append(1009, 8500)
    index.trim()
    assert Path(path).read_bytes() == bytes.fromhex("00000005 00001068 00000009 00002134")
    again = OffsetIndex(path, 1000, 4096, Files())
    assert again.all() == [(1005, 4200), (1009, 8500)]
    assert [again.position_of(o) for o in (1000, 1004, 1005, 1008, 1009, 2000)] == [0, 0, 4200, 4200, 8500, 8500]


def test_time_index_bytes(path: str) -> None:
    index = TimeIndex(path, 1000, 100, Files())
    index.open_writable()
    assert os.path.getsize(path) == 96
    index.append(1_700_000_000_000, 1005)
    index.append(1_700_000_000_500, 1009)
    index.trim()
    assert Path(path).read_bytes() == bytes.fromhex("0000018bcfe56800 00000005 0000018bcfe569f4 00000009")
    again = TimeIndex(path, 1000, 100, Files())
    assert again.last() == (1_700_000_000_500, 1009)
    times = (0, 1_700_000_000_000, 1_700_000_000_499, 1_700_000_000_500)
    assert [again.offset_before(t) for t in times] == [1000, 1005, 1005, 1009]


def test_txn_index_bytes(path: str) -> None:
    index = TransactionIndex(path, 0, Files())
    assert index.overlapping(0, 100) == ([], False)
    assert not os.path.exists(path), "made when first needed"
    first, second = AbortedTxn(7, 10, 15, 12), AbortedTxn(8, 12, 20, 21)
    index.append(first)
    index.append(second)
    assert Path(path).read_bytes() == bytes.fromhex(
        "0000 0000000000000007 000000000000000a 000000000000000f 000000000000000c"
        "0000 0000000000000008 000000000000000c 0000000000000014 0000000000000015"
    )
    again = TransactionIndex(path, 0, Files())
    assert again.overlapping(0, 12) == ([first], True)
    assert again.overlapping(16, 100) == ([second], False)
    again.keep_before(20)
    assert again.all() == [first]
    assert os.path.getsize(path) == 34


def test_zeros_that_a_crash_left_are_padding(path: str) -> None:
    entries = bytes.fromhex("00000005 00001068 00000009 00002134")
    Path(path).write_bytes(entries + bytes(8 * 500) + b"\0\0\0")
    index = OffsetIndex(path, 1000, 8 * 600, Files())
    assert index.all() == [(1005, 4200), (1009, 8500)]
    Path(path).write_bytes(bytes(4096))
    assert OffsetIndex(path, 1000, 4096, Files()).position_of(5000) == 0


def test_a_lost_index_is_an_empty_one(path: str) -> None:
    assert OffsetIndex(path, 0, 4096, Files()).position_of(7) == 0
    assert TimeIndex(path, 0, 4096, Files()).last() == (-1, 0)


def test_the_disk_is_asked_for_a_page_before_the_map_is_written(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    index = OffsetIndex(path, 0, 3 * sparse_index.mmap.PAGESIZE, Files())
    index.open_writable()
    per_page = sparse_index.mmap.PAGESIZE // 8
    for i in range(per_page):
        index.append(i + 1, i * 100 + 1)
    monkeypatch.setattr(Files, "pwrite", staticmethod(full))
    with pytest.raises(OSError, match="No space"):
        index.append(per_page + 1, 7)
    assert index.entries == per_page
    monkeypatch.undo()
    index.append(per_page + 1, 7)
    index.trim()
    assert OffsetIndex(path, 0, 4096, Files()).all()[-2:] == [(per_page, (per_page - 1) * 100 + 1), (per_page + 1, 7)]


def test_an_index_goes_on_after_it_was_released(path: str) -> None:
    index = TimeIndex(path, 0, 1200, Files())
    index.open_writable()
    index.append(10, 1)
    index.release()
    assert index.offset_before(10) == 1
    index.open_writable()
    index.append(20, 2)
    assert index.all() == [(10, 1), (20, 2)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60), st.data())
def test_lookups_equal_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "00000000000000000100.index")
    index = OffsetIndex(path, 100, 4096, Files())
    index.open_writable()
    entries = []
    offset, position = 100, 0
    for d_offset, d_position in steps:
        offset, position = offset + d_offset, position + d_position
        index.append(offset, position)
        entries.append((offset, position))
    for target in data.draw(st.lists(st.integers(100, offset + 10), max_size=10)):
        assert index.position_of(target) == max((p for o, p in entries if o <= target), default=0)
    cut = data.draw(st.integers(100, offset + 10))
    index.keep_before(cut)
    assert index.all() == [(o, p) for o, p in entries if o < cut]
    assert os.path.getsize(path) == 8 * index.entries


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(0, 3)), max_size=200),
    ranges=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), min_size=1, max_size=20),
    cut=st.integers(0, 400),
)
def test_aborted_transactions_are_those_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int, int]], ranges: list[tuple[int, int]], cut: int
) -> None:
    path = str(tmp_path_factory.mktemp("txnindex") / "0")
    index = TransactionIndex(path, 0, Files())
    written: list[AbortedTxn] = []
    marker = 0
    for gap, back, stable_back in gaps:
        marker += gap
        first = max(0, marker - back)
        written.append(AbortedTxn(len(written), first, marker, max(first, marker + 1 - stable_back)))
        index.append(written[-1])

    def plainly(offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        found = []
        for txn in written:
            if txn.last_offset >= offset and txn.first_offset < upper_bound:
                found.append(txn)
            if txn.last_offset >= offset and txn.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    for again in (index, TransactionIndex(path, 0, Files())):
        assert again.last_offset == (written[-1].last_offset if written else -1)
        for offset, length in ranges:
            assert again.overlapping(offset, offset + length) == plainly(offset, offset + length)
    index.keep_before(cut)
    written = [txn for txn in written if txn.last_offset < cut]
    assert index.all() == TransactionIndex(path, 0, Files()).all() == written
    index.append(AbortedTxn(9, 500, 501, 502))
    assert index.all() == [*written, AbortedTxn(9, 500, 501, 502)]


def test_a_torn_entry_does_not_count_and_is_overwritten(path: str) -> None:
    index = TransactionIndex(path, 0, Files())
    first, second = AbortedTxn(1, 2, 3, 4), AbortedTxn(5, 6, 7, 8)
    index.append(first)
    with open(path, "ab") as file:
        file.write(b"torn")
    again = TransactionIndex(path, 0, Files())
    assert (again.entries, again.last_offset) == (1, 3)
    again.append(second)
    assert TransactionIndex(path, 0, Files()).all() == [first, second]


def test_offsets_from_a_position_on(path: str) -> None:
    index = OffsetIndex(path, 1000, 4096, Files())
    index.open_writable()
    assert index.offset_from(0) is None
    index.append(1005, 4200)
    index.append(1009, 8500)
    assert [index.offset_from(at) for at in (0, 4200, 4201, 8500, 8501)] == [1005, 1005, 1009, 1009, None]
