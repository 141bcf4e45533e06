"""The recordings of the README and of the tutorial, from an empty environment on, as they are printed there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.recordings import play
from tests.system.package.conftest import SECONDS, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * SECONDS)]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_page_as_a_newcomer_types_it(page: str, built: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "uv", "venv", "-q", "--seed", "--python", sys.executable, environment], tmp_path)
    [wheel] = built.glob("*.whl")
    constraint = tmp_path / "constraint.txt"
    constraint.write_text(f"kafkalite @ {wheel.as_uri()}\n")  # this tree, and not what a registry has by that name
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "KAFKA"))}
    shell = kept | {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(constraint),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    play(page, tmp_path, shell, SECONDS)
