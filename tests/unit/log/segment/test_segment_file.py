"""Places in a segment: found through an index that is there, short, missing or wrong, and the same without it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkalite.common.errors import Malformed
from kafkalite.log.segment.segment_file import SegmentFile
from kafkalite.record.batch import NewRecord, build_batch, parse_header
from kafkalite.record.message_set import build_set

BATCHES = [
    *(bytes(build_set([(i, 5, b"k", b"v" * i)], 1)) for i in range(10)),
    *(bytes(build_batch([NewRecord(None, b"v" * i, (), 1)] * 3, base_offset=10 + 5 * i)) for i in range(40)),
]


def write(directory: Path, index: str) -> None:
    stem = directory / f"{0:020d}"
    stem.with_suffix(".log").write_bytes(b"".join(BATCHES))
    entries, position = [], 0
    for batch in BATCHES:
        header = parse_header(batch) if batch[16] == 2 else None
        offset = header.last_offset if header else int.from_bytes(batch[:8], "big")
        entries.append((offset, position))
        position += len(batch)
    entries = entries[3::3]
    if index == "short":
        entries = entries[:4]
    elif index == "wrong":
        entries = [(offset, position + 7) for offset, position in entries]
    if index != "missing":
        packed = b"".join(struct.pack(">ii", *entry) for entry in entries)
        stem.with_suffix(".index").write_bytes(packed + bytes(800 if index == "padded" else 0))


@pytest.mark.parametrize("index", ["whole", "padded", "short", "missing", "wrong"])
def test_places_are_the_same_with_and_without_an_index(tmp_path: Path, index: str) -> None:
    write(tmp_path, index)
    size = sum(map(len, BATCHES))
    with SegmentFile(str(tmp_path), 0) as segment:
        places = list(segment.headers(0, size))
        assert [header.size_bytes for _, header in places] == [len(batch) for batch in BATCHES]
        for offset in range(215):
            expected = next((one for one in places if one[1].last_offset >= offset), None)
            assert segment.locate(offset, size) == expected
        for position in range(0, size + 1, 11):
            expected = next((one for one in places if one[0] >= position), None)
            assert segment.batch_from(position, size) == expected
        assert segment.end() == (size, 10 + 5 * 39 + 3)
    assert list(tmp_path.glob("*.index")) or index == "missing"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_segment_of_old_messages_ends_where_they_end(tmp_path: Path, magic: int, codec: int) -> None:
    """With an index as brokers of their time have left it, whose last entry is of an old message too."""
    sets = [bytes(build_set([(2 * i + n, 5, b"k", b"v" * 9) for n in (0, 1)], magic, codec=codec)) for i in range(6)]
    stem = tmp_path / f"{0:020d}"
    stem.with_suffix(".log").write_bytes(b"".join(sets))
    entry = struct.pack(">ii", 9 if codec else 8, sum(map(len, sets[:4])))
    stem.with_suffix(".index").write_bytes(entry)
    with SegmentFile(str(tmp_path), 0) as segment:
        assert segment.end() == (sum(map(len, sets)), 12)


def test_old_messages_behind_v2_are_believed_if_they_are_right(tmp_path: Path) -> None:
    """As after message.format.version was lowered."""
    path = tmp_path / f"{0:020d}.log"
    batch = bytes(build_batch([NewRecord(None, b"v", (), 1)]))
    old = bytes(build_set([(1, 5, b"k", b"v"), (2, 5, b"k", b"v")], 1))
    path.write_bytes(batch + old)
    with SegmentFile(str(tmp_path), 0) as segment:
        assert segment.end() == (len(batch + old), 3)
    path.write_bytes(batch + old[:14] + b"?" + old[15:])
    with SegmentFile(str(tmp_path), 0) as segment, pytest.raises(Malformed, match="no v2 record batch at position"):
        segment.end()
