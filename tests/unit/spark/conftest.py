"""One Spark session for the folder, and a data directory to write segments into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.segment_writer import Topics
from tests.support.spark_session import pytest_collection_modifyitems, spark

__all__ = ["pytest_collection_modifyitems", "spark"]


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(tmp_path)
