"""`kafkalite console` as an operator starts it beside a broker: a process that prints its address."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

import pytest

from tests.support.broker_process import environment
from tests.support.wait import DEADLINE_S

ADDRESS = re.compile(r"(https?://127\.0\.0\.1:\d+)")


class ConsoleProcess:
    """Between `with` and its end, a console at `url`."""

    def __init__(self, bootstrap: str, room: Path, *arguments: str) -> None:
        self.url = ""
        self._said = room / "console.log"
        self._command = [sys.executable, "-m", "kafkalite", "console", "--bootstrap", bootstrap]
        self._command += ["--listen", "127.0.0.1:0", *arguments]
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> ConsoleProcess:
        with self._said.open("w") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            while not self.url:
                line = self._lines.get(timeout=DEADLINE_S)
                if line is None:
                    pytest.fail(f"the console ended: {self._said.read_text()[-4000:]}")
                if found := ADDRESS.search(line):
                    self.url = found[1]
        except queue.Empty:
            self._process.kill()
            pytest.fail(f"the console printed no address: {self._said.read_text()[-4000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert "Traceback" not in self._said.read_text(), self._said.read_text()[-4000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)
