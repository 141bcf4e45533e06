"""A data directory to write segments into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.segment_writer import Topics


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(tmp_path)
