"""The table of states, and totals."""

from __future__ import annotations

import pytest

from kafkalite.cleaner.job.job import CleanStats
from kafkalite.cleaner.status import (
    CLEANING,
    ENTERED_FROM,
    FLUSHING,
    IDLE,
    QUEUED,
    UNCLEANABLE,
    CleanerTotals,
    CleaningState,
)
from tests.support.cleaner.cleaner_scene import Scene


def test_every_state_can_be_entered_and_left() -> None:
    assert set(ENTERED_FROM) == set(CleaningState)
    assert set().union(*ENTERED_FROM.values()) == set(CleaningState)
    assert all(state not in before for state, before in ENTERED_FROM.items())


def test_an_uncleanable_log_is_neither_flushed_nor_cleaned_unless_it_is_queued_again() -> None:
    assert UNCLEANABLE not in ENTERED_FROM[FLUSHING] | ENTERED_FROM[CLEANING]
    assert UNCLEANABLE in ENTERED_FROM[QUEUED] & ENTERED_FROM[IDLE]


def test_a_state_that_the_table_does_not_allow_is_a_bug(scene: Scene) -> None:
    state = scene.cleaner._states.of(scene.make())
    state.enter(QUEUED)
    state.enter(CLEANING)
    with pytest.raises(AssertionError, match=r"CLEANING -> .*FLUSHING"):
        state.enter(FLUSHING)


def test_totals_add_up_and_show_the_last_cleaning() -> None:
    first = CleanStats(bytes_read=100, bytes_kept=50, records_read=10, records_kept=5, seconds=2, map_utilization=0.5)
    totals = CleanerTotals(worker_deaths=3).after(first).after(CleanStats(bytes_read=10, bytes_kept=1, seconds=1))
    assert (totals.runs, totals.bytes_read, totals.bytes_kept) == (2, 110, 51)
    assert (totals.records_read, totals.records_kept, totals.worker_deaths) == (10, 5, 3)
    assert (totals.recopy_ratio, totals.max_clean_seconds, totals.max_buffer_utilization) == (0.1, 1, 0.0)
