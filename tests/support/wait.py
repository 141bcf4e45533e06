"""Waiting for what other threads or processes do, without sleeping through it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

DEADLINE_S = 60.0
"""The one deadline of all waits that are expected to succeed: generous, for a machine that has other things to do."""


def until(probe: Callable[[], T], what: str, seconds: float = DEADLINE_S) -> T:
    """Ask again and again until the answer is true, and return it; `what` names what was awaited in vain."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (answer := probe()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s for {what}; last answer: {answer!r}")
        pause.wait(0.02)
    return answer
