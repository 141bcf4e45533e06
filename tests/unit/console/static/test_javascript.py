"""The console's JavaScript in Node.js, module by module: `*.test.js` beside this file, over a small document."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

NODE = shutil.which("node")
HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules as they are served, the tests beside them, and a package.json that says they are modules."""
    path = tmp_path_factory.mktemp("javascript")
    shutil.copytree(ROOT / "kafkalite/console/static", path / "static")
    (path / "package.json").write_text('{"type": "module"}')
    for script in HERE.glob("*.js"):
        shutil.copy(script, path)
    return path


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.js")))
def test_a_module_of_the_console(room: Path, name: str) -> None:
    command = [str(NODE), "--test", "--test-reporter=tap", name]
    done = subprocess.run(command, cwd=room, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
