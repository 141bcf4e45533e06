"""The recordings of the README and of the tutorial, with what is installed here already."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.recordings import play


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_page_prints_what_it_says(page: str, tmp_path: Path) -> None:
    nothing = tmp_path / "bin" / "pip"  # what it installs is there
    nothing.parent.mkdir()
    nothing.write_text("#!/bin/sh\n")
    nothing.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA")}
    places = [str(nothing.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    play(page, tmp_path, kept | {"PATH": os.pathsep.join(places)})
