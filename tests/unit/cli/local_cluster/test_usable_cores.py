"""--cores auto counts what the process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalite.cli.local_cluster.usable_cores import usable_cores


@pytest.mark.parametrize(
    ("text", "most"), [("max 100000", 1 << 20), ("100000 100000", 1), ("50000 100000", 1), ("x", 9)]
)
def test_a_control_group_has_time_for_some(tmp_path: Path, text: str, most: int) -> None:
    group = tmp_path / "cpu.max"
    group.write_text(f"{text}\n")
    assert usable_cores(group) == min(len(os.sched_getaffinity(0)), most)
    assert usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))
