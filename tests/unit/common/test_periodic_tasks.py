"""Functions that are called again and again, on a clock that tests turn."""

from __future__ import annotations

import pytest

from kafkalite.common.clock import PeriodicTasks
from tests.support.manual_clock import ManualClock


def test_each_runs_at_its_own_interval_until_the_stop() -> None:
    clock, runs = ManualClock(), []
    tasks = PeriodicTasks(clock)
    tasks.add("checkpoint", 100, lambda: runs.append("checkpoint"))
    tasks.add("retention", 300, lambda: runs.append("retention"), first_after_ms=50)
    tasks.add("once", 0, lambda: runs.append("once"))
    for _ in range(8):
        clock.advance(50)
    assert runs == ["once", "retention", "checkpoint", "checkpoint", "checkpoint", "retention", "checkpoint"]
    tasks.stop()
    clock.advance(1_000)
    assert len(runs) == 7


def test_one_that_fails_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, runs = ManualClock(), []

    def fail() -> None:
        runs.append(clock.monotonic_ms())
        raise OSError("the disk is full")

    PeriodicTasks(clock).add("checkpoint", 100, fail)
    clock.advance(100)
    clock.advance(100)
    assert len(runs) == 2
    assert caplog.text.count("checkpoint failed; it will be tried again in 100 ms") == 2
