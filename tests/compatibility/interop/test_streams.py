"""A word count with Kafka Streams: repartition and changelog topics, threads in one group, restarts that resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.compatibility.interop.transaction_stories import SETTINGS
from tests.compatibility.interop.word_count import WordCount

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
BROKER_SETTINGS = SETTINGS


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
    app = word_count(version, f"processing.guarantee={guarantee}")
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
