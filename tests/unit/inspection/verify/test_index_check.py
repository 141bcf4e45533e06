"""The indexes of a segment against its batches, where Kafka's own rules leave less than one entry per interval."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkalite.inspection.verify.index_check import check_indexes
from kafkalite.inspection.verify.log_history import History
from kafkalite.inspection.verify.segment_scan import Segment, scan_segment
from kafkalite.record.batch import NewRecord, build_batch

OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")


def write_segment(directory: Path, sessions: Sequence[Sequence[int]], interval_bytes: int = 4096) -> Path:
    """A segment that was opened, filled with batches of these value sizes and closed, once for each session.

    A batch gets index entries when more than `interval_bytes` were appended since the last ones or since the open; a
    close adds the latest timestamp to the time index.
    Source: org.apache.kafka.storage.internals.log.LogSegment (append, onBecomeInactiveSegment, close).
    """
    data, offsets, times = bytearray(), bytearray(), bytearray()
    offset = 0
    for values in sessions:
        unindexed_bytes = 0
        for size in values:
            batch = build_batch([NewRecord(b"k", b"v" * size, (), 1_700_000_000_000 + offset)], base_offset=offset)
            if unindexed_bytes > interval_bytes:
                offsets += OFFSET_ENTRY.pack(offset, len(data))
                times += TIME_ENTRY.pack(1_700_000_000_000 + offset, offset)
                unindexed_bytes = 0
            unindexed_bytes += len(batch)
            data += batch
            offset += 1
        entry = TIME_ENTRY.pack(1_700_000_000_000 + offset - 1, offset - 1)
        times += b"" if times.endswith(entry) else entry
    path = directory / f"{0:020d}.log"
    for suffix, content in ((".log", data), (".index", offsets), (".timeindex", times)):
        path.with_suffix(suffix).write_bytes(content)
    return path


def found_in(path: Path) -> list[str]:
    scan = scan_segment(Segment(str(path), 0, -1), History([], lambda *_: None), lambda _: None)
    names = {one.name: one.stat().st_size for one in path.parent.iterdir()}
    return [fault.what for fault in check_indexes(scan, is_last=False, names=names)]


@pytest.mark.parametrize(
    "sessions",
    [
        [[10], [10]],  # two entries in the time index and none in the offset index
        [[10, 20], [30], [40, 50, 60]],
        [[1000] * 9, [1000] * 3, [1000] * 3],
        [[9000] * 3, [9000], [9000]],  # every batch but the first of a session has entries
    ],
)
def test_a_segment_that_was_closed_again_and_again_is_right(sessions: list[list[int]], tmp_path: Path) -> None:
    assert found_in(write_segment(tmp_path, sessions)) == []


def test_whatever_the_sizes_and_the_sessions(tmp_path: Path) -> None:
    for seed in range(100):
        draw = random.Random(seed)
        sessions = [
            [draw.randrange(draw.choice((50, 500, 6000))) for _ in range(draw.randrange(1, 12))]
            for _ in range(draw.randrange(1, 6))
        ]
        path = write_segment(tmp_path, sessions, draw.choice((0, 100, 4096)))
        assert found_in(path) == [], f"seed {seed}: {sessions}"


@pytest.mark.parametrize("values", [[100] * 200, [300] * 80, [900] * 40])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_last_entries_of_the_offset_index_that_are_gone_are_missed(
    values: list[int], lost: int, tmp_path: Path
) -> None:
    path = write_segment(tmp_path, [[*values, 10, 10]])
    assert found_in(path) == []
    index = path.with_suffix(".index")
    index.write_bytes(index.read_bytes()[: -lost * OFFSET_ENTRY.size])
    assert found_in(path) == ["it ends before the time index does: its last entries are gone"]
