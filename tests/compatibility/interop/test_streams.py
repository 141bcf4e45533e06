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
from tests.compatibility.interop.transaction_stories import SETTINGS

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
BROKER_SETTINGS = SETTINGS
PROGRAM = Path(__file__).parent / "java" / "WordCount.java"
LINES = ("the quick brown fox", "jumps over the lazy dog", "the dog sleeps", "and the fox is quick")
LONG = "org.apache.kafka.common.serialization.LongDeserializer"


class WordCount:
    """The topics of the app, what was written to them, and the app itself."""

    def __init__(self, java: JavaTools, home: Path, unique: Callable[[str], str], *more: str) -> None:
        self.java = java
        self.home = home
        self.application, self.lines, self.counts = unique("word-count"), unique("lines"), unique("counts")
        self.more = more
        self.state = home / "state"
        self.told: Counter[str] = Counter()
        self.starts = 0
        java.create_topic(self.lines, 2)
        java.create_topic(self.counts, 2)

    def start(self) -> Running:
        names = [self.application, self.lines, self.counts, str(self.state), *self.more]
        self.starts += 1
        command = [*java_command(self.java.version), str(PROGRAM), self.java.bootstrap, *names]
        return Running(command, self.home / f"app-{self.starts}.txt")

    def tell(self, rounds: int) -> None:
        self.java.produce(self.lines, "".join(f"{line}\n" for line in LINES * rounds))
        for line in LINES * rounds:
            self.told.update(line.split())

    def history(self, isolation: str = "read_uncommitted") -> dict[str, list[int]]:
        """The counts of every word, as the output topic tells them. Counts of a word stand in order."""
        shown = self.java(
            *("ConsoleConsumer", "--topic", self.counts, "--from-beginning", "--timeout-ms", 3000),
            *(f"--consumer-property=isolation.level={isolation}", "--property", "print.key=true"),
            *("--property", f"value.deserializer={LONG}"),
            check=False,
        )
        rows = [line.split("\t") for line in shown.splitlines() if "\t" in line]
        counts: dict[str, list[int]] = {}
        for row in rows:
            if len(row) == 2 and row[1].isdigit():
                counts.setdefault(row[0], []).append(int(row[1]))
        return counts

    def counted(self, isolation: str = "read_uncommitted") -> dict[str, int]:
        return {word: counts[-1] for word, counts in self.history(isolation).items()}


@pytest.fixture
def word_count(
    broker: Any, run: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> Callable[..., WordCount]:
    def word_count(version: str, *more: str) -> WordCount:
        java_command(version)
        return WordCount(JavaTools(version, broker.bootstrap, run), tmp_path, unique, *more)

    return word_count


@pytest.mark.parametrize("version", ["2.7.2", "3.9.1", "4.1.0"])
def test_word_count(
    version: str, word_count: Callable[..., WordCount], proved: Callable[..., None], until: Callable[..., Any]
) -> None:
    proved(
        "Kafka Streams",
        version,
        "a word count (repartition and changelog topics, two threads): right counts, also after a restart of the app "
        "with its store and another one that restores the store from the changelog",
    )
    app = word_count(version)
    for how in ("fresh", "with its store", "without its store"):
        if how == "without its store":
            shutil.rmtree(app.state)
        running = app.start()
        try:
            until(lambda running=running: "RUNNING" in running.said(), f"the app to run {how}", 90)
            app.tell(25)
            until(lambda: app.counted() == app.told, f"the counts of the app {how}")
            running.stop()
            assert "STOPPED" in running.said(), running.said()
        finally:
            running.kill()

    described = app.java("TopicCommand", "--describe")
    for inner, policy in (
        ("by-word-repartition", "cleanup.policy=delete"),
        ("counts-changelog", "cleanup.policy=compact"),
    ):
        topic = f"{app.application}-{inner}"
        line = next(line for line in described.splitlines() if topic in line and "Configs:" in line)
        assert policy in line and "PartitionCount: 2" in line, line


@pytest.mark.parametrize(
    ("version", "guarantee"),
    [
        ("2.7.2", "exactly_once"),
        ("2.7.2", "exactly_once_beta"),
        ("3.9.1", "exactly_once_v2"),
        ("4.1.0", "exactly_once_v2"),
    ],
)
def test_each_word_counts_once(
    version: str,
    guarantee: str,
    word_count: Callable[..., WordCount],
    proved: Callable[..., None],
    until: Callable[..., Any],
) -> None:
    proved("Kafka Streams", version, f"a word count with {guarantee}, killed twice at work: each word counts once")
    app = word_count(version, guarantee)
    for kills in range(3):
        running = app.start()
        try:
            until(lambda running=running: "RUNNING" in running.said(), "the app to run", 120)
            before = sum(map(len, app.history().values()))
            app.tell(200)
            if kills < 2:
                until(lambda before=before: sum(map(len, app.history().values())) > before, "a new count", 120)
            else:
                until(lambda: app.counted("read_committed") == app.told, "the counts that are committed", 120)
                running.stop()
        finally:
            running.kill()
    history = app.history("read_committed")
    assert all(counts == sorted(set(counts)) for counts in history.values()), history
