"""The length of the long form."""

from __future__ import annotations

import pytest

HISTORIES = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    told = f"histories of processes, a minute each ({HISTORIES})"
    parser.addoption("--process-histories", type=int, default=HISTORIES, help=told)
