"""Kafka Streams with group.protocol=streams (KIP-1071): a word count, its standby copies, and its end by kill -9.

The broker makes the internal topics and assigns the tasks.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools, Running, java_command
from tests.compatibility.interop.transaction_stories import SETTINGS
from tests.compatibility.interop.word_count import WordCount

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
BROKER_SETTINGS = SETTINGS | {
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "500",
}
STREAMS_PROTOCOL = ("group.protocol=streams", "session.timeout.ms=-")
CLIENT = "Kafka Streams"


@pytest.fixture
def tools(broker: BrokerProcess, tools_4_3: Callable[[str], JavaTools]) -> JavaTools:
    return tools_4_3(broker.bootstrap)


@pytest.fixture
def word_count(tools: JavaTools, unique: Callable[[str], str], tmp_path: Path) -> Callable[..., WordCount]:
    return lambda *more: WordCount(tools, tmp_path, unique, *STREAMS_PROTOCOL, *more)


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0"])
def test_word_count(
    version: str,
    word_count: Callable[..., WordCount],
    tools: JavaTools,
    proved: Callable[..., None],
    until: Callable[..., Any],
) -> None:
    proved(
        CLIENT,
        version,
        "group.protocol=streams: a word count (the broker makes its topics, two threads): right counts, also after a "
        "restart of the app with its store and another one that restores the store from the changelog",
    )
    java_command(version)
    app = word_count()
    app.java = JavaTools(version, tools.bootstrap, tools.run)
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

    described = tools("TopicCommand", "--describe")
    for inner, policy in (
        ("by-word-repartition", "cleanup.policy=delete"),
        ("counts-changelog", "cleanup.policy=compact"),
    ):
        topic = f"{app.application}-{inner}"
        line = next(line for line in described.splitlines() if topic in line and "Configs:" in line)
        assert policy in line and "PartitionCount: 2" in line, line


def test_each_word_counts_once(
    word_count: Callable[..., WordCount],
    tools: JavaTools,
    proved: Callable[..., None],
    until: Callable[..., Any],
) -> None:
    proved(
        CLIENT,
        tools.version,
        "group.protocol=streams: a word count with exactly_once_v2, killed twice at work: each word counts once",
    )
    app = word_count("processing.guarantee=exactly_once_v2")
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


def test_two_apps_share_tasks_and_one_takes_over(
    word_count: Callable[..., WordCount],
    tools: JavaTools,
    proved: Callable[..., None],
    until: Callable[..., Any],
    tmp_path: Path,
    broker: BrokerProcess,
) -> None:
    proved(
        CLIENT,
        tools.version,
        "group.protocol=streams: two processes with standby tasks, which know the hosts of all counts; one killed, the "
        "broker restarted: right counts",
    )
    app = word_count("num.stream.threads=1", "application.server=one:1")
    group = ["--entity-type", "groups", "--entity-name", app.application]
    tools("ConfigCommand", *group, "--alter", "--add-config", "streams.num.standby.replicas=1")
    one = app.start()
    app.state = tmp_path / "state of the other"
    app.more = (*STREAMS_PROTOCOL, "num.stream.threads=1", "application.server=other:2")
    other = app.start()
    try:
        for running in (one, other):
            until(lambda running=running: "RUNNING" in running.said(), "the apps to run", 90)
        app.tell(25)
        until(lambda: app.counted() == app.told, "the counts of two apps")

        def shares() -> list[tuple[int, int]]:
            return sorted(tasks_of(tools, app.application))

        until(lambda: shares() == [(2, 1), (2, 1)], "two active tasks and a standby task each")
        for running in (one, other):
            until(
                lambda running=running: hosts_of(running) == {"one": (1, 1), "other": (1, 1)}, "both hosts to be known"
            )
        other.kill()
        app.tell(25)
        until(lambda: app.counted() == app.told, "the counts of the app that is left")
        broker.restart()
        app.tell(25)
        until(lambda: app.counted() == app.told, "the counts after a restart of the broker")
        assert "ERROR" not in one.said()
    finally:
        one.kill()
        other.kill()


def hosts_of(app: Running) -> dict[str, tuple[int, int]]:
    """By host: how many partitions of the counts it has, active and standby, as the app knows it."""
    said = app.said().rpartition("HOSTS ")[2].partition("\n")[0]
    rows = re.findall(r"host='(\w+)'.*?topicPartitions=\[(.*?)\].*?standbyTopicPartitions=\[(.*?)\]", said)
    return {host: (active.count("by-word"), standby.count("by-word")) for host, active, standby in rows}


def tasks_of(tools: JavaTools, group: str) -> list[tuple[int, int]]:
    """The numbers of active and of standby tasks of each member."""
    described = tools("StreamsGroupCommand", "--describe", "--group", group, "--members")
    rows = [line for line in described.splitlines() if line.startswith(group)]
    return [(number_of("ACTIVE", row), number_of("STANDBY", row)) for row in rows]


def number_of(kind: str, row: str) -> int:
    found = re.search(rf"\b{kind}: ((?:\w+:\[[\d, ]*\]; )+)", f"{row} ")
    return len(re.findall(r"\d+(?=[,\]])", found[1])) if found else 0
