"""Kafka's jars, fetched once from Maven Central into the gitignored `.cache/` beside the source.

`mvn dependency:copy-dependencies` of `pom.xml`, or of `pom-VERSION.xml` where a version needs one of its own; a folder
per version. A folder appears under its name only when it is complete, and a lock file keeps two processes from fetching
at the same time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).resolve().parents[2] / ".cache"
FETCH_LIMIT_S = 600.0


class ReferenceUnavailable(Exception):
    """There can be no reference Kafka here; the text says why, fit for a skip line."""


def java() -> str:
    """The Java to run, or `ReferenceUnavailable`."""
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(candidate) or shutil.which("java")
    if found is None:
        raise ReferenceUnavailable("no java on this machine")
    return found


def class_path(version: str = "3.9.1") -> str:
    """What `java -cp` takes to run Kafka's broker and tools of this version; fetches them the first time."""
    return f"{jar_directory(version)}/*"


def compile_class(source: Path, version: str, target: Path) -> None:
    """Compile a class of our own against Kafka of this version, into the directory `target`."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise ReferenceUnavailable("no javac on this machine")
    command = [compiler, "-cp", class_path(version), "-d", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    if done.returncode != 0:
        raise ReferenceUnavailable(f"{source.name} could not be compiled: {done.stderr[-400:]}")


def jar_directory(version: str) -> Path:
    target = CACHE / f"kafka-{version}"
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"kafka-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(version, target)
    return target


def pom(version: str) -> Path:
    """What this version consists of."""
    own = POM.with_name(f"pom-{version}.xml")
    return own if own.exists() else POM


def _fetch(version: str, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ReferenceUnavailable(f"no mvn on this machine to fetch Kafka {version}")
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(pom(version)), f"-Dkafka.version={version}"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ReferenceUnavailable(f"Maven did not deliver Kafka {version} in {FETCH_LIMIT_S:.0f} s") from None
    if done.returncode != 0 or not any(partial.glob("kafka_2.13-*.jar")):
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise ReferenceUnavailable(f"Maven could not fetch Kafka {version}: {lines[0] if lines else 'no reason given'}")
    partial.rename(target)
