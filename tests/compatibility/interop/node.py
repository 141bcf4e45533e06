"""Programs in Node: each directory of `node/` pins its client library; npm installs a copy of it in the cache.

Where npm cannot get or build a library, the tests that need it are skipped with what npm said.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).with_name("node")
INSTALL_LIMIT_S = 600.0
FIRST_INSTALL_S = 720
"""What a test may take that finds an empty cache."""


class Node:
    """The runtime with its package manager, and where it keeps what it installed."""

    def __init__(self, node: str, npm: str, cache: Path) -> None:
        self.node = node
        self.npm = npm
        self.cache = cache

    def command(self, name: str) -> list[str]:
        """How to run the program in `node/<name>`, with the library it pins."""
        room = self.modules(SOURCES / name / "package.json").parent
        shutil.copyfile(SOURCES / "script.js", self.cache / "script.js")  # a program finds libraries where it lies
        for source in (SOURCES / name).glob("*.js"):
            shutil.copyfile(source, room / source.name)
        return [self.node, str(room / "main.js")]

    def modules(self, package: Path) -> Path:
        """The `node_modules` with the libraries that a package.json pins."""
        name, pinned = package.parent.name, package.read_text()
        room = self.cache / name
        stamp = room / "installed.json"
        if not stamp.exists() or stamp.read_text() != pinned:
            shutil.rmtree(room, ignore_errors=True)
            room.mkdir(parents=True)
            (room / "package.json").write_text(pinned)
            self._install(name, room)
            stamp.write_text(pinned)
        return room / "node_modules"

    def _install(self, name: str, room: Path) -> None:
        command = [self.npm, "install", "--no-package-lock", "--no-audit", "--no-fund"]
        environment = os.environ | {"JOBS": "1"}  # with more, node-gyp's make does not wait for librdkafka's configure
        try:
            done = subprocess.run(
                command, cwd=room, env=environment, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install {name} in {INSTALL_LIMIT_S:.0f} s")
        if done.returncode != 0:
            reasons = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
            pytest.skip(f"npm cannot install {name}: {' '.join(reasons[:3])}")


def pinned(name: str, library: str) -> str:
    """The version of a library that a program uses."""
    return str(json.loads((SOURCES / name / "package.json").read_text())["dependencies"][library])
