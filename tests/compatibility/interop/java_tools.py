"""Apache Kafka's command line tools of one version, called by class as their shell scripts call them.

A tool is named by its class ("TopicCommand"); which package it lives in changed from version to version, so the jars
are asked. Each call is a JVM: small heap, one collector thread, only the quick compiler.
"""

from __future__ import annotations

import functools
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.reference import ReferenceUnavailable
from bench.reference.jars import jar_directory, java

VERSIONS = ("2.7.2", "3.9.1", "4.1.0", "4.3.0")
LIGHT = ("-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
SOURCES = Path(__file__).parent / "java"
LOG4J = SOURCES / "log4j.properties"
TOOL_SECONDS = 120.0  # a JVM starts in one second, or in a minute where everybody wants the machine


class JavaTools:
    """`tools("TopicCommand", "--list")` runs it against the broker and returns what it printed."""

    def __init__(self, version: str, bootstrap: str, run: Callable[..., str]) -> None:
        self.version = version
        self.bootstrap = bootstrap
        self.run = run

    def __call__(self, tool: str, *arguments: Any, at: str | None = "--bootstrap-server", **how: Any) -> str:
        """`at` is what this tool calls the broker's address (None: it is among the arguments), `how` is for `run`."""
        return self.run(self.command(tool, *arguments, at=at), how.pop("timeout", TOOL_SECONDS), **how)

    def command(self, tool: str, *arguments: Any, at: str | None = "--bootstrap-server") -> list[str]:
        address = [at, self.bootstrap] if at else []
        return [*java_command(self.version), tool_class(self.version, tool), *address, *map(str, arguments)]

    def start(self, tool: str, *arguments: Any, output: Path, at: str | None = "--bootstrap-server") -> Running:
        """The tool in the background, its output (both kinds) in a file."""
        return Running(self.command(tool, *arguments, at=at), output)

    def dump_offsets(self, *segments: Path) -> str:
        """Segments of `__consumer_offsets` as kafka-dump-log prints them with the decoder of groups."""
        files = ["--files", ",".join(map(str, segments))]
        return self("DumpLogSegments", "--offsets-decoder", "--skip-record-metadata", *files, at=None)

    # What nearly every story needs.

    def create_topic(self, topic: str, partitions: int = 1, **config: object) -> str:
        settings = [f"--config={key.replace('_', '.')}={value}" for key, value in config.items()]
        size = ["--partitions", partitions, "--replication-factor", 1]
        return self("TopicCommand", "--create", "--topic", topic, *size, *settings)

    def produce(self, topic: str, lines: str, *arguments: Any, **settings: object) -> None:
        """Type lines into the console producer; `settings` are the producer's own."""
        chosen = [f"--producer-property={key.replace('_', '.')}={value}" for key, value in settings.items()]
        self("ConsoleProducer", "--topic", topic, *chosen, *arguments, typed=lines)

    def consume(self, topic: str, count: int, *arguments: Any, **settings: object) -> list[str]:
        """The lines of the console consumer: it ends after `count` records, or fails after a while without."""
        chosen = [f"--consumer-property={key.replace('_', '.')}={value}" for key, value in settings.items()]
        limits = ["--max-messages", count, "--timeout-ms", 30_000]
        return NOTICES.sub("", self("ConsoleConsumer", "--topic", topic, *limits, *chosen, *arguments)).splitlines()


# The console consumer of 4.3 prints them among the records.
NOTICES = re.compile(r"^(?:Option --\S+ is deprecated|The consumer rebalance protocol) .*\n", re.MULTILINE)


class Running:
    """A process in the background, and what it has printed so far."""

    def __init__(self, command: list[str], output: Path) -> None:
        self.output = output
        with output.open("wb") as sink:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)

    def said(self) -> str:
        return NOTICES.sub("", self.output.read_text(errors="replace"))

    def wait(self, seconds: float = TOOL_SECONDS) -> str:
        """Until it ends by itself, well."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"not done in {seconds:g} s: {self.said()[-4000:]}")
        assert code == 0, f"exit code {code}: {self.said()[-4000:]}"
        return self.said()

    def stop(self, seconds: float = TOOL_SECONDS) -> str:
        """SIGTERM, and everything it said. A JVM's exit code is 143 then."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"did not stop in {seconds:g} s: {self.said()[-4000:]}")
        return self.said()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def java_command(version: str, *options: str) -> list[str]:
    """`java ... -cp` of this Kafka version, up to the class; the test is skipped where that cannot be had."""
    try:
        jars = jar_directory(version)
        return [java(), *LIGHT, f"-Dlog4j.configuration=file:{LOG4J}", *options, "-cp", f"{jars}/*"]
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@functools.cache
def tool_class(version: str, tool: str) -> str:
    """The full name of a tool's class."""
    place = re.compile(rf"(org/apache/)?kafka/(?:\w+/)*{tool}\.class")
    for jar in sorted(jar_directory(version).glob("*-" + version + ".jar")):
        with zipfile.ZipFile(jar) as entries:
            for name in entries.namelist():
                if place.fullmatch(name):
                    return name.removesuffix(".class").replace("/", ".")
    raise LookupError(f"no {tool} in Kafka {version}")
