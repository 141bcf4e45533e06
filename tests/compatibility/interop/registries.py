"""Schema registries of others, each a process: Apicurio Registry from Maven Central, and Karapace where it is.

Karapace is in no package registry: `KARAPACE_PYTHON` names an interpreter that can import it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from bench.reference import ReferenceUnavailable
from bench.reference.jars import java
from tests.compatibility.interop.conftest import CACHE
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S

APICURIO = "3.0.9"
_FETCH_LIMIT_S = 900.0
_START_LIMIT_S = 240.0  # of a JVM, and of an election, on busy cores
_KARAPACE_PYTHON = "KARAPACE_PYTHON"


class RunningRegistry(NamedTuple):
    """Its name, its version, and the address of its Confluent API."""

    name: str
    version: str
    url: str


@contextmanager
def apicurio_registry(room: Path) -> Iterator[RunningRegistry]:
    """With its schemas in memory. Skips where it cannot be fetched."""
    try:
        words = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    port = free_port()
    words += [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-jar", str(_apicurio_program())]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with _running(words, dict(os.environ), room / "apicurio.log", url):
        yield RunningRegistry("Apicurio Registry", APICURIO, url)


def _apicurio_program() -> Path:
    home = CACHE / "java" / f"apicurio-registry-{APICURIO}"
    if not home.is_dir():
        maven = shutil.which("mvn") or pytest.skip("no mvn on this machine")
        partial = home.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        artifact = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
        command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_LIMIT_S, check=False)
        if done.returncode != 0:
            pytest.skip(f"Maven cannot fetch Apicurio Registry: {done.stdout[-300:]}")
        (archive,) = partial.glob("*.tar.gz")
        with tarfile.open(archive) as files:
            files.extractall(partial, filter="data")
        archive.unlink()
        partial.rename(home)
    return home / f"apicurio-registry-app-{APICURIO}-runner.jar"


@contextmanager
def karapace(bootstrap: str, room: Path) -> Iterator[RunningRegistry]:
    """With its schemas in a topic of a broker, and its leader elected by a group. Skips where it is not."""
    interpreter = os.environ.get(_KARAPACE_PYTHON) or pytest.skip(f"no {_KARAPACE_PYTHON}, the Python with Karapace")
    asked = [interpreter, "-c", "from importlib.metadata import version; print(version('karapace'))"]
    version = subprocess.check_output(asked, text=True, timeout=DEADLINE_S).strip()
    port = free_port()
    settings = {
        "KARAPACE_BOOTSTRAP_URI": bootstrap,
        "KARAPACE_HOST": "127.0.0.1",
        "KARAPACE_PORT": str(port),
        "KARAPACE_ADVERTISED_HOSTNAME": "127.0.0.1",
        "KARAPACE_LOG_LEVEL": "WARNING",
    }
    url = f"http://127.0.0.1:{port}"
    with _running([interpreter, "-m", "karapace"], os.environ | settings, room / "karapace.log", url):
        yield RunningRegistry("Karapace", version, url)


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path, url: str) -> Iterator[None]:
    """A registry that takes schemas, from then on."""
    with log.open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + _START_LIMIT_S
        while not _takes_schemas(url):
            assert process.poll() is None and time.monotonic() < end_s, log.read_text()[-4000:]
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _takes_schemas(url: str) -> bool:
    with suppress(httpx.HTTPError):
        answer = httpx.post(f"{url}/subjects/first/versions", json={"schema": '"string"'}, timeout=DEADLINE_S)
        return answer.status_code == 200
    return False
