"""The process of an Apache Kafka that is stopped in order, or killed, as often as wanted."""

from __future__ import annotations

import subprocess

from tests.support.wait import DEADLINE_S


class KafkaProcess:
    """A subclass that starts the process sets `_process`; None while there is none."""

    _process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """As an operator does it."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(DEADLINE_S)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
