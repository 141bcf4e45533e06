"""Jobs as processes of their own that are killed, with Spark's JVM, at a random moment after a line of theirs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.places import ROOT

LIMIT_S = 240.0
SPARK_STARTS = "Setting Spark log level"  # the session is about to be there
# a JVM for small queries: it starts in half the time
_SUBMIT = (
    "--driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1' --conf spark.ui.enabled=false "
    "--conf spark.sql.shuffle.partitions=2 pyspark-shell"
)


class Ended(NamedTuple):
    """`returncode` is -9 if it was killed; `working_s` is the time from the line on."""

    returncode: int
    output: str
    working_s: float


def run(
    module: str,
    arguments: Sequence[object],
    place: Path,
    kill_after_s: float | None = None,
    line_begins: str | tuple[str, ...] = SPARK_STARTS,
) -> Ended:
    """Run a module in the directory `place`; kill all of its processes `kill_after_s` after a line that begins so."""
    process = start(module, arguments, place)
    assert process.stdout is not None
    watchdog = threading.Timer(LIMIT_S, kill, [process])
    watchdog.start()
    lines = []
    began = time.monotonic()
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith(line_begins):
                began = time.monotonic()
                if kill_after_s is not None:
                    killer = threading.Timer(kill_after_s, kill, [process])
                    killer.start()
        process.wait()
    finally:
        watchdog.cancel()
        kill(process)
    return Ended(process.wait(), "".join(lines), time.monotonic() - began)


def start(module: str, arguments: Sequence[object], place: Path) -> subprocess.Popen[str]:
    """A module in the directory `place`, with its messages on stdout."""
    command = [sys.executable, "-u", "-m", module, "--master", "local[2]", *map(str, arguments)]
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": _SUBMIT,
        "SPARK_LOCAL_DIRS": str(place / "spark"),
    }  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place, env=environment,
        start_new_session=True,
    )  # fmt: skip


def kill(process: subprocess.Popen[str]) -> None:
    """The job, its JVM and the JVM's Python workers: one process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def moments(working_s: float, count: int, seed: int) -> list[float]:
    """Times to kill at: over the whole run, and half of them in its last part, where it commits."""
    chance = random.Random(seed)
    return [chance.uniform(0.6 if at % 2 else 0.0, 1.0) * working_s for at in range(count)]
