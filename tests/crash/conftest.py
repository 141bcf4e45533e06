"""The daemon as a process that can be killed, and a ledger outside of it that remembers what the daemon promised."""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE_PARENT = str(Path(importlib.util.find_spec("kafkalite").origin).parents[1])  # type: ignore[union-attr,arg-type]
READY_SECONDS = 30.0
READY = re.compile(r"kafkalite is ready on \S+?:(\d+)")


class Daemon:
    """`python -m kafkalite serve` on one directory and, from its first start on, one port."""

    def __init__(self, data_dir: Path, errors: Path) -> None:
        self.data_dir = data_dir
        self.errors = errors
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.listener: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the daemon says that it is ready; whatever else it prints is read away."""
        assert self.process is None
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kafkalite", "serve"),
                    *("--port", str(self.port), "--data-dir", str(self.data_dir)),
                    *("--override", "group.initial.rebalance.delay.ms=0"),
                    *("--override", "group.min.session.timeout.ms=1000"),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([PACKAGE_PARENT, os.environ.get("PYTHONPATH", "")])},
            )
        ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.listener = threading.Thread(target=self.listen, args=(self.process, ports), daemon=True)
        self.listener.start()
        try:
            port = ports.get(timeout=READY_SECONDS)
        except queue.Empty:
            port = None
        if port is None:
            code = self.process.poll()
            self.kill()
            state = f"after {READY_SECONDS:g} s" if code is None else f"and ended with code {code}"
            pytest.fail(f"the daemon was not ready {state}; it said: {self.said()}")
        self.port = port

    @staticmethod
    def listen(process: subprocess.Popen[str], ports: queue.SimpleQueue[int | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if found := READY.match(line):
                ports.put(int(found[1]))
        ports.put(None)

    def kill(self) -> None:
        """kill -9, and not a moment to write anything down."""
        self.end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as an operator does it; the exit code."""
        return self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            pytest.fail(f"the daemon did not end within 30 s of {how.name}; it said: {self.said()}")
        assert self.listener is not None
        self.listener.join(5)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def said(self) -> str:
        return self.errors.read_text()[-4000:]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    if elsewhere := os.environ.get("KAFKALITE_TEST_BOOTSTRAP"):
        pytest.skip(f"kills its broker; KAFKALITE_TEST_BOOTSTRAP points at {elsewhere}, which is not ours to kill")
    daemon = Daemon(tmp_path / "data", tmp_path / "stderr.txt")
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
    def until(done: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
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
