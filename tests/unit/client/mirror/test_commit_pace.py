"""The moments at which a mirror commits."""

from __future__ import annotations

import pytest

from kafkalite.client.mirror.copier import CommitPace

LARGE = 1000


@pytest.fixture
def pace() -> CommitPace:
    """Its last commit began at 100 s and took 3 ms."""
    pace = CommitPace(0.02, LARGE, 0.0)
    pace.on_committed(100.0, 100.003)
    return pace


def test_a_record_after_a_quiet_while_does_not_wait(pace: CommitPace) -> None:
    assert pace.left_s(100.5, 10, True) == 0


def test_no_more_than_half_of_the_time_is_spent_on_commits(pace: CommitPace) -> None:
    assert pace.left_s(100.003, 10, True) == pytest.approx(0.003)
    pace.on_committed(101.0, 105.0)  # the target is slow: a record waits for an interval at most
    assert pace.left_s(105.0, 10, True) == pytest.approx(0.02)


def test_a_quick_target_gets_a_transaction_each_tenth_of_the_interval(pace: CommitPace) -> None:
    pace.on_committed(101.0, 101.0001)
    assert pace.left_s(101.0001, 10, True) == pytest.approx(0.002)


def test_an_interval_is_between_two_commits_of_a_mirror_that_is_behind(pace: CommitPace) -> None:
    pace.is_behind = True
    assert pace.left_s(100.003, 10, True) == pytest.approx(0.02)
    assert pace.left_s(100.003, LARGE, True) == 0
    pace.on_committed(100.02, 100.023)
    assert not pace.is_behind


def test_progress_without_records_is_committed_each_second(pace: CommitPace) -> None:
    assert pace.left_s(100.003, 0, False) == pytest.approx(1.0)
