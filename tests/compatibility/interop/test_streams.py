"""A word count with Kafka Streams: repartition and changelog topics, threads in one group, restarts that resume.

The program is `java/WordCount.java`, compiled by `java` itself as it starts.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop.java_tools import JavaTools, Running, java_command

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
PROGRAM = Path(__file__).parent / "java" / "WordCount.java"
LINES = ("the quick brown fox", "jumps over the lazy dog", "the dog sleeps", "and the fox is quick")
LONG = "org.apache.kafka.common.serialization.LongDeserializer"


@pytest.mark.parametrize("version", ["2.7.2", "3.9.1", "4.1.0"])
def test_word_count(
    version: str,
    broker: Any,
    run: Callable[..., str],
    proved: Callable[..., None],
    unique: Callable[[str], str],
    until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    proved(
        "Kafka Streams",
        version,
        "a word count (repartition and changelog topics, two threads): right counts, also after a restart of the app "
        "with its store and another one that restores the store from the changelog",
    )
    java = JavaTools(version, broker.bootstrap, run)
    command = java_command(version)
    application, lines, counts = unique("word-count"), unique("lines"), unique("counts")
    java.create_topic(lines, 2)
    java.create_topic(counts, 2)
    state = tmp_path / "state"
    told: Counter[str] = Counter()

    def app(number: int) -> Running:
        arguments = [str(PROGRAM), broker.bootstrap, application, lines, counts, str(state)]
        return Running([*command, *arguments], tmp_path / f"app-{number}.txt")

    def tell(rounds: int) -> None:
        java.produce(lines, "".join(f"{line}\n" for line in LINES * rounds))
        for line in LINES * rounds:
            told.update(line.split())

    def counted() -> dict[str, int]:
        """The newest count of every word, as the output topic tells it. Counts of a word stand in order."""
        shown = java(
            *("ConsoleConsumer", "--topic", counts, "--from-beginning", "--timeout-ms", 3000),
            *("--property", "print.key=true", "--property", f"value.deserializer={LONG}"),
            check=False,
        )
        rows = [line.split("\t") for line in shown.splitlines() if "\t" in line]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}

    for number, how in enumerate(("fresh", "with its store", "without its store")):
        if how == "without its store":
            shutil.rmtree(state)
        running = app(number)
        try:
            until(lambda running=running: "RUNNING" in running.said(), f"the app to run {how}", 90)
            tell(25)
            until(lambda: counted() == told, f"the counts of the app {how}")
            running.stop()
            assert "STOPPED" in running.said(), running.said()
        finally:
            running.kill()

    described = java("TopicCommand", "--describe")
    for inner, policy in (
        ("by-word-repartition", "cleanup.policy=delete"),
        ("counts-changelog", "cleanup.policy=compact"),
    ):
        line = next(line for line in described.splitlines() if f"{application}-{inner}" in line and "Configs:" in line)
        assert policy in line and "PartitionCount: 2" in line, line
