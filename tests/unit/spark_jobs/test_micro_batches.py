"""Jobs without end: when they run, what they do about faults, how they end, what they report."""

from __future__ import annotations

import argparse
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from kafkalite.common.errors import ConfigError
from spark_jobs.micro_batches import (
    MicroBatches,
    Round,
    Schedule,
    add_schedule,
    ended_by_signals,
    parse_schedule,
    run_micro_batches,
    served_metrics,
)


class World:
    """Time that passes only in waits and in micro-batches."""

    def __init__(self, *steps: Callable[[], Round] | Round | Exception, batch_ms: int = 200) -> None:
        self.now_ms = 0
        self.began: list[int] = []
        self.maintained: list[tuple[int, int]] = []
        self._steps = list(steps)
        self._batch_ms = batch_ms
        self.batches = MicroBatches("load", self.step, self.maintain, self.wait, lambda: self.now_ms)

    def step(self) -> Round:
        self.began.append(self.now_ms)
        self.now_ms += self._batch_ms
        step = self._steps.pop(0)
        if not self._steps:
            self.batches.stop()
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step

    def maintain(self, retain_ms: int) -> None:
        self.maintained.append((self.now_ms, retain_ms))

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


NOTHING = Round(None, 0, 0)
SCHEDULE = Schedule(1000, 0, 7, None)


def test_a_micro_batch_begins_at_each_interval_and_at_once_after_a_long_one() -> None:
    world = World(NOTHING, NOTHING, NOTHING)
    world.batches.run(SCHEDULE)
    assert world.began == [0, 1000, 2000]
    world = World(NOTHING, NOTHING, NOTHING, batch_ms=1500)
    world.batches.run(SCHEDULE)
    assert world.began == [0, 1500, 3000]


def test_maintenance_has_a_time_of_its_own() -> None:
    world = World(*[NOTHING] * 6)
    world.batches.run(SCHEDULE._replace(maintain_ms=2000))
    assert world.maintained == [(2200, 7), (4200, 7)]


def test_the_first_fault_ends_the_job_and_a_later_one_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    world = World(ConfigError("no such topic"), NOTHING)
    with pytest.raises(ConfigError, match="no such topic"):
        world.batches.run(SCHEDULE)
    world = World(Round("run 1", 5, 2), ConfigError("another writer"))
    world.batches.run(SCHEDULE)
    assert world.batches.last_fault == "another writer"
    assert "load: run 1: 5 rows in 0.2 s, 2 offsets behind" in capsys.readouterr().err
    text = "".join(world.batches.metrics().pieces())
    for line in ("rows_total 5", "batches_total 1", "failures_total 1", "lag_offsets 2", "batch_seconds 0.2"):
        assert f"kafkalite_job_{line}\n" in text


def test_sigterm_ends_it_after_the_micro_batch(capsys: pytest.CaptureFixture[str]) -> None:
    def killed() -> Round:
        os.kill(os.getpid(), signal.SIGTERM)
        return Round("run 1", 5, 0)

    before = signal.getsignal(signal.SIGTERM)
    world = World(killed, NOTHING)
    run_micro_batches(world.batches, SCHEDULE)
    assert world.began == [0] and signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "load: run 1: 5 rows in 0.2 s, 0 offsets behind",
        "load: ended after a commit",
    ]


def test_a_stop_ends_a_wait() -> None:
    batches = MicroBatches("load", lambda: batches.stop() or NOTHING, lambda _: None)
    with ended_by_signals(batches):
        batches.run(Schedule(3_600_000, 0, 0, None))


def test_the_endpoint_serves_metrics_and_the_last_fault() -> None:
    world = World(NOTHING)
    with served_metrics(world.batches, ("127.0.0.1", 0)) as where:
        with urllib.request.urlopen(f"http://{where}/metrics") as response:
            assert b"# TYPE kafkalite_job_rows_total counter" in response.read()
        with urllib.request.urlopen(f"http://{where}/health") as response:
            assert response.read() == b"ok\n"
        world.batches.last_fault = "another writer"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://{where}/health")
        with (
            pytest.raises(ConfigError, match="cannot be bound"),
            served_metrics(world.batches, ("127.0.0.1", int(where.rpartition(":")[2]))),
        ):
            pass


def test_times_and_addresses_are_parsed() -> None:
    parser = argparse.ArgumentParser()
    add_schedule(parser)
    assert parse_schedule(parser.parse_args([])) is None
    words = ["--every", "1m", "--maintain-every", "0s", "--metrics", "[::1]:9404"]
    assert parse_schedule(parser.parse_args(words)) == Schedule(60_000, 0, 7 * 86_400_000, ("::1", 9404))
    for wrong in (["--every", "soon"], ["--every", "1m", "--metrics", "9404"]):
        with pytest.raises(ConfigError):
            parse_schedule(parser.parse_args(wrong))
