"""Each suite that `./dev` runs is there, and CONTRIBUTING names it."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from tests.support.places import ROOT


@pytest.fixture(scope="module")
def dev() -> dict[str, Any]:
    """The names in the program `dev`, which is not run."""
    return runpy.run_path(str(ROOT / "dev"))


def test_the_places_of_every_suite_exist(dev: dict[str, Any]) -> None:
    assert dev["PLACES"].keys() == dev["SUITES"].keys()
    missing = [place for places in dev["PLACES"].values() for place in places if not (ROOT / place).exists()]
    assert not missing


def test_contributors_are_told_of_every_suite(dev: dict[str, Any]) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert [name for name in dev["SUITES"] if f"| `./dev {name}` |" not in text] == []
