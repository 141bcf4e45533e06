"""docs/testing.md: its examples are files of one small project, whose tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT

PAGE = ROOT / "docs" / "testing.md"
SECONDS = 110


def examples() -> dict[str, str]:
    """The text of each file, by its name in the first line."""
    return dict(re.findall(r"^```(?:python|ini)\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def test_every_example_runs(tmp_path: Path) -> None:
    files = examples()
    assert len(files) == PAGE.read_text().count("\n```python") + PAGE.read_text().count("\n```ini")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "kafkalite.testing.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    count = sum(len(re.findall(r"^ *def test_", text, re.MULTILINE)) for text in files.values())
    assert done.returncode == 0 and f"{count + 1} passed" in done.stdout, done.stdout + done.stderr  # one runs twice
