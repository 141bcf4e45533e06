"""Indexes and counts that are made again from the batches of a segment."""

from __future__ import annotations

from pathlib import Path

from kafkalite.log.recovery.segment_split import SegmentRebuild, rewrite_content, was_sealed
from kafkalite.log.segment.record_counting import Tally
from tests.unit.log.conftest import Disk


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
