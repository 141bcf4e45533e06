"""Clients of other ages, fetched once into `.cache/interop`: Kafka 0.8.2.2 in Java, and Python packages by version."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from bench.reference.jars import java
from tests.compatibility.interop.conftest import CACHE

KAFKA = "0.8.2.2"
PROGRAMS = Path(__file__).parent / "java"
INSTALL_LIMIT_S = 600.0


def old_java_program(name: str) -> list[str]:
    """The command up to the program's own words; it is compiled by `java` itself as it starts. Skips without Maven."""
    try:
        words = [java()]
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    jars = CACHE / "java" / f"kafka-{KAFKA}"
    if not jars.is_dir():
        maven = shutil.which("mvn") or pytest.skip("no mvn on this machine")
        partial = jars.with_suffix(".partial")
        pom = PROGRAMS / f"pom-{KAFKA}.xml"
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
        if done.returncode != 0:
            pytest.skip(f"Maven cannot fetch Kafka {KAFKA}: {done.stdout[-300:]}")
        partial.rename(jars)
    return [*words, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(PROGRAMS / name)]


def python_with(name: str, *packages: str) -> str:
    """An interpreter in an environment of this name that has these packages. Skips where pip cannot install them."""
    home = CACHE / "python" / name
    interpreter, stamp = home / "bin" / "python", home / "complete"
    if not stamp.exists():
        if sys.version_info >= (3, 12):
            pytest.skip(f"{name} does not run on Python 3.12 and later")
        venv.create(home, with_pip=True, clear=True)
        command = [str(interpreter), "-m", "pip", "install", "-q", *packages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
        if done.returncode != 0:
            pytest.skip(f"pip cannot install {name}: {done.stderr[-300:]}")
        stamp.touch()
    return str(interpreter)
