"""`kafkalite serve` in a process whose output is read by a thread: the port that it is ready on, and its end."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest

from tests.support.wait import DEADLINE_S

READY = re.compile(r"kafkalite is ready on \S+?:(\d+)")


def put_port(process: subprocess.Popen[str], ports: queue.SimpleQueue[int | None]) -> None:
    """Reads the output to its end; puts the port when the broker is ready, and None at the end."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := READY.match(line):
            ports.put(int(found[1]))
    ports.put(None)


def end_process(
    process: subprocess.Popen[str], listener: threading.Thread, how: signal.Signals, said: Callable[[], str]
) -> int:
    """Sends the signal and waits; returns the exit code. `listener` runs `put_port`."""
    process.send_signal(how)
    try:
        code = process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(DEADLINE_S)
        pytest.fail(f"the broker did not end within {DEADLINE_S:g} s of {how.name}; it said: {said()}")
    listener.join(DEADLINE_S)
    assert process.stdout is not None
    process.stdout.close()
    return code
