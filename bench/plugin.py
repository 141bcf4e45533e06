"""The cost of an installed kafkalite to a pytest suite that does not use it: `pytest --collect-only` of one test, with
and without the package, in turn.

Two directories stand for two environments. Both have pytest; one has kafkalite besides, as an installer leaves it, with
the list of its files: pytest reads that of every package that brings a plugin.
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
from collections.abc import Iterator
from importlib import metadata
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(str(files("kafkalite")))
VERSION = "1"  # any
OTHERS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
ENTRY_POINT = "[pytest11]\nkafkalite = kafkalite.testing.pytest_plugin\n"
COMMAND = (sys.executable, "-S", "-P", "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider")
_WARM = 2


class Cost(NamedTuple):
    """Milliseconds that the plugin adds: of the wall clock the median of the differences of all pairs, of the
    processors the difference of the least of each, which other work of the machine changes less."""

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
    """A copy of the package, and the list of its files; returns how many there are. The first run compiles what is
    loaded; of other modules only the names of the compiled files are there."""
    shutil.copytree(PACKAGE, directory / "kafkalite", ignore=shutil.ignore_patterns("__pycache__"))
    for module in [*(directory / "kafkalite").rglob("*.py")]:
        compiled = Path(cache_from_source(module))
        compiled.parent.mkdir(exist_ok=True)
        compiled.touch()
    info = directory / f"kafkalite-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kafkalite\nVersion: {VERSION}\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    lines = [f"{path.relative_to(directory)},sha256={'x' * 43},{path.stat().st_size}" for path in _files(directory)]
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    return len(lines)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted((directory / "kafkalite").rglob("*")) if path.is_file())


def _collect(environment: Path, suite: Path) -> tuple[float, float]:
    """Seconds of the wall clock, and of both processors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    before_s, began_s = _processor_s(), time.perf_counter()
    subprocess.run([*COMMAND, str(suite)], env=kept | {"PYTHONPATH": str(environment)}, check=True, capture_output=True)
    return time.perf_counter() - began_s, _processor_s() - before_s


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
