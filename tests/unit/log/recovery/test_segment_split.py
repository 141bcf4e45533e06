"""Segments with offsets too far apart for an index, as brokers before Kafka 1.1 left them, are split without a loss."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.cleaner.schedule import CleanerState
from kafkalite.cleaner.workers.cleaning_task import make_job
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.transaction_index import AbortedTxn, encode_entry
from kafkalite.log.recovery.log_loader import LoadedLog, LoadOptions, load
from kafkalite.log.recovery.segment_split import SegmentRebuild, find_parts, rewrite_content, was_sealed
from kafkalite.log.recovery.swap_recovery import complete_swaps
from kafkalite.log.segment.record_counting import Tally
from kafkalite.log.segment.segment import Segment
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch, compute_crc
from kafkalite.record.message_set import build_set
from tests.support.cleaner.partition_directory import bases, run
from tests.unit.log.conftest import Disk

FAR = 1 << 31
NOW_MS = 1_700_000_000_000


def batch(offset: int, *values: str, time: int = NOW_MS) -> bytes:
    records = [NewRecord(f"{offset}-{value}".encode(), value.encode(), (), time) for value in values]
    return bytes(build_batch(records, base_offset=offset))


def write(disk: Disk, *offsets: int, base: int = 0, tail: bytes = b"") -> bytes:
    """A segment with a batch of one record at each of `offsets`, without indexes that could express them."""
    data = b"".join(batch(offset, "v") for offset in offsets)
    disk.file(base).write_bytes(data + tail)
    for suffix in (".index", ".timeindex"):
        disk.file(base, suffix).touch()
    return data


def offsets(log: Any) -> list[int]:
    return [record.offset for record in log.records()]


FAR_APART = [3, 9, FAR - 1, FAR, FAR + 7, 3 * FAR, 3 * FAR + 1]
SPLIT_AT = [0, FAR, 3 * FAR]


@pytest.mark.parametrize("clean", [True, False])
def test_the_batches_go_to_segments_that_can_be_indexed(disk: Disk, clean: bool) -> None:
    data = write(disk, *FAR_APART)
    behind = write(disk, 4 * FAR, base=4 * FAR)
    modified_ns = 1_600_000_000 * 10**9
    os.utime(disk.file(0), ns=(modified_ns, modified_ns))
    log = disk.open(clean=clean, index_interval_bytes=0)
    assert offsets(log) == [*FAR_APART, 4 * FAR]
    assert log.log.lost_bytes == 0
    segments = log.log.segments
    assert [segment.base_offset for segment in segments] == [*SPLIT_AT, 4 * FAR]
    assert b"".join(disk.file(base).read_bytes() for base in SPLIT_AT) == data
    assert disk.file(4 * FAR).read_bytes() == behind
    assert {disk.file(base).stat().st_mtime_ns for base in SPLIT_AT} == {modified_ns}
    assert [segment.offset_index.last()[0] for segment in segments[:3]] == [FAR - 1, FAR + 7, 3 * FAR + 1]
    assert [segment.time_index.last()[1] for segment in segments[:3]] == [3, FAR, 3 * FAR]
    assert not [name for name in disk.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert offsets(disk.restart(log)) == [*FAR_APART, 4 * FAR]


@pytest.mark.parametrize("recovery_point", [0, FAR, 4 * FAR, 4 * FAR + 1])
def test_wherever_the_recovery_point_is_nothing_is_lost(disk: Disk, recovery_point: int) -> None:
    write(disk, *FAR_APART)
    write(disk, 4 * FAR, base=4 * FAR)
    log = disk.open(clean=False, recovery_point=recovery_point)
    assert offsets(log) == [*FAR_APART, 4 * FAR] and log.log.lost_bytes == 0
    assert [segment.base_offset for segment in log.log.segments] == [*SPLIT_AT, 4 * FAR]
    assert offsets(disk.kill(log)) == [*FAR_APART, 4 * FAR]


def test_the_last_segment_goes_on_in_its_last_part(disk: Disk) -> None:
    write(disk, 0, FAR)
    log = disk.open(clean=True)
    assert log.write("x").base_offset == FAR + 1
    assert [segment.base_offset for segment in log.log.segments] == [0, FAR]
    assert offsets(disk.kill(log)) == [0, FAR, FAR + 1]


def test_a_torn_end_is_cut_off_as_ever(disk: Disk) -> None:
    write(disk, *FAR_APART, tail=batch(3 * FAR + 2, "torn")[:-5])
    log = disk.open(clean=False)
    assert offsets(log) == FAR_APART
    assert log.log.lost_bytes == len(batch(3 * FAR + 2, "torn")) - 5


def test_a_first_batch_that_is_too_far_leaves_the_start_where_it_was(disk: Disk) -> None:
    write(disk, FAR + 5, FAR + 6)
    log = disk.open(clean=False)
    assert [(one.base_offset, bool(one.size_bytes)) for one in log.log.segments] == [(0, False), (FAR + 5, True)]
    assert log.log.start_offset == 0 and offsets(log) == [FAR + 5, FAR + 6]


def test_a_wrapper_of_old_formats_is_named_by_its_first_message(disk: Disk) -> None:
    wrapper = build_set([(FAR + 1 + number, NOW_MS, b"k", b"v") for number in range(3)], magic=1, codec=1)
    data = write(disk, 0, FAR - 1, tail=wrapper)
    log = disk.open(clean=False)
    assert [segment.base_offset for segment in log.log.segments] == [0, FAR + 1]
    assert (disk.file(0).read_bytes(), disk.file(FAR + 1).read_bytes()) == (data, wrapper)


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_implausible_is_no_distance(disk: Disk, clean: bool) -> None:
    """A flipped bit of an offset, which the checksum does not cover: what is behind goes on from before it."""
    flipped = bytearray(batch(2, "v"))
    flipped[3] ^= 1  # 1 << 32
    assert compute_crc(flipped) == compute_crc(batch(2, "v"))
    write(disk, 0, 1, tail=bytes(flipped) + batch(3, "v"))
    log = disk.open(clean=clean)
    assert [segment.base_offset for segment in log.log.segments] == [0]
    if not clean:
        assert offsets(log) == [0, 1]


def test_an_offset_of_the_next_segment_is_no_distance_either(disk: Disk) -> None:
    write(disk, 0, FAR + 9)
    write(disk, FAR + 5, base=FAR + 5)
    segment = Segment(str(disk.directory), 0, disk.file(0).stat().st_size, TopicConfig(), 0, Files())
    assert find_parts(segment, FAR + 5) == [] != find_parts(segment, FAR + 10)
    segment.abandon()


def test_aborted_transactions_go_with_their_markers(disk: Disk) -> None:
    write(disk, *FAR_APART)
    found = [AbortedTxn(7, 3, 9, 3), AbortedTxn(8, 3, FAR, 3), AbortedTxn(7, FAR, 3 * FAR + 1, FAR)]
    disk.file(0, ".txnindex").write_bytes(b"".join(map(encode_entry, found)))
    log = disk.open(clean=True)
    assert [segment.txn_index.all() for segment in log.log.segments] == [[txn] for txn in found]


def test_without_room_it_is_served_as_it_is(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(disk, *FAR_APART)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Files, "write_range", refuse)
    for clean in (True, False):
        log = disk.open(clean=clean)
        assert offsets(log) == FAR_APART and disk.file(0).read_bytes() == data
        assert log.write("x").base_offset == log.log.end_offset - 1 == 3 * FAR + 2
        assert log.log.segments[-1].base_offset == 3 * FAR + 2
        log.log.abandon()
        disk.file(3 * FAR + 2).unlink()
        assert not [name for name in disk.names() if name.endswith((".cleaned", ".swap"))]


def test_a_split_that_kafka_did_not_complete(tmp_path: Path) -> None:
    """Kafka names the first part by its first batch, so the source begins before all parts."""
    first, second = batch(5, "a"), batch(FAR + 9, "b")
    for name, data in {
        f"{0:020d}.log": first + second, f"{0:020d}.index": b"", f"{5:020d}.log.swap": first,
        f"{FAR + 9:020d}.log.swap": second, f"{4 * FAR:020d}.log": batch(4 * FAR, "c"),
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(data)
    complete_swaps(str(tmp_path), [path.name for path in tmp_path.glob("*.swap")], Files())
    assert bases(tmp_path) == [5, FAR + 9, 4 * FAR]


@pytest.mark.parametrize("splits", [True, False])
def test_after_a_clean_stop_it_can_be_cleaned(disk: Disk, monkeypatch: pytest.MonkeyPatch, splits: bool) -> None:
    """Also where the start had no room to split it: the cleaner begins a further segment."""
    keys = [b"a", b"b", b"a", b"b", b"a"]
    places = [0, 5, FAR - 1, FAR + 7, 3 * FAR]
    records = [NewRecord(key, b"%d" % at, (), NOW_MS) for key, at in zip(keys, places, strict=True)]
    write(
        disk, tail=b"".join(bytes(build_batch([one], base_offset=at)) for one, at in zip(records, places, strict=True))
    )
    write(disk, 4 * FAR, base=4 * FAR)
    if not splits:
        monkeypatch.setattr("kafkalite.log.recovery.log_recovery.split", lambda *_: None)
    log = disk.open(clean=True, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    plan = CleanerState(log.log).make_plan(None, NOW_MS)
    run(make_job(log.log, plan, BrokerConfig(), NOW_MS))
    log.log.abandon()
    assert offsets(disk.open(clean=True)) == [FAR + 7, 3 * FAR, 4 * FAR]


SPANS = st.lists(st.sampled_from((1, 2, 40, FAR - 3, FAR - 1, FAR, FAR + 1, 5 * FAR)), min_size=1, max_size=8)


@given(spans=SPANS, records=st.integers(1, 3), cut=st.integers(0, 30), clean=st.booleans())
def test_whatever_the_distances_no_batch_is_lost(
    tmp_path_factory: pytest.TempPathFactory, spans: Sequence[int], records: int, cut: int, clean: bool
) -> None:
    directory = tmp_path_factory.mktemp("t") / "t-0"
    directory.mkdir()
    offset, data, ends = 0, b"", [0]
    for span in spans:
        offset += span
        data += batch(offset, *"abc"[:records])
        offset += records - 1
        ends.append(len(data))
    whole = data[: ends[-2]] + data[ends[-2] : len(data) - (0 if clean else cut)]
    (directory / f"{0:020d}.log").write_bytes(whole)
    (directory / f"{0:020d}.index").touch()
    (directory / f"{0:020d}.timeindex").touch()
    loaded: LoadedLog = load(str(directory), TopicConfig(), LoadOptions(clean), NOW_MS, Files(), EXPIRATION_MS)
    kept = whole if clean or not cut else data[: ends[-2]]
    assert b"".join(Path(segment.path).read_bytes() for segment in loaded.segments) == kept
    assert loaded.lost_bytes == len(whole) - len(kept)
    for segment in loaded.segments:
        assert segment.next_offset() - 1 - segment.base_offset < FAR
        segment.abandon()


def test_a_rebuild_gives_the_indexes_and_the_count_of_an_append(disk: Disk) -> None:
    log = disk.open(index_interval_bytes=0)
    for number in range(4):
        log.write(f"a{number}", f"b{number}")
    log.log.close()
    segment = log.log.segments[0]
    reopened = disk.open(index_interval_bytes=0).log.segments[0]
    offsets, times = reopened.offset_index.all(), reopened.time_index.all()
    rebuild = SegmentRebuild(reopened)
    for position, header, _ in list(reopened.iter_batches()):
        rebuild.add(position, header)
    rebuild.finish(segment.size_bytes)
    assert (reopened.offset_index.all(), reopened.time_index.all()) == (offsets, times)
    assert reopened.tally.counted == Tally(8, 0) and not reopened.tally.uncounted_bytes
    assert was_sealed(reopened)


def test_a_cut_behind_the_added_batches_leaves_the_count_unknown(disk: Disk) -> None:
    log = disk.open()
    log.write("a")
    size_bytes = log.log.size_bytes
    log.write("b")
    log.log.close()
    segment = disk.open().log.segments[0]
    rebuild = SegmentRebuild(segment)
    for position, header, _ in list(segment.iter_batches()):
        rebuild.add(position, header)
    rebuild.finish(size_bytes)
    assert (segment.size_bytes, segment.tally.uncounted_bytes, segment.tally.counted) == (
        size_bytes,
        size_bytes,
        Tally(0, 0),
    )


def test_rewriting_changes_no_byte(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"some bytes")
    rewrite_content(disk.files, str(path), 4)
    assert path.read_bytes() == b"some bytes"
