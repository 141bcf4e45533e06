"""The example of a fail-over, as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.broker_process import environment
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S


def test_a_consumer_moves_to_the_other_cluster_and_nothing_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.fail_over"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "10,000 orders were read: 0 are missing, 0 were read twice"
    partitions = [line.split()[2] for line in lines if line.startswith("  partition")]
    assert [len(cells) for cells in partitions] == [50] * 4
    assert all(set(cells) <= set("#=") and cells.endswith("=" * 10) for cells in partitions)
