"""Which neighbours become one segment."""

from __future__ import annotations

from kafkalite.cleaner.compaction.clean_log import group_segments
from kafkalite.config.settings import INT_MAX
from kafkalite.log.segment.cleaned_segment import SourceSegment


def segment(base: int, size: int = 10, *, index: int = 0, time_index: int = 0) -> SourceSegment:
    return SourceSegment(base, -1, size, index, time_index, 0)


def bases(
    *segments: SourceSegment, segment_bytes: int = 100, index_bytes: int = 100, until: int = 1000
) -> list[list[int]]:
    groups = group_segments(segments, segment_bytes, index_bytes, until)
    return [[one.base_offset for one in group] for group in groups]


def test_as_many_as_fit() -> None:
    assert bases() == []
    assert bases(segment(0, 50), segment(1, 50), segment(2, 1)) == [[0, 1], [2]]


def test_one_that_is_too_large_stays_alone() -> None:
    assert bases(segment(0, 10), segment(1, 500), segment(2, 10), segment(3, 10)) == [[0], [1], [2, 3]]


def test_indexes_have_to_fit_too() -> None:
    assert bases(segment(0, index=60), segment(1, index=60), segment(2, index=40)) == [[0], [1, 2]]
    assert bases(segment(0, time_index=60), segment(1, time_index=60)) == [[0], [1]]


def test_an_offset_must_be_sayable_from_the_first() -> None:
    far = INT_MAX
    assert bases(segment(0), segment(5), segment(far + 1), until=far + 2) == [[0, 5], [far + 1]]
    assert bases(segment(0), segment(5), segment(far), until=far + 1) == [[0, 5, far]]
    assert bases(segment(0), segment(5), until=far + 2) == [[0], [5]]


def test_an_empty_one_may_be_as_far_as_it_likes() -> None:
    assert bases(segment(0), segment(5, 0), until=1 << 40) == [[0, 5]]
