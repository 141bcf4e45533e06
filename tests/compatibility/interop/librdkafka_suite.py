"""librdkafka's own tests: its test-runner, built once in the cache from the source that its package for Node contains.

A test is named by its number, and a number may stand for several. Each runs in a process of its own, three at a time,
since they mostly wait. The tests call Kafka's scripts (kafka-topics.sh and kafka-acls.sh); scripts of these names call
the classes of Kafka 4.3.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compatibility.interop.conftest import CACHE
from tests.compatibility.interop.java_tools import JavaTools

VERSION = "2.15.1"
PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
SOURCE = "package/deps/librdkafka"
SCRIPTS = {"kafka-topics.sh": "TopicCommand", "kafka-acls.sh": "AclCommand"}
BUILD_LIMIT_S = 1800.0
TEST_LIMIT_S = 900.0
AT_ONCE = 3
_FAILURE = re.compile(r'### Test "(?!<MAIN>).*\n.*')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Outcome(NamedTuple):
    """The end of one test; `reason` is the first failure that it printed."""

    number: str
    is_failed: bool
    is_skipped: bool
    reason: str


class LibrdkafkaSuite:
    """The test-runner below `home`, at brokers of `bootstrap`; what tests print goes to files in `directory`."""

    def __init__(self, home: Path, tools: JavaTools, directory: Path) -> None:
        self.tests = home / "tests"
        self.directory = directory
        scripts = directory / "kafka" / "bin"
        scripts.mkdir(parents=True)
        for name, tool in SCRIPTS.items():
            script = scripts / name
            words = " ".join(f"'{word}'" for word in tools.command(tool, at=None))
            script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            script.chmod(0o755)
        settings = directory / "test.conf"
        settings.write_text(f"bootstrap.servers={tools.bootstrap}\ntest.topic.random=true\n")
        self.environment = os.environ | {
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_CONSUMER_GROUP_PROTOCOL": "consumer",
            "KAFKA_PATH": str(directory / "kafka"),
            "BROKERS": tools.bootstrap,
            "TEST_KAFKA_VERSION": tools.version,
            "LD_LIBRARY_PATH": f"{home / 'src'}:{home / 'src-cpp'}",
            "CI": "true",  # longer limits
        }

    def run_all(self, numbers: Iterable[str]) -> list[Outcome]:
        """Failed ones are run once more, alone: a busy machine is no failure."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(self._run, numbers))
        return [self._run(each.number) if each.is_failed else each for each in outcomes]

    def _run(self, number: str) -> Outcome:
        output = self.directory / f"{number}.out"
        room = self.directory / number
        room.mkdir(exist_ok=True)  # for the statistics that each test writes
        environment = self.environment | {"TESTS": number}
        with output.open("wb") as sink:
            try:
                code = subprocess.run(
                    [self.tests / "test-runner", "-L", "-p1"],
                    cwd=room,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    timeout=TEST_LIMIT_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return Outcome(number, True, False, f"not done in {TEST_LIMIT_S:g} s")
        said = _COLOUR.sub("", output.read_text(errors="replace"))
        failure = _FAILURE.search(said)
        is_skipped = re.search(rf"^\| {number}\S* +\| +PASSED", said, re.MULTILINE) is None
        return Outcome(number, code != 0, code == 0 and is_skipped, failure[0] if failure else said[-300:])


def built_librdkafka() -> Path:
    """The directory of librdkafka with its libraries and test-runner. Skips where it cannot be fetched or built."""
    home = CACHE / "librdkafka" / VERSION
    if home.is_dir():
        return home
    for program in ("npm", "make", "gcc", "g++"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")
    partial = home.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _command(["npm", "pack", "--silent", PACKAGE], partial)
    [archive] = partial.glob("*.tgz")
    _command(["tar", "xzf", archive.name, "--strip-components=3", SOURCE], partial)
    _command(["./configure", "--disable-gssapi", "--disable-curl", "--disable-optimization"], partial)
    _command(["make", "-j2", "libs"], partial)
    _command(["make", "-j2", "-C", "tests", "test-runner"], partial)
    partial.rename(home)
    return home


def _command(words: list[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            words, cwd=directory, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{words[0]} for librdkafka was not done in {BUILD_LIMIT_S:g} s")
    if done.returncode != 0:
        pytest.skip(f"{' '.join(words)} for librdkafka: {(done.stdout + done.stderr)[-300:]}")
