"""The first record at or after a time, against a look at every record: whatever the order of timestamps, the format of
messages, and what is left of the indexes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.reader.planning.bounds import SegmentRange, earlier_up_to, first_offset_at
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.message_set import build_set

Batch = list[int]  # the timestamps of its records


def write_segment(
    directory: Path, base_offset: int, batches: list[Batch], *, magic: int, codec: int, entries_kept: int | None
) -> SegmentRange:
    """A segment with an index entry for each batch; of the time index only so many entries, then padding."""
    data, index, times = b"", b"", b""
    offset, latest = base_offset, -1
    for batch in batches:
        if magic == 2:
            rows = [NewRecord(None, b"v", (), time) for time in batch]
            written = bytes(build_batch(rows, base_offset=offset, codec=codec))
        else:
            written = build_set([(offset + i, time, None, b"v") for i, time in enumerate(batch)], magic, codec=codec)
        last = offset + len(batch) - 1
        if data:
            index += struct.pack(">ii", last - base_offset, len(data))
        if max(batch) > latest and magic > 0:
            latest = max(batch)
            times += struct.pack(">qi", latest, last - base_offset)
        data += written
        offset = last + 1
    stem = directory / f"{base_offset:020d}"
    stem.with_suffix(".log").write_bytes(data)
    stem.with_suffix(".index").write_bytes(index)
    if entries_kept is not None:
        stem.with_suffix(".timeindex").write_bytes(times[: 12 * entries_kept] + bytes(60))
    return SegmentRange(base_offset, offset, len(data))


times = st.integers(0, 12)
segments = st.tuples(
    st.lists(st.lists(times, min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([0, 1]),
    st.none() | st.integers(0, 5),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(segments, min_size=1, max_size=3), st.integers(-1, 13), st.integers(0, 30))
def test_it_is_the_first_record_that_is_not_earlier(
    tmp_path: Path, log: list[tuple[list[Batch], int, int, int | None]], timestamp_ms: int, start_offset: int
) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    ranges: list[SegmentRange] = []
    records: list[tuple[int, int]] = []
    for batches, magic, codec, entries_kept in log:
        base = ranges[-1].end_offset if ranges else 0
        ranges.append(write_segment(tmp_path, base, batches, magic=magic, codec=codec, entries_kept=entries_kept))
        every = [time if magic else -1 for batch in batches for time in batch]
        records += list(enumerate(every, base))
    expected = next((at for at, time in records if at >= start_offset and time >= timestamp_ms), None)
    assert first_offset_at(str(tmp_path), ranges, timestamp_ms, start_offset) == expected
    for one in ranges:
        bound = earlier_up_to(str(tmp_path), one, timestamp_ms)
        assert all(time < timestamp_ms for at, time in records if one.base_offset <= at < bound)


def test_a_segment_that_is_surely_earlier_is_not_opened(tmp_path: Path) -> None:
    early = write_segment(tmp_path, 0, [[1, 2], [3]], magic=2, codec=0, entries_kept=2)
    late = write_segment(tmp_path, early.end_offset, [[4], [5]], magic=2, codec=0, entries_kept=2)
    (tmp_path / f"{0:020d}.log").unlink()
    assert first_offset_at(str(tmp_path), [early, late], 4, 0) == 3
    assert first_offset_at(str(tmp_path), [early, late], 6, 0) is None
    with pytest.raises(FileNotFoundError):
        first_offset_at(str(tmp_path), [early, late], 3, 0)


def test_a_batch_that_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    one = write_segment(tmp_path, 0, [[1] * 50], magic=2, codec=1, entries_kept=1)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:70] + bytes(one.end_position - 70))
    with pytest.raises(Malformed, match=r"00000\.log: the batch at position 0 cannot be read"):
        first_offset_at(str(tmp_path), [one], 1, 0)
