"""The length of the long form."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--process-histories", type=int, default=60, help="histories of processes, a minute each (60)")
