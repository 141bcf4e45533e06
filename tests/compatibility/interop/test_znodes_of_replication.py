"""Kafka's own classes write the golden nodes of replication, and read what kafkalite writes in their place."""

from __future__ import annotations

import subprocess

import pytest

from tests.compatibility.interop.java_tools import TOOL_SECONDS, java_command
from tests.support.places import ROOT
from tests.support.zk.replication_nodes import SAMPLES, kafkas

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PROGRAM = ROOT / "tests" / "compatibility" / "interop" / "java" / "ReplicationZnodes.java"


def program(verb: str, lines: dict[str, bytes] | None = None) -> dict[str, str]:
    typed = b"".join(name.encode() + b" " + data + b"\n" for name, data in (lines or {}).items())
    command = [*java_command("3.9.1"), str(PROGRAM), verb]
    done = subprocess.run(command, input=typed, capture_output=True, timeout=TOOL_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    told = (line.partition(" ") for line in done.stdout.decode().splitlines())
    return {name: text for name, _, text in told}


def test_the_golden_nodes_are_kafkas() -> None:
    assert {name: text.encode() for name, text in program("write").items()} == kafkas()


def test_kafka_reads_the_same_in_nodes_of_either() -> None:
    ours = {name: encode(value) for name, (value, encode, _) in SAMPLES.items()}
    read = program("read", ours)
    assert read == program("read", kafkas())
    assert read["topic"].endswith("{t-0=[3, 4, 1, 2][4][1, 2], t-1=[1, 2][][], t-2=[2, 1][][1]}")
    assert read["state-recovering"] == "3 4 [3] RECOVERING 7"
