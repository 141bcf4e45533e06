"""The recording in the README, from an empty environment to the first message: its commands, and what they print."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S, until
from tests.system.package.conftest import SECONDS, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * SECONDS)]

PORT = "9092"
VARIES = {r"cluster [\w-]{22}": r"cluster [\\w-]{22}", r"^\d+ seconds$": r"\\d+ seconds"}
"""Parts of what is printed that are others each time, and their patterns."""


def recording(port: str) -> list[tuple[str, str]]:
    """Each command and a pattern of what it prints, with another port."""
    text = (ROOT / "README.md").read_text()
    block = text.partition("```console\n")[2].partition("```")[0].replace(PORT, port)
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert found and sum(1 + output.count("\n") for _, output in found) == block.count("\n")
    return [(command, _pattern(output)) for command, output in found]


def _pattern(output: str) -> str:
    """Lines as they are, but for what varies."""
    whole = re.escape(output.strip("\n")).replace(r"\ ", " ").replace(r"\-", "-")
    for varying, pattern in VARIES.items():
        whole = re.sub(varying, pattern, whole, flags=re.MULTILINE)
    return whole


def test_the_first_message_of_the_readme(built: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "uv", "venv", "-q", "--seed", "--python", sys.executable, environment], tmp_path)
    [wheel] = built.glob("*.whl")
    constraint = tmp_path / "constraint.txt"
    constraint.write_text(f"kafkalite @ {wheel.as_uri()}\n")  # this tree, and not what a registry has by that name
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "KAFKA"))}
    shell = kept | {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(constraint),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "PYTHONUNBUFFERED": "1",
    }
    printed = tmp_path / "printed"
    with (
        printed.open("wb") as output,
        subprocess.Popen(["bash"], cwd=tmp_path, env=shell, stdin=subprocess.PIPE, stdout=output) as bash,
    ):
        assert bash.stdin is not None
        wanted = ""
        for command, pattern in recording(port):
            bash.stdin.write(f"{command}\n".encode())
            bash.stdin.flush()
            if pattern:
                wanted += pattern + "\n"
                until(
                    lambda: re.fullmatch(wanted, printed.read_text()),  # noqa: B023  called in this turn
                    f"what {command} prints, after {wanted!r}",
                    SECONDS,
                )
        bash.stdin.close()
        assert bash.wait(DEADLINE_S) == 0
    until(lambda: not listens(int(port)), "the end of the broker")


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
