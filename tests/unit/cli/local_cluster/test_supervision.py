"""Restarts: at once after a death, later after many."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.cli.local_cluster.broker_process import ChildProcess
from kafkalite.cli.local_cluster.supervision import RESTARTS_MAX, RESTARTS_S, RestartPauses, Supervisor
from kafkalite.common.errors import ConfigError


def test_a_death_now_and_then_costs_no_pause() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(n * RESTARTS_S) for n in range(50)] == [0.0] * 50


def test_many_deaths_in_a_minute_cost_doubling_pauses() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(float(n)) for n in range(RESTARTS_MAX)] == [0.0] * RESTARTS_MAX
    assert [pauses.after_death(11.0 + n) for n in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pauses.after_death(1000.0) == 0.0
    assert pauses.after_failed_start() == 1.0


class Flickering(ChildProcess):
    """Dies as often as told, by a script of ends: None is in order."""

    name = "it"

    def __init__(self, ends: list[str | None], failing_starts: int = 0) -> None:
        super().__init__()
        self.ends = ends
        self.failing_starts = failing_starts
        self.starts = 0

    async def start(self) -> None:
        self.starts += 1
        if self.starts <= self.failing_starts:
            raise ConfigError("no port is free")

    async def ended(self) -> str | None:
        return self.ends.pop(0)


def test_a_process_is_started_again_until_it_ends_in_order(caplog: pytest.LogCaptureFixture) -> None:
    process = Flickering(["was killed", "was killed", None])
    supervisor = Supervisor(process, lambda: 0.0)
    asyncio.run(supervisor.run())
    assert (process.starts, supervisor.restarts, supervisor.is_up) == (2, 2, False)
    assert caplog.text.count("was killed; it is restarted at once") == 2
