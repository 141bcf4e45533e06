"""A word count with Kafka Streams: its topics, the words written to it, and the app itself.

The program is `java/WordCount.java`, compiled by `java` itself as it starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.compatibility.interop.java_tools import SOURCES, JavaTools, Running, java_command

PROGRAM = SOURCES / "WordCount.java"
LINES = ("the quick brown fox", "jumps over the lazy dog", "the dog sleeps", "and the fox is quick")
LONG = "org.apache.kafka.common.serialization.LongDeserializer"


class WordCount:
    """The topics of the app, what was written to them, and the app itself. `more`: settings as key=value."""

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
