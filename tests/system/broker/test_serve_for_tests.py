"""`kafkalite serve --in-memory --ready-file F --exit-with-parent`: a daemon for tests of programs in any language."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import wire
from bench.records import record_batch
from kafkalite.testing.data_directory import throwaway_place
from tests.support.broker_process import environment
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.wait import DEADLINE_S, until

SERVE = [sys.executable, "-m", "kafkalite", "serve", "--port", "0"]
PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""
"""Starts a command, and waits for the end of its standard input."""


def ready(path: Path) -> dict[str, Any]:
    until(path.exists, "the ready file")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def ready_file(tmp_path: Path) -> Path:
    return tmp_path / "ready.json"


@pytest.fixture
def daemon(ready_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*SERVE, "--in-memory", "--ready-file", str(ready_file)], env=environment(), stdout=subprocess.DEVNULL
    )
    yield process
    process.kill()
    process.wait(DEADLINE_S)


def test_a_broker_is_ready_when_its_file_is_there_and_leaves_nothing(
    daemon: subprocess.Popen[bytes], ready_file: Path
) -> None:
    found = ready(ready_file)
    assert found.keys() == {"bootstrap_servers", "port", "pid", "data_dir", "metrics"}
    assert found["bootstrap_servers"] == f"127.0.0.1:{found['port']}"
    assert (found["pid"], found["metrics"]) == (daemon.pid, None)
    data = Path(found["data_dir"])
    assert data.parent == Path(throwaway_place()) and data.is_dir()
    with wire.Connection(found["bootstrap_servers"]) as client:
        client.create_topic("orders")
        assert client.produce(wire.produce_frame("orders", 0, record_batch(1, 10))) == 0
    daemon.terminate()
    assert daemon.wait(DEADLINE_S) == 0
    assert not data.exists() and os.listdir(ready_file.parent) == []


def test_what_a_killed_broker_has_left_is_removed_by_the_next(
    daemon: subprocess.Popen[bytes], ready_file: Path
) -> None:
    left = Path(ready(ready_file)["data_dir"])
    daemon.kill()
    daemon.wait(DEADLINE_S)
    assert left.exists() and ready_file.exists()
    with subprocess.Popen(
        [*SERVE, "--in-memory", "--ready-file", str(ready_file)], env=environment(), stdout=subprocess.DEVNULL
    ) as heir:
        until(lambda: ready_file.exists() and ready(ready_file)["pid"] == heir.pid, "the ready file of the next broker")
        assert not left.exists()
        heir.terminate()


@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_broker_ends_with_the_process_that_has_started_it(ready_file: Path, how: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *SERVE, "--in-memory", "--exit-with-parent", "--ready-file", str(ready_file)],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with parent:
        found = ready(ready_file)
        if how == "kill":
            parent.send_signal(signal.SIGKILL)
    until(lambda: not is_alive(found["pid"]), "the end of the broker")
    assert not Path(found["data_dir"]).exists() and not ready_file.exists()


def test_settings_win_over_those_for_tests(ready_file: Path) -> None:
    override = ["--override", "offsets.topic.num.partitions=3", "--override", "log.dirs=nowhere"]
    with subprocess.Popen(
        [*SERVE, "--in-memory", "--ready-file", str(ready_file), *override], env=environment(), stdout=subprocess.PIPE
    ) as process:
        found = ready(ready_file)
        with wire.Connection(found["bootstrap_servers"]) as client:
            client.request(10, 0, wire.string("a group"))  # FindCoordinator
        internal = [name for name in os.listdir(found["data_dir"]) if name.startswith("__consumer_offsets-")]
        process.terminate()
        assert len(internal) == 3 and not Path("nowhere").exists()


def test_the_steps_of_the_documented_workflow_start_a_broker(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    [workflow] = [
        text for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "jobs:" in text
    ]
    steps = yaml.safe_load(workflow)["jobs"]["test"]["steps"]
    [start] = [step["run"] for step in steps if "kafkalite serve" in step.get("run", "")]
    address = f"127.0.0.1:{free_port()}"
    command = tmp_path / "kafkalite"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafkalite "$@"\n')
    command.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "KAFKA_LISTENERS": f"PLAINTEXT://{address}"}
    stopped = f"{start}\nkill $!; wait $!"  # a runner ends what is left of a job
    subprocess.run(
        ["bash", "-e", "-c", stopped], cwd=tmp_path, env=environment() | path, timeout=DEADLINE_S, check=True
    )
    assert f"is ready on {address}" in (tmp_path / "kafkalite.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--in-memory", "--data-dir", "data"], "--in-memory chooses the data directory"),
        (["--in-memory", "--adopt", "data"], "--in-memory chooses the data directory"),
        (["--in-memory", "--exit-with-parent", "-n", "3"], "--in-memory, --exit-with-parent: for one broker"),
        (["--data-dir", "data", "--ready-file", "missing/ready"], "--ready-file missing/ready: No such file"),
    ],
)
def test_what_cannot_be_done_is_refused_at_the_start(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [*SERVE, *arguments], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert os.listdir(tmp_path) == []
