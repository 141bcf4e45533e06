"""One broker as an operator starts it, `python -m kafkalite serve`: a process that can be stopped and killed.

`local_cluster.broker_process` is the asyncio form for a supervisor; tests wait in threads.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.wait import DEADLINE_S

PACKAGE_PARENT = str(Path(importlib.util.find_spec("kafkalite").origin).parents[1])  # type: ignore[union-attr,arg-type]
READY = re.compile(r"kafkalite is ready on \S+?:(\d+)")


def environment() -> dict[str, str]:
    """Finds this package; allows bytecode files as for an installed one, which some shells forbid."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [PACKAGE_PARENT, os.environ.get("PYTHONPATH")]))}


class ServedBroker:
    """A broker on one data directory and, from its first start on, one port. Its log goes to the file `errors`."""

    name = "the broker"

    def __init__(
        self,
        data_dir: Path,
        errors: Path,
        settings: Mapping[str, str],
        *,
        within: Sequence[str] = (),
        more: Sequence[str] = (),
    ) -> None:
        """`within`: a command that runs the broker, in a place of its own; `more`: more arguments of its."""
        self.data_dir = data_dir
        self.errors = errors
        self.settings = dict(settings)
        self.port = 0
        self.within = tuple(within)
        self.more = tuple(more)
        self.process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # None: it has ended

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the process was begun and not yet ended from here."""
        return self.process is not None

    def begin(self) -> None:
        """Make the process."""
        assert self.process is None
        overrides = [part for item in self.settings.items() for part in ("--override", "=".join(item))]
        serve = ["serve", "--port", str(self.port), "--data-dir", str(self.data_dir), *overrides, *self.more]
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*self.within, sys.executable, "-m", "kafkalite", *serve],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(),
            )
        self._ports = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, args=(self.process, self._ports), daemon=True)
        self._listener.start()

    def is_ready_within(self, limit_s: float) -> bool:
        """Whether the process reports in time that it serves."""
        try:
            port = self._ports.get(timeout=limit_s)
        except queue.Empty:
            return False
        self.port = port or self.port
        return port is not None

    def await_ready(self) -> None:
        if not self.is_ready_within(DEADLINE_S):
            assert self.process is not None
            code = self.process.poll()
            self.kill()
            state = f"after {DEADLINE_S:g} s" if code is None else f"and ended with code {code}"
            pytest.fail(f"{self.name} was not ready {state}; it said: {self.said()}")

    def start(self) -> None:
        self.begin()
        self.await_ready()

    def kill(self) -> None:
        """kill -9, and not a moment to write anything down."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as an operator does it; the exit code."""
        return self._end(signal.SIGTERM)

    def said(self) -> str:
        return self.errors.read_text()[-4000:] if self.errors.exists() else ""

    def _end(self, how: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(DEADLINE_S)
            pytest.fail(f"{self.name} did not end within {DEADLINE_S:g} s of {how.name}; it said: {self.said()}")
        assert self._listener is not None and process.stdout is not None
        self._listener.join(DEADLINE_S)
        process.stdout.close()
        return code

    @staticmethod
    def _listen(process: subprocess.Popen[str], ports: queue.SimpleQueue[int | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if found := READY.match(line):
                ports.put(int(found[1]))
        ports.put(None)
