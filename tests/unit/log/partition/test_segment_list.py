"""The list of segments: look-up by offset, rolling, and removal that never leaves a gap."""

from __future__ import annotations

import errno
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import StorageError
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.retention_policy import Reason
from kafkalite.log.storage.file_names import DELETED
from kafkalite.log.storage.files import Done, Job
from kafkalite.record.batch import iter_batches, parse_header

if TYPE_CHECKING:
    from ..conftest import Disk, Log

SEGMENT_BYTES = 150  # two records


def six_segments(disk: Disk) -> Log:
    log = disk.open(segment_bytes=SEGMENT_BYTES)
    for offset in range(12):
        log.write(str(offset))
    assert log.log.segment_list.bases == [0, 2, 4, 6, 8, 10]
    return log


def sizes_add_up(log: Log) -> bool:
    listed = log.log.segment_list
    return (
        listed.size_bytes == sum(segment.size_bytes for segment in listed.segments)
        and listed.bases == [segment.base_offset for segment in listed.segments]
        and listed.active is listed.segments[-1]
    )


def test_an_offset_belongs_to_the_last_segment_that_begins_at_or_before_it(disk: Disk) -> None:
    listed = six_segments(disk).log.segment_list
    assert [listed.index_of(offset) for offset in (0, 1, 2, 3, 9, 10, 11, 12, 1000)] == [0, 0, 1, 1, 4, 5, 5, 5, 5]
    listed.remove_first(2)
    assert listed.index_of(0) == 0, "an offset before the first segment belongs to the first one"


def test_a_roll_seals_the_old_segment_and_leaves_iterations_alone(disk: Disk) -> None:
    log = six_segments(disk)
    listed = log.log.segment_list
    before, old = listed.segments, listed.active
    new = listed.roll(12, disk.clock.wall_ms())
    assert listed.active is new and new.base_offset == 12 and listed.bases[-1] == 12
    assert listed.segments == (*before, new) and len(before) == 6
    assert old.fd == -1 and sizes_add_up(log)


def test_batches_go_on_in_the_segments_that_replace_those_being_read(disk: Disk) -> None:
    listed = six_segments(disk).log.segment_list
    found = []
    for batch in listed.batches(3, 11):
        found.append(parse_header(batch).base_offset)
        if found == [3]:
            listed.remove(listed.segments[2:4][::-1])
    assert found == [3, 8, 9, 10]


@pytest.mark.parametrize("piece_bytes", [1, 100, 1 << 20])
def test_pieces_hold_the_same_batches(disk: Disk, piece_bytes: int) -> None:
    listed = six_segments(disk).log.segment_list
    for first, end in ((0, 12), (3, 11), (11, 12), (5, 6)):
        pieces = list(listed.pieces(first, end, piece_bytes))
        assert b"".join(pieces) == b"".join(listed.batches(first, end))
        assert piece_bytes > 1 or len(pieces) == end - first


def test_pieces_go_on_in_the_segments_that_replace_those_being_read(disk: Disk) -> None:
    listed = six_segments(disk).log.segment_list
    found = []
    for piece in listed.pieces(2, 11, 1 << 20):
        found += [header.base_offset for header, _ in iter_batches(piece)]
        if found == [2, 3]:
            listed.remove(listed.segments[2:4][::-1])
    assert found == [2, 3, 8, 9, 10]


def test_pieces_end_before_a_batch_that_is_none(disk: Disk) -> None:
    listed = six_segments(disk).log.segment_list
    with open(listed.segments[1].path, "r+b") as file:
        file.seek(listed.segments[1].size_bytes // 2 + 8)
        file.write(bytes(4))
    pieces = listed.pieces(0, 12, 1 << 20)
    assert [header.base_offset for _ in range(2) for header, _ in iter_batches(next(pieces))] == [0, 1, 2]
    with pytest.raises(StorageError):
        next(pieces)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=st.lists(st.tuples(st.sampled_from(["append", "roll", "first", "cut"]), st.integers(0, 7)), max_size=12))
def test_whatever_is_done_the_list_equals_its_segments(new_disk, deeds: list[tuple[str, int]]) -> None:
    disk = new_disk()
    log = disk.open(segment_bytes=SEGMENT_BYTES)
    listed = log.log.segment_list
    for deed, count in deeds:
        if deed == "append":
            log.write(*"abc"[: count % 3 + 1])
        elif deed == "roll" and listed.active.size_bytes:
            listed.roll(log.log.end_offset, disk.clock.wall_ms())
        elif deed == "first":
            listed.remove_first(min(count, len(listed.segments) - 1))
        elif deed == "cut":
            log.log.truncate_to(max(listed.bases[0], log.log.end_offset - count))
        assert sizes_add_up(log)
        assert all(a < b for a, b in pairwise(listed.bases))
        for offset in range(log.log.end_offset + 1):
            assert listed.index_of(offset) == max(0, bisect_right(listed.bases, offset) - 1)


class TestRemoval:
    def test_files_are_renamed_at_once_and_unlinked_after_the_delay(self, disk: Disk) -> None:
        log = disk.open(segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=1000)
        for offset in range(6):
            log.write(str(offset))
        assert log.log.segment_list.remove_first(2) == 2
        assert not disk.file(0).exists() and disk.file(0, f".log{DELETED}").exists()
        disk.clock.advance(999)
        assert disk.file(2, f".log{DELETED}").exists()
        disk.clock.advance(1)
        assert not [name for name in disk.names() if name.endswith(DELETED)]

    def test_waits_until_the_next_segment_is_named_on_the_disk(self, disk: Disk) -> None:
        jobs: list[tuple[Job, Done]] = []
        disk.services = LogContext(disk.clock, lambda: lambda job, done: jobs.append((job, done)), disk.files)
        log = six_segments(disk)
        listed = log.log.segment_list
        log.log.flusher.named_point = 4
        assert listed.remove_first(4) == 2 and listed.bases[0] == 4
        assert listed.waits_for_disk
        for job, done in jobs:
            job()
            done(None)
        assert listed.remove_first(2) == 2 and listed.bases[0] == 8
        assert not listed.waits_for_disk

    def test_stops_at_the_segments_that_a_replacement_needs(self, disk: Disk) -> None:
        listed = six_segments(disk).log.segment_list
        listed.pinned_from = lambda: 4
        assert listed.remove_first(5) == 2
        assert listed.bases == [4, 6, 8, 10] and listed.waits_for_disk

    def test_that_fails_in_the_middle_removes_the_segments_before(
        self, disk: Disk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = six_segments(disk)
        rename = disk.files.rename

        def fails_at_four(path: str, to: str) -> None:
            if path == str(disk.file(4)):
                raise OSError(errno.EIO, "Input/output error")
            rename(path, to)

        monkeypatch.setattr(disk.files, "rename", fails_at_four, raising=False)
        with pytest.raises(OSError):
            log.log.segment_list.remove_first(4)
        assert log.log.segment_list.bases == [4, 6, 8, 10] and sizes_add_up(log)

    def test_of_everything_rolls_first_so_that_the_end_offset_stays(self, disk: Disk) -> None:
        log = six_segments(disk)
        disk.settings["retention_ms"] = 0
        log.log.segment_list.configure(disk.config)
        disk.clock.advance(1)
        reasons, fault = log.log.segment_list.remove_old(0, 12, 12, disk.clock.wall_ms(), most=10)
        assert (reasons, fault) == ([Reason.TIME] * 6, None)
        assert log.log.segment_list.bases == [12] and log.log.segment_list.size_bytes == 0


class TestCut:
    @pytest.mark.parametrize(("offset", "bases"), [(12, [0, 2, 4, 6, 8, 10]), (7, [0, 2, 4, 6]), (6, [0, 2, 4, 6])])
    def test_removes_whole_segments_and_truncates_the_last(self, disk: Disk, offset: int, bases: list[int]) -> None:
        log = six_segments(disk)
        log.log.segment_list.cut(offset)
        assert log.log.segment_list.bases == bases and sizes_add_up(log)
        assert log.log.segment_list.active.next_offset() == offset

    @pytest.mark.parametrize("offset", [1, 6, 7, 10, 500])
    def test_a_restart_leaves_one_empty_segment(self, disk: Disk, offset: int) -> None:
        log = six_segments(disk)
        log.log.segment_list.remove_first(3)
        log.log.segment_list.restart(offset)
        assert log.log.segment_list.bases == [offset] and sizes_add_up(log) and not log.log.size_bytes

    def test_into_a_gap_of_compaction_is_secured_by_the_name_of_a_new_segment(self, disk: Disk) -> None:
        log = six_segments(disk)
        listed = log.log.segment_list
        listed.remove(listed.segments[4:2:-1])  # offsets 6 to 9
        listed.cut(8)
        listed.secure_end(8)
        assert listed.bases == [0, 2, 4, 8] and listed.active.size_bytes == 0
