"""The package as it is published, built once for a run, and environments of several Pythons to install it in.

What builds and judges it is installed into an environment that is thrown away.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

SECONDS = 300


def run(command: list[Any], cwd: Path, **more: str) -> str:
    """Run to the end, without what the environment says of Python, and return stdout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "KAFKA"))}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept | more, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class Environment:
    """A virtual environment that has only what is installed into it."""

    def __init__(self, directory: Path, python: str) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        run([sys.executable, "-m", "uv", "venv", "-q", "--python", python, directory], directory.parent)

    def install(self, *packages: str | Path) -> None:
        self.uv("install", "-q", *packages)

    def uv(self, command: str, *arguments: str | Path) -> str:
        whole = [sys.executable, "-m", "uv", "pip", command, "--python", self.bin / "python", *arguments]
        return run(whole, self.directory)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of `./dev release`: the sdist, the wheel that was built from it, the SBOM; those of the plugin in
    `plugin` below."""
    directory = tmp_path_factory.mktemp("package") / "dist"
    run([sys.executable, ROOT / "dev", "release", directory], ROOT)
    return directory


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[str], Environment]:
    """Makes an environment of a Python like "3.12"; the test is skipped where there is none."""

    def make(version: str) -> Environment:
        found = next((python for python in _candidates(version) if _is_python(python, version)), None)
        if found is None:
            pytest.skip(f"no Python {version} on this machine")
        return Environment(tmp_path / "environment", found)

    return make


def _candidates(version: str) -> Iterator[str]:
    """This one, the one on the PATH, and those of pyenv, which may stand there for none."""
    yield sys.executable
    if (found := shutil.which(f"python{version}")) is not None:
        yield found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    yield from map(str, sorted(versions.glob(f"{version}.*/bin/python")))


def _is_python(path: str, version: str) -> bool:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return said.startswith(f"Python {version}.")
