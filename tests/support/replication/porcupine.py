"""Porcupine, a checker of linearizability, on the operations of a history."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compatibility.interop.conftest import CACHE
from tests.compatibility.interop.golang import Go

LIMIT_S = 600.0


def build() -> str:
    """The path of the checker; skips the test where there is no Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on this machine, with which Porcupine is built")
    return Go(go, CACHE / "go").build("porcupine")


def check(checker: str, operations: Path) -> subprocess.CompletedProcess[str]:
    """Its exit code is 0 if each partition of `HistoryClients.save_operations` was a log at all times."""
    return subprocess.run([checker, str(operations)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
