"""The daemon as a process that can be killed at any moment, and how long each of its starts took.

After a run the time from the making of the process to its ready line is told, for starts behind a kill, and the CPU
time that the daemon itself had of it: the one depends on who else uses this machine, the other does not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.broker_process import end_process, put_port
from tests.support.wait import DEADLINE_S

PACKAGE_PARENT = str(Path(importlib.util.find_spec("kafkalite").origin).parents[1])  # type: ignore[union-attr,arg-type]


def environment() -> dict[str, str]:
    """Of the daemon: it finds this package, and may keep bytecode as an installed one does (some shells forbid it)."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [PACKAGE_PARENT, os.environ.get("PYTHONPATH")]))}


class Start(NamedTuple):
    """How long it took until the ready line."""

    ready_s: float
    cpu_s: float


STARTS = pytest.StashKey[list[Start]]()


class Daemon:
    """`python -m kafkalite serve` on one directory and, from its first start on, one port.

    `starts` are those that found a directory which a killed daemon had left.
    """

    def __init__(self, data_dir: Path, errors: Path, starts: list[Start]) -> None:
        self.data_dir = data_dir
        self.errors = errors
        self.starts = starts
        self.port = 0
        self.was_killed = False
        self.process: subprocess.Popen[str] | None = None
        self.listener: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the daemon says that it is ready; whatever else it prints is read away."""
        began = time.monotonic()
        ports = self.begin()
        try:
            port = ports.get(timeout=DEADLINE_S)
        except queue.Empty:
            port = None
        if port is None:
            assert self.process is not None
            code = self.process.poll()
            self.kill()
            state = f"after {DEADLINE_S:g} s" if code is None else f"and ended with code {code}"
            pytest.fail(f"the daemon was not ready {state}; it said: {self.said()}")
        if self.was_killed:
            self.starts.append(Start(time.monotonic() - began, self.cpu_s()))
        self.port = port

    def begin(self) -> queue.SimpleQueue[int | None]:
        """Make the process. Its port will be in the queue, or None when it has ended."""
        assert self.process is None
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kafkalite", "serve"),
                    *("--port", str(self.port), "--data-dir", str(self.data_dir)),
                    *("--override", "group.initial.rebalance.delay.ms=0"),
                    *("--override", "group.min.session.timeout.ms=1000"),
                    *("--override", "log.retention.ms=-1"),  # the players' records are from 2023
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(),
            )
        ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.listener = threading.Thread(target=put_port, args=(self.process, ports), daemon=True)
        self.listener.start()
        return ports

    def begin_and_die(self, after_s: float) -> bool:
        """Make the process and kill it so much later. Whether it had said before that it was ready."""
        ports = self.begin()
        try:
            ready = ports.get(timeout=after_s) is not None
        except queue.Empty:
            ready = False
        self.kill()
        return ready

    def kill_later(self, after_s: float) -> None:
        """kill -9 in a while, whatever goes on then. `kill` must follow when that was noticed."""
        assert self.process is not None
        killer = threading.Timer(after_s, self.process.kill)
        killer.daemon = True
        killer.start()

    def cpu_s(self) -> float:
        """CPU seconds of all threads of the process so far; 0 where the system does not say."""
        assert self.process is not None
        total_ns = 0
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # that thread has just ended
                total_ns += int(task.read_text().split()[0])
        return total_ns / 1e9

    def kill(self) -> None:
        """kill -9, and not a moment to write anything down."""
        self.was_killed = True
        self.end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as an operator does it; the exit code."""
        self.was_killed = False
        return self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        assert self.listener is not None
        return end_process(process, self.listener, how, self.said)

    def said(self) -> str:
        return self.errors.read_text()[-4000:]


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
