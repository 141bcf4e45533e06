"""`./dev test --fast`: the unit tests that need no other process and are not `thorough`, with a part of their random
examples.

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

FAST_PART = 10
QUICK_PART = 3
"""Of the examples of hypothesis, one in so many: the suites of `./dev` draw all of them."""

_EXAMPLES_MIN = 5
_STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"))


_REASON = "starts a process, which a fast run does not"


class ProcessSkips:
    """A plugin of pytest: skips the test that starts a process."""

    def __init__(self) -> None:
        self._is_refused = False
        sys.addaudithook(self._refuse)

    def _refuse(self, event: str, _: tuple[Any, ...]) -> None:
        in_test = "PYTEST_CURRENT_TEST" in os.environ and threading.current_thread() is threading.main_thread()
        if event in _STARTS and in_test:
            self._is_refused = True
            pytest.skip(_REASON)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """A test whose event loop has swallowed the skip fails later; it is skipped, too."""
        report = yield
        if self._is_refused and report.failed:
            report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1], _REASON)
        if report.when == "teardown":
            self._is_refused = False
        return report


def leave_out_thorough(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests with the mark `thorough` are for runs of all tests."""
    left_out = [item for item in items if item.get_closest_marker("thorough") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("thorough") is None]


def draw_fewer_examples(items: Iterable[pytest.Item], part: int) -> None:
    """One in `part` of the examples that each test of hypothesis draws."""
    for test in {getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None)) for item in items}:
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            fewer = max(_EXAMPLES_MIN, own.max_examples // part)
            test._hypothesis_internal_use_settings = settings(own, max_examples=fewer)  # type: ignore[union-attr]
