"""The cost of an installed pytest-kafkalite to a suite that does not use it: `pytest --collect-only` of one test, with
and without it, in turn.

Two directories stand for two environments. Both have pytest; one has kafkalite and pytest-kafkalite besides, as an
installer leaves them, with the lists of their files: pytest reads that of every distribution that brings a plugin.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(str(files("kafkalite")))
VERSION = "1"  # any
OTHERS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
ENTRY_POINT = "[pytest11]\nkafkalite.testing.pytest_plugin = kafkalite.testing.pytest_plugin\n"
COMMAND = (sys.executable, "-S", "-P", "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider")
_WARM = 2


class Cost(NamedTuple):
    """Milliseconds that the plugin adds: of the wall clock the median of the differences of all pairs, of the
    processors the difference of the least of each, which other work of the machine changes less. `files` is the length
    of the list that pytest reads."""

    wall_ms: float
    cpu_ms: float
    pairs: int
    files: int


def plugin_cost(pairs: int) -> Cost:
    with tempfile.TemporaryDirectory() as directory:
        room = Path(directory)
        (room / "suite").mkdir()
        (room / "suite" / "test_it.py").write_text("def test_it(): ...\n")
        without, with_it = room / "without", room / "with"
        _make_environment(without)
        _make_environment(with_it)
        count = _install(with_it)
        for environment in (without, with_it) * _WARM:
            _collect(environment, room / "suite")
        walls: list[float] = []
        cpus: dict[Path, list[float]] = {without: [], with_it: []}
        for number in range(pairs):
            order = (without, with_it) if number % 2 else (with_it, without)
            taken = {environment: _collect(environment, room / "suite") for environment in order}
            walls.append(taken[with_it][0] - taken[without][0])
            for environment in order:
                cpus[environment].append(taken[environment][1])
    return Cost(statistics.median(walls) * 1e3, (min(cpus[with_it]) - min(cpus[without])) * 1e3, pairs, count)


def _make_environment(directory: Path) -> None:
    directory.mkdir()
    for name in OTHERS:
        found = metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or () if not file.parts[0].startswith("..")}:
            if (source := Path(str(found.locate_file(top)))).exists() and top != "__pycache__":
                (directory / top).symlink_to(source)


def _install(directory: Path) -> int:
    """A copy of the package, and the list of its files; and the distribution with the entry point. Returns how many
    lines its list has. The first run compiles what is loaded; of other modules only the names of the compiled files are
    there."""
    shutil.copytree(PACKAGE, directory / "kafkalite", ignore=shutil.ignore_patterns("__pycache__"))
    for module in [*(directory / "kafkalite").rglob("*.py")]:
        compiled = Path(cache_from_source(module))
        compiled.parent.mkdir(parents=True, exist_ok=True)
        compiled.touch()
    _describe(directory, "kafkalite", [directory / "kafkalite"])
    return _describe(directory, "pytest_kafkalite", [], ENTRY_POINT)


def _describe(directory: Path, name: str, packages: list[Path], entry_points: str = "") -> int:
    """The directory in which an installer describes a distribution; returns how many lines its list has."""
    info = directory / f"{name}-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n")
    if entry_points:
        (info / "entry_points.txt").write_text(entry_points)
    (info / "RECORD").touch()
    files = [path for place in (*packages, info) for path in sorted(place.rglob("*")) if path.is_file()]
    lines = [f"{path.relative_to(directory)},sha256={'x' * 43},{path.stat().st_size}" for path in files]
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    return len(lines)


def _collect(environment: Path, suite: Path) -> tuple[float, float]:
    """Seconds of the wall clock, and of both processors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    before_s, began_s = _processor_s(), time.perf_counter()
    subprocess.run([*COMMAND, str(suite)], env=kept | {"PYTHONPATH": str(environment)}, check=True, capture_output=True)
    return time.perf_counter() - began_s, _processor_s() - before_s


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
