"""Completion, as the shells themselves ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite import Broker
from kafkalite.cli.completion_command import SHELLS
from kafkalite.cli.main import main
from tests.support.broker_process import environment
from tests.support.wait import DEADLINE_S

COUNTED = 'COMP_LINE="kafkalite topi" COMP_POINT=14; _python_argcomplete kafkalite; echo "${COMPREPLY[@]}"'


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        for name in ("orders", "order-lines", "prices"):
            made.create_topic(name)
        yield made


def completed(line: str, tmp_path: Path) -> list[str]:
    """As argcomplete's scripts ask, which all shells do alike."""
    answer = tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n",
             "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}  # fmt: skip
    command = [sys.executable, "-m", "kafkalite"]
    subprocess.run(command, env=environment() | asked, timeout=DEADLINE_S, capture_output=True)
    return [word.strip() for word in answer.read_text().split("\n") if word.strip()]


def test_commands_options_and_choices(tmp_path: Path) -> None:
    assert completed("kafkalite topi", tmp_path) == ["topic"]
    assert {"list", "create", "delete", "alter", "describe"} <= set(completed("kafkalite topic ", tmp_path))
    assert "--execute" in completed("kafkalite group reset g --e", tmp_path)
    assert completed("kafkalite produce t -z zs", tmp_path) == ["zstd"]
    assert completed("kafkalite group list --type cons", tmp_path) == ["consumer"]
    assert completed("kafkalite group describe --me", tmp_path) == ["--members"]
    assert set(completed("kafkalite completion ", tmp_path)) == {*SHELLS, "--help"}


def test_names_come_from_the_broker_of_the_line(broker: Broker, tmp_path: Path) -> None:
    at = f"--bootstrap-server {broker.bootstrap_servers}"
    assert completed(f"kafkalite consume {at} ord", tmp_path) == ["order-lines", "orders"]
    assert completed(f"kafkalite topic delete {at} p", tmp_path) == ["prices"]
    assert completed("kafkalite consume --bootstrap-server 127.0.0.1:1 ord", tmp_path) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_takes_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    program = tmp_path / "kafkalite"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kafkalite "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), environment().get("PATH", "")])
    asked = {
        "bash": f"source {script}; {COUNTED}",
        "zsh": f"autoload -U compinit; compinit -u -D; source {script} && print ${{_comps[kafkalite]:+topic}}",
        "fish": f"source {script}; complete --do-complete 'kafkalite topi'",
    }[shell]
    home = {"PATH": path, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)}
    done = subprocess.run(
        [shell, "-c", asked], env=environment() | home, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout.split()[:1] == ["topic"], (done.stdout, done.stderr)
