"""The examples of the README are run as a newcomer runs them, against a broker that they have never seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 40


def has_kafkajs() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    found = subprocess.run([node, "-e", "require.resolve('kafkajs')"], cwd=EXAMPLES, capture_output=True, check=False)
    return found.returncode == 0


@pytest.mark.parametrize(
    ("script", "greeting"),
    [
        ("with_confluent.py", "hello from confluent-kafka"),
        ("with_kafka_python.py", "hello from kafka-python"),
        ("with_aiokafka.py", "hello from aiokafka"),
        ("with_kcat.sh", "hello from kcat"),
        ("with_kafkajs.js", "hello from KafkaJS"),
    ],
)
def test_a_first_message(bootstrap: str, tmp_path: Path, script: str, greeting: str, request: Any) -> None:
    if script.endswith(".sh"):
        request.getfixturevalue("kcat")  # skips where there is none
        command = ["sh"]
    elif script.endswith(".js"):
        if not has_kafkajs():
            pytest.skip("needs node and KafkaJS (npm install kafkajs, NODE_PATH if it is not in the tree)")
        command = ["node"]
    else:
        command = [sys.executable]
    assert output([*command, str(EXAMPLES / script), bootstrap], tmp_path).strip() == greeting


def test_a_queue_of_jobs(bootstrap: str, tmp_path: Path) -> None:
    lines = output([sys.executable, str(EXAMPLES / "with_share_consumer.py"), bootstrap], tmp_path).splitlines()
    assert sorted(lines) == [
        "divide by zero: rejected",
        "feed the cat: done",
        "feed the cat: given back",
        "paint the wall: done",
    ]


def output(command: list[str], directory: Path) -> str:
    done = subprocess.run(
        command, cwd=directory, env=os.environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
