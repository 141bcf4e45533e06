"""The daemon as a process that can be killed at any moment, and how long each of its starts took.

After a run the time from the making of the process to its ready line is told, for starts behind a kill, and the CPU
time that the daemon itself had of it: the one depends on who else uses this machine, the other does not.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.broker_process import ServedBroker
from tests.support.wait import DEADLINE_S

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "log.retention.ms": "-1",  # the players' records are from 2023
}


class Start(NamedTuple):
    """How long it took until the ready line."""

    ready_s: float
    cpu_s: float


STARTS = pytest.StashKey[list[Start]]()


class Daemon(ServedBroker):
    """`starts` are those that found a directory which a killed daemon had left."""

    name = "the daemon"

    def __init__(self, data_dir: Path, errors: Path, starts: list[Start]) -> None:
        super().__init__(data_dir, errors, SETTINGS)
        self.starts = starts
        self.was_killed = False

    def start(self) -> None:
        began = time.monotonic()
        super().start()
        if self.was_killed:
            self.starts.append(Start(time.monotonic() - began, self.cpu_s()))

    def begin_and_die(self, after_s: float) -> bool:
        """Make the process and kill it so much later. Whether it had reported before that it was ready."""
        self.begin()
        was_ready = self.is_ready_within(after_s)
        self.kill()
        return was_ready

    def kill_later(self, after_s: float) -> None:
        """kill -9 in a while, whatever goes on then. `kill` must follow when that was noticed."""
        assert self.process is not None
        killer = threading.Timer(after_s, self.process.kill)
        killer.daemon = True
        killer.start()

    def kill(self) -> None:
        self.was_killed = True
        super().kill()

    def stop(self) -> int:
        self.was_killed = False
        return super().stop()

    def cpu_s(self) -> float:
        """CPU seconds of all threads of the process so far; 0 where the system does not say."""
        assert self.process is not None
        total_ns = 0
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # that thread has just ended
                total_ns += int(task.read_text().split()[0])
        return total_ns / 1e9


@pytest.fixture
def daemon(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Daemon]:
    if elsewhere := os.environ.get("KAFKALITE_TEST_BOOTSTRAP"):
        pytest.skip(f"kills its broker; KAFKALITE_TEST_BOOTSTRAP points at {elsewhere}, which is not ours to kill")
    starts = pytestconfig.stash.setdefault(STARTS, [])
    daemon = Daemon(tmp_path / "data", tmp_path / "stderr.txt", starts)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()


MANY = pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])


@pytest.fixture(params=[3, MANY], ids="{}-rounds".format)
def rounds(request: pytest.FixtureRequest) -> int:
    """How many times the daemon is killed."""
    return int(request.param)


@pytest.fixture
def until() -> Callable[..., None]:
    def until(done: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
        """Ask until the answer is yes. `done` is the one that waits: a client's poll, for instance."""
        clock = threading.Event()
        timer = threading.Timer(seconds, clock.set)
        timer.start()
        try:
            while not done():
                if clock.is_set():
                    pytest.fail(f"waited {seconds:g} s for {what}")
        finally:
            timer.cancel()

    return until


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line about the starts behind kills."""
    starts = config.stash.get(STARTS, [])
    if len(starts) < 2:
        return
    told = []
    for name, times in (("to ready", [s.ready_s for s in starts]), ("of that CPU", [s.cpu_s for s in starts])):
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        told.append(f"{name} p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, longest {max(times):.2f} s")
    terminalreporter.write_line(f"{len(starts)} starts behind a kill: {'; '.join(told)}")
