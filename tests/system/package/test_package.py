"""The wheel and the sdist: they pass twine, have what they should, and serve where only they are installed."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import wire
from bench.records import record_batch
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S, until
from tests.system.package.conftest import SECONDS, Environment, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * SECONDS)]

PYTHONS = ("3.11", "3.12", "3.13")
PACKAGES = ("kafkalite", "pyspark_kafkalite", "spark_jobs")
BROUGHT_ALONG = {"cramjam"}  # by python-snappy


def own_files() -> set[str]:
    """Modules, and what the console sends to browsers."""
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    static = [path for path in (ROOT / "kafkalite" / "console" / "static").rglob("*") if path.is_file()]
    return {str(path.relative_to(ROOT)) for path in (*modules, *static, ROOT / "kafkalite" / "py.typed")}


def dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split(r"[>=<~! ;\[]", each)[0] for each in project["dependencies"]}


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    [path] = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        described = wheel.read(metadata).decode()
    assert names == own_files()
    assert "# kafkalite" in described and "Requires-Python: >=3.11" in described


def test_the_sdist_has_all_that_a_wheel_is_built_from(built: Path) -> None:
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert own_files() | {"pyproject.toml", "README.md"} <= names
    assert not [name for name in names if name.startswith(("tests", "bench", "pytest", "."))]


def test_the_list_of_parts_names_what_an_installation_has(built: Path) -> None:
    sbom = json.loads((built / "kafkalite.cdx.json").read_text())
    assert sbom["bomFormat"] == "CycloneDX" and sbom["metadata"]["component"]["name"] == "kafkalite"
    parts = {part["name"]: part for part in sbom["components"]}
    assert dependencies() <= set(parts) and "pytest-kafkalite" in parts
    assert all(part["version"] for part in parts.values())


USES_A_BROKER = """
import kafkalite.testing.broker
import pytest

def test_it(kafka):
    kafka.produce("orders", "x")
    kafka.topic("orders").has(value="x")

def test_modules_are_loaded_as_anywhere():
    assert "Rewrit" not in type(kafkalite.testing.broker.__loader__).__name__  # a second for all of them
"""


@pytest.mark.parametrize("version", PYTHONS)
def test_pytest_finds_the_fixtures_where_the_plugin_is_installed(
    built: Path, environment: Callable[[str], Environment], tmp_path: Path, version: str
) -> None:
    installed = environment(version)
    installed.install(*built.glob("*.whl"), *built.glob("plugin/*.whl"))
    [found] = (installed.directory / "lib").glob("*/site-packages/pytest_kafkalite-*.dist-info")
    assert len((found / "RECORD").read_text().splitlines()) < 12  # which pytest reads in every run
    (tmp_path / "test_it.py").write_text(USES_A_BROKER)
    for more in ([], ["-p", "kafkalite.testing.pytest_plugin"]):
        command = [installed.bin / "python", "-m", "pytest", "-q", *more, tmp_path / "test_it.py"]
        assert "2 passed" in run(command, tmp_path)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kafkalite.testing.pytest_plugin"]')
    assert "2 passed" in run(command[:-1], tmp_path)
    assert "kafka_topics" in run([installed.bin / "python", "-m", "pytest", "--help"], tmp_path)


@pytest.mark.parametrize(("version", "kind"), [*((each, "*.whl") for each in PYTHONS), (PYTHONS[-1], "*.tar.gz")])
def test_a_broker_serves_from_an_installation(
    built: Path, environment: Callable[[str], Environment], tmp_path: Path, version: str, kind: str
) -> None:
    installed = environment(version)
    installed.install(*built.glob(kind))
    listed = {each["name"] for each in json.loads(installed.uv("list", "--format", "json"))}
    assert listed == {"kafkalite"} | dependencies() | BROUGHT_ALONG
    assert run([installed.bin / "kafkalite", "--version"], tmp_path).startswith("kafkalite 0.")
    ready = tmp_path / "ready.json"
    serve = [installed.bin / "kafkalite", "serve", "--port", "0", "--in-memory", "--ready-file", ready]
    with subprocess.Popen(serve, cwd=tmp_path, env={}, stdout=subprocess.DEVNULL) as broker:
        try:
            until(ready.exists, "the broker")
            with wire.Connection(json.loads(ready.read_text())["bootstrap_servers"]) as client:
                client.create_topic("orders")
                assert client.produce(wire.produce_frame("orders", 0, record_batch(1, 10))) == 0
        finally:
            broker.terminate()
    assert broker.wait(DEADLINE_S) == 0


def test_a_program_has_a_broker_and_its_types(
    built: Path, environment: Callable[[str], Environment], tmp_path: Path
) -> None:
    installed = environment(PYTHONS[0])
    installed.install(*built.glob("*.whl"), "mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import kafkalite\n\nwith kafkalite.Broker() as broker:\n    broker.produce('orders', 'a')\n"
        "    print([record.value for record in broker.records('orders')])\n"
    )
    assert run([installed.bin / "python", program], tmp_path) == "[b'a']\n"
    assert "Success" in run([installed.bin / "mypy", "--strict", program], tmp_path)
