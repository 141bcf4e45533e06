"""Translated offsets against the two logs themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.mirror.offset_map import OffsetMap
from kafkalite.client.mirror.state_records import Run

GAPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=40)
"""Gaps before a run in both logs, and the records of the run."""


def runs_of(gaps: list[tuple[int, int, int]]) -> list[Run]:
    source = target = 0
    runs = []
    for before_source, before_target, records in gaps:
        source, target = source + before_source, target + before_target
        runs.append(Run(source, target, records))
        source, target = source + records, target + records
    return runs


@given(GAPS)
def test_a_translated_offset_is_behind_all_that_was_read_and_before_all_that_was_not(
    gaps: list[tuple[int, int, int]],
) -> None:
    runs = runs_of(gaps)
    offsets = OffsetMap()
    for run in runs:
        offsets.append(run)
    pairs = [(run.source + at, run.target + at) for run in runs for at in range(run.records)]
    for offset in range(pairs[-1][0] + 5):
        translated = offsets.translate(offset)
        read = [target for source, target in pairs if source < offset]
        unread = [target for source, target in pairs if source >= offset]
        if translated is None:
            assert offset < runs[0].source
        else:
            assert translated > max(read, default=-1)
            assert translated <= min(unread, default=pairs[-1][1] + 1)


@given(GAPS)
def test_a_map_that_forgets_runs_is_never_ahead(gaps: list[tuple[int, int, int]]) -> None:
    runs = runs_of(gaps)
    offsets = OffsetMap(runs_max=4)
    for run in runs:
        offsets.append(run)
    pairs = [(run.source + at, run.target + at) for run in runs for at in range(run.records)]
    for offset in range(pairs[-1][0] + 5):
        translated = offsets.translate(offset)
        unread = [target for source, target in pairs if source >= offset]
        assert translated is None or translated <= min(unread, default=pairs[-1][1] + 1)
    last = pairs[-1]
    assert offsets.translate(last[0] + 1) == last[1] + 1


def test_runs_without_a_gap_between_them_become_one() -> None:
    offsets = OffsetMap()
    offsets.append(Run(10, 0, 0))
    offsets.append(Run(10, 0, 5))
    offsets.append(Run(15, 5, 5))
    assert (offsets.translate(9), offsets.translate(10), offsets.translate(17), offsets.translate(99)) == (
        None,
        0,
        7,
        10,
    )


def test_a_run_of_another_log_begins_anew() -> None:
    offsets = OffsetMap()
    offsets.append(Run(10, 10, 5))
    offsets.append(Run(3, 20, 1))
    assert offsets.translate(10) == 21 and offsets.translate(2) is None
    offsets.append(Run(30, 0, 1))
    assert offsets.translate(10) is None


def test_a_map_that_is_cleared_knows_nothing() -> None:
    offsets = OffsetMap()
    offsets.append(Run(6, 7, 1))
    offsets.clear()
    assert offsets.translate(7) is None


def test_a_copy_with_the_same_offsets_is_one_run() -> None:
    offsets = OffsetMap()
    assert offsets.last is None
    end = 0
    for more in (5, 0, 100):  # gaps of the source are gaps of the copy
        offsets.append(Run(end, end, more))
        end += more
    assert offsets.last == Run(0, 0, 105)
    assert [offsets.translate(offset) for offset in (0, 7, 105, 106)] == [0, 7, 105, 105]
