from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log.three_disks import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()
