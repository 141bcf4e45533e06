"""Frameworks of Java that contain Kafka's clients: programs over them, fetched and built once into the cache."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from bench.reference.jars import java
from tests.compatibility.interop.conftest import CACHE

SOURCES = Path(__file__).parent / "java"
FETCH_LIMIT_S = 900.0
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def spring_member() -> list[str]:
    """The command of java/spring, which `java` compiles as it starts. Skips where it cannot be fetched."""
    project = SOURCES / "spring"
    words = _java()
    jars = CACHE / "java" / f"spring-kafka-{spring_version()}"
    if not jars.is_dir():
        partial = jars.with_suffix(".partial")
        _maven("-f", project / "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={partial}")
        partial.rename(jars)
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"  # what the listener says is enough
    return [*words, logging, "-cp", f"{jars}/*", str(project / "SpringMember.java")]


def spring_version() -> str:
    return _version("spring", r"spring-kafka</artifactId><version>([\d.]+)<")


def quarkus_member() -> list[str]:
    """The command of java/quarkus. Skips where it cannot be fetched or built."""
    words = _java()
    home = CACHE / "java" / f"quarkus-{quarkus_version()}"
    program = home / "target" / "quarkus-app" / "quarkus-run.jar"
    sources = {path.relative_to(SOURCES / "quarkus"): path for path in (SOURCES / "quarkus").rglob("*.*")}
    files = {name: path.read_bytes() for name, path in sources.items() if path.is_file()}
    is_built = program.exists() and all((home / name).read_bytes() == data for name, data in files.items())
    if not is_built:
        shutil.rmtree(home, ignore_errors=True)
        for name, data in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(data)
        _maven("-f", home / "pom.xml", "package")
    return [*words, "-jar", str(program)]


def quarkus_version() -> str:
    return _version("quarkus", r"<quarkus.version>([\d.]+)<")


def _version(project: str, pattern: str) -> str:
    found = re.search(pattern, (SOURCES / project / "pom.xml").read_text())
    assert found
    return found[1]


def _java() -> list[str]:
    try:
        return [java(), *_OPTIONS]
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def _maven(*words: object) -> None:
    maven = shutil.which("mvn") or pytest.skip("no mvn on this machine")
    command = [maven, "-q", "-B", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    if done.returncode != 0:
        pytest.skip(f"Maven cannot build {words[1]}: {done.stdout[-300:]}")
