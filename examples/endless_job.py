"""A job of `spark_jobs` with --every, as a process of its own that runs until it is stopped.

    with endless_job("load", "--data-dir", ..., "--every", "1s") as job:
        for line in job.commits():       # "load: version 12 of /lake/orders: 5,000 rows in 1.2 s, 0 offsets behind"
            ...

It is stopped as systemd would stop it, by SIGTERM, and ends after a commit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

PATIENCE_S = 120


class EndlessJob:
    """A job that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: list[str] = []

    def commits(self) -> Iterator[str]:
        """The line of each commit as it comes. Raises SystemExit with the job's last words if it ends."""
        for line in self._lines():
            if "rows in" in line:
                yield line
        raise SystemExit("the job has ended: " + " / ".join(self._said[-5:]))

    def stop(self) -> str:
        """SIGTERM; returns the last line."""
        self._process.terminate()
        self._said += self._lines()
        if self._process.wait() != 0:
            raise SystemExit("the job has failed: " + " / ".join(self._said[-5:]))
        return self._said[-1]

    def _lines(self) -> Iterator[str]:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.rstrip())
            yield self._said[-1]


@contextlib.contextmanager
def endless_job(name: str, *words: str) -> Iterator[EndlessJob]:
    """`python -m spark_jobs.NAME WORDS` until the block is left; killed if the block takes longer than PATIENCE_S."""
    root = str(Path(__file__).resolve().parent.parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell",
    }
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", f"spark_jobs.{name}", "--master", "local[2]", *words],
        env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    watchdog = threading.Timer(PATIENCE_S, _kill, [process])
    watchdog.start()
    try:
        yield EndlessJob(process)
    finally:
        watchdog.cancel()
        _kill(process)
        process.wait()


def _kill(process: subprocess.Popen[str]) -> None:
    """The job, its JVM, and the JVM's Python workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
