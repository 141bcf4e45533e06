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


class Stoppable(Flickering):
    """Ends in order when it is stopped."""

    def __init__(self) -> None:
        super().__init__([])
        self.stops: asyncio.Queue[None] = asyncio.Queue()

    async def ended(self) -> None:
        await self.stops.get()

    async def stop(self) -> None:
        self.stops.put_nowait(None)


def test_a_process_that_is_stopped_for_a_restart_serves_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        supervisor = Supervisor(process := Stoppable())
        running = asyncio.ensure_future(supervisor.run())
        for count in (1, 2):
            await supervisor.restart()
            assert (process.starts, supervisor.restarts, supervisor.is_up) == (count, count, True)
        await process.stop()
        await running
        assert (process.starts, supervisor.is_up) == (2, False), "a stop without a restart is one"
        await supervisor.restart()

    asyncio.run(story())
    assert caplog.text == "", "nothing went wrong"


def test_a_process_is_started_again_until_it_ends_in_order(caplog: pytest.LogCaptureFixture) -> None:
    process = Flickering(["was killed", "was killed", None])
    supervisor = Supervisor(process, lambda: 0.0)
    asyncio.run(supervisor.run())
    assert (process.starts, supervisor.restarts, supervisor.is_up) == (2, 2, False)
    assert caplog.text.count("was killed; it is restarted at once") == 2
