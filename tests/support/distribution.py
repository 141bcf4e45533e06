"""How the tests of a run spread over its workers, and which of them are collected at all.

A file goes to one worker: what its tests share is made once. A story of tests/system goes alone, since it may take
seconds, except for those that share the cluster of processes of their folder. pytest-xdist alone gives each test to
the next worker: four workers made each module's brokers four times, and its controller looked through all tests that
a worker has had after each of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

_ALONE = "tests/system/"
_TOGETHER = "tests/system/cluster/"
_LONG_FILE = re.compile(rb"^pytestmark = (?:\[\s*)?pytest\.mark\.long\b", re.MULTILINE)


class FileScheduling(LoadGroupScheduling):
    """Groups first, as with `--dist loadgroup`; then files, and stories."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if scope != nodeid:
            return scope
        if nodeid.startswith(_TOGETHER):
            return _TOGETHER
        return nodeid if nodeid.startswith(_ALONE) else nodeid.partition("::")[0]


class QuickCollection:
    """A plugin of pytest for a worker that runs no long test: it makes none of them only to deselect it, nor imports a
    file of nothing else."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
        if not is_test or str(collection_path) in config.args:
            return None
        return True if _LONG_FILE.search(collection_path.read_bytes()) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, obj: object) -> list[Any] | None:
        marks = getattr(obj, "pytestmark", ())
        return [] if any(mark.name == "long" for mark in marks if isinstance(mark, pytest.Mark)) else None
