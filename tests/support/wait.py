"""Waits for other threads and processes: one deadline for all of them, and no fixed sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

DEADLINE_S = 60.0
"""The one deadline of all waits that are expected to succeed: generous, for a machine that has other things to do."""


def until(probe: Callable[[], T], what: str | Callable[[], str], seconds: float = DEADLINE_S) -> T:
    """Calls `probe` until its result is true, and returns it. `what` completes the message of a failure."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (answer := probe()):
        if time.monotonic() > deadline:
            name = what() if callable(what) else what
            pytest.fail(f"waited {seconds:g} s for {name}; last answer: {answer!r}")
        pause.wait(0.02)
    return answer
