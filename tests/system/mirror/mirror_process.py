"""`kafkalite mirror` as a process that can be killed at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.broker_process import environment
from tests.support.wait import DEADLINE_S

QUICK = ("--refresh-interval", "0.5", "--groups-interval", "0.3", "--timeout", "20", "--session-timeout", "10")


class MirrorProcess:
    """One process, which may be begun again after its end. Its log is the file `errors`."""

    def __init__(self, west: str, east: str, instance: str, errors: Path, more: Sequence[str] = QUICK) -> None:
        self.errors = errors
        self._command = [
            *(sys.executable, "-m", "kafkalite", "mirror"),
            *("--from", f"west={west}", "--to", east, "--to-alias", "east", "--instance", instance, *more),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        assert self._process is None
        with self.errors.open("a") as errors:
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=errors, env=environment())

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def said(self) -> str:
        return self.errors.read_text()[-4000:] if self.errors.exists() else ""

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        return process.wait(DEADLINE_S)
