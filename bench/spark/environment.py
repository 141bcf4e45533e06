"""A Python with PySpark and the project's dependencies, and the jars of Spark's own Kafka connector, fetched once.

Both are of one version, which Maven Central must have completely: 4.0.0, 4.1.1 and 4.2.0 it has. They lie in the
gitignored `.cache/` beside the source.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.reference.jars import CACHE, FETCH_LIMIT_S, ReferenceUnavailable

POM = Path(__file__).with_name("pom.xml")
BUILT_WITH = {"4.0.0": ("3.9.0", "2.12.0"), "4.1.1": ("3.9.1", "2.12.1"), "4.2.0": ("3.9.2", "2.13.1")}
"""Spark -> kafka-clients and commons-pool2 of its connector."""
_BESIDE = ("pyarrow", "numpy", "crc32c", "lz4", "zstandard", "python-snappy", "deltalake", "pyiceberg[sql-sqlite]")


@dataclass(frozen=True, slots=True)
class SparkEnvironment:
    """The interpreter and the jars that a job runs with."""

    version: str
    python: Path
    jars: tuple[Path, ...]


def environment(version: str) -> SparkEnvironment:
    """Fetches what is not there yet. Raises ReferenceUnavailable."""
    home = CACHE / f"spark-{version}"
    return SparkEnvironment(version, _python(version, home), _jars(version, home))


def _python(version: str, home: Path) -> Path:
    venv, stamp = home / "venv", home / "installed"
    wanted = [f"pyspark=={version}"]
    wanted += [f"{name}=={importlib.metadata.version(name.partition('[')[0])}" for name in _BESIDE]
    if not stamp.exists() or stamp.read_text() != " ".join(wanted):
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", venv], "venv cannot make an environment")
        pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        _run([*pip, *wanted], f"pip cannot install pyspark {version}")
        stamp.write_text(" ".join(wanted))
    return venv / "bin" / "python"


def _jars(version: str, home: Path) -> tuple[Path, ...]:
    jars = home / "jars"
    if not jars.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise ReferenceUnavailable(f"no mvn on this machine to fetch the connector of Spark {version}")
        partial = home / "jars.partial"
        shutil.rmtree(partial, ignore_errors=True)
        kafka, pool = BUILT_WITH[version]
        words = [maven, "-q", "-B", "-f", POM, f"-Dspark.version={version}", f"-Dkafka.version={kafka}"]
        words += [f"-Dpool.version={pool}", "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        _run(words, f"Maven cannot fetch the connector of Spark {version}")
        partial.rename(jars)
    return tuple(sorted(jars.glob("*.jar")))


def _run(words: list[object], what_failed: str) -> None:
    command = [str(word) for word in words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ReferenceUnavailable(f"{what_failed}: not done in {FETCH_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise ReferenceUnavailable(f"{what_failed}: {' '.join(said[:3])}")
