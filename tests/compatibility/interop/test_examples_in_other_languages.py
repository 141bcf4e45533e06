"""examples/other_languages: tests in Java, Go and Node that start a broker with `kafkalite serve`, run as they are."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.interop.golang import FIRST_BUILD_S, Go
from tests.compatibility.interop.java_tools import java_command
from tests.compatibility.interop.node import FIRST_INSTALL_S, Node
from tests.support.places import ROOT

EXAMPLES = ROOT / "examples" / "other_languages"
JAVA_VERSION = "3.9.1"
TEST_S = 110.0

pytestmark = pytest.mark.long


@pytest.fixture
def kafkalite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command of this tree, on the PATH. `exec`: the broker is a child of the test that starts it."""
    command = tmp_path / "bin" / "kafkalite"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafkalite "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.delenv("KAFKALITE", raising=False)
    return command


@pytest.fixture
def room(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the example of the test's language."""
    language = request.node.name.rpartition("_")[2]
    return Path(shutil.copytree(EXAMPLES / language, tmp_path / language))


@pytest.mark.timeout(FIRST_BUILD_S)
@pytest.mark.usefixtures("kafkalite")
def test_an_example_in_java(need: Callable[[str], str], run: Callable[..., str], room: Path) -> None:
    compiler = need("javac")
    jars = java_command(JAVA_VERSION)[-1]
    run([compiler, "-cp", jars, "-d", "classes", *map(str, sorted(room.glob("*.java")))], TEST_S, cwd=room)
    command = [*java_command(JAVA_VERSION)[:-1], f"{jars}{os.pathsep}classes", "OrdersTest"]
    assert run(command, TEST_S, cwd=room).splitlines()[-1] == "passed"


@pytest.mark.timeout(FIRST_BUILD_S)
@pytest.mark.usefixtures("kafkalite")
def test_an_example_in_go(
    need: Callable[[str], str], cache: Callable[[str], Path], run: Callable[..., str], room: Path
) -> None:
    go = Go(need("go"), cache("go"))
    assert "PASS: TestAnOrderIsAnnounced" in go.test(room)


@pytest.mark.timeout(FIRST_INSTALL_S)
@pytest.mark.usefixtures("kafkalite")
def test_an_example_in_node(
    need: Callable[[str], str], cache: Callable[[str], Path], run: Callable[..., str], room: Path
) -> None:
    node = Node(need("node"), need("npm"), cache("node-examples"))
    modules = node.modules(EXAMPLES / "node" / "package.json")
    (room / "node_modules").symlink_to(modules)
    assert "# pass 1" in run([node.node, "--test", "--test-reporter=tap"], TEST_S, cwd=room)
