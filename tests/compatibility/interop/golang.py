"""Programs in Go: each directory of `go/` is a module that pins one client library, built once and kept in the cache.

Modules and build results live below the cache directory as well; where a module cannot be had or the toolchain is too
old for it, the tests that need it are skipped with what `go` said.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).with_name("go")
FETCH_LIMIT_S = 600.0
BUILD_LIMIT_S = 300.0
FIRST_BUILD_S = 960
"""What a test may take that finds an empty cache."""


class Go:
    """The toolchain, and where it keeps what it fetched and built."""

    def __init__(self, path: str, cache: Path) -> None:
        self.path = path
        self.cache = cache
        modules, results = str(cache / "mod"), str(cache / "build")
        flags = os.environ.get("GOFLAGS", "") + " -modcacherw"  # so that the cache can be removed like any directory
        self.env = {"GOMODCACHE": modules, "GOCACHE": results, "GOFLAGS": flags.strip()}

    def build(self, name: str, mod_file: str = "go.mod") -> str:
        """The path of the program in `go/<name>`, with the libraries that `mod_file` pins."""
        program = self.cache / "bin" / f"{name}-{Path(mod_file).stem}"
        self._fetch(SOURCES / name, mod_file)
        built = self._run(SOURCES / name, BUILD_LIMIT_S, "build", f"-modfile={mod_file}", "-o", str(program), ".")
        assert built.returncode == 0, built.stderr
        return str(program)

    def test(self, module: Path) -> str:
        """The output of `go test -v` of a module in a directory."""
        self._fetch(module, "go.mod")
        done = self._run(module, BUILD_LIMIT_S, "test", "-v", "-count=1", ".")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def test_library(self, name: str, package: str, pattern: str, settings: dict[str, str]) -> str:
        """The output of the tests of a library that `go/<name>` pins: those whose names match, in an environment."""
        self._fetch(SOURCES / name, "go.mod")
        arguments = ("test", "-v", "-count=1", "-run", pattern, package)
        done = self._run(SOURCES / name, BUILD_LIMIT_S, *arguments, **settings)
        assert done.returncode == 0, (done.stdout + done.stderr)[-8_000:]
        return done.stdout

    def _fetch(self, module: Path, mod_file: str) -> None:
        fetched = self._run(module, FETCH_LIMIT_S, "list", "-test", "-deps", f"-modfile={mod_file}", ".")
        if fetched.returncode != 0:
            lines = [line for line in fetched.stderr.splitlines() if not line.startswith("go: downloading")]
            pytest.skip(f"go cannot get the modules of {module.name}/{mod_file}: {' '.join(lines[:3])}")

    def _run(self, module: Path, limit_s: float, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        command = [self.path, *arguments]
        environment = os.environ | self.env | settings
        try:
            return subprocess.run(
                command, cwd=module, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"go {arguments[0]} for {module.name} was not done in {limit_s:.0f} s")


def pinned(name: str, module: str, mod_file: str = "go.mod") -> str:
    """The version of a module that a program is built with."""
    text = (SOURCES / name / mod_file).read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", text, re.MULTILINE)
    assert found, f"{module} is not in {mod_file} of {name}"
    return found[1]
