"""`./dev test --fast`: the unit tests that need no other process, with a part of their random examples.

A test that starts a process is skipped at that moment, so no list of such tests can be out of date. The interpreter's
audit events name the ways to start one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

_EXAMPLES_PART = 10
_EXAMPLES_MIN = 5
_STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"))


def skip_tests_with_processes() -> None:
    sys.addaudithook(_skip_at_start)


def _skip_at_start(event: str, _: tuple[Any, ...]) -> None:
    if (
        event in _STARTS
        and "PYTEST_CURRENT_TEST" in os.environ
        and threading.current_thread() is threading.main_thread()
    ):
        pytest.skip("starts a process, which a fast run does not")


def draw_fewer_examples(items: Iterable[pytest.Item]) -> None:
    """A tenth of what each test of hypothesis draws."""
    for test in {getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None)) for item in items}:
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            fewer = max(_EXAMPLES_MIN, own.max_examples // _EXAMPLES_PART)
            test._hypothesis_internal_use_settings = settings(own, max_examples=fewer)  # type: ignore[union-attr]
