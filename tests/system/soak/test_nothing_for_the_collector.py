"""Objects of clients that have left are freed at once, without Python's cyclic collector.

Objects in a circle stay until the collector comes by, which in a broker at rest can be hours; with them stays what they
refer to, and a frame of a hundred bytes holds a receive slab of 256 KiB. Memory then grows with clients that come and
go (docs/endurance.md). So the collector is switched off here, and nothing may be there for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S
from tests.system.soak.visits import VISITORS

pytestmark = pytest.mark.xdist_group("visits")  # one process makes all visits


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """The objects that are left, by the name of the visit."""
    directory: Path = tmp_path_factory.mktemp("broker")
    command = [sys.executable, "-m", "tests.system.soak.visits", str(directory)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, dict[str, int]] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("visit", [visit.__name__ for visit in VISITORS])
def test_who_came_and_went_left_no_circles(left: dict[str, dict[str, int]], visit: str) -> None:
    assert left[visit] == {}
