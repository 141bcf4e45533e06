"""Share groups by Kafka 4.3's console and verifiable consumers, kafka-share-groups and kafka-dump-log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
CLIENT = "kafka-clients and its tools"
COUNT = 1_000


@pytest.fixture
def tools(broker: BrokerProcess, tools_4_3: Callable[[str], JavaTools]) -> JavaTools:
    return tools_4_3(broker.bootstrap)


@pytest.fixture
def topic(tools: JavaTools, request: pytest.FixtureRequest) -> str:
    """A topic with records; a share group of its name begins at the first of them."""
    topic = re.sub(r"\W", "-", request.node.name)
    tools.create_topic(topic)
    tools.produce(topic, "".join(f"{number}\n" for number in range(COUNT)))
    group = ["--entity-type", "groups", "--entity-name", topic]
    tools("ConfigCommand", *group, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    return topic


def consume(tools: JavaTools, topic: str, count: int, *arguments: str) -> list[int]:
    limits = ["--max-messages", count, "--timeout-ms", 30_000]
    said = tools("ConsoleShareConsumer", "--topic", topic, "--group", topic, *limits, *arguments)
    return [int(line) for line in said.splitlines() if line.isdecimal()]


def start_and_lag(tools: JavaTools, topic: str) -> tuple[int, int]:
    described = tools("ShareGroupCommand", "--describe", "--group", topic)
    found = re.search(rf"^{topic}\s+{topic}\s+0\s+(\d+)\s+(\d+)", described, re.MULTILINE)
    assert found, described
    return int(found[1]), int(found[2])


def test_console_consumer_and_offsets(
    tools: JavaTools, topic: str, broker: BrokerProcess, proved: Callable[[str, str, str], None]
) -> None:
    proved(
        CLIENT,
        tools.version,
        "kafka-console-share-consumer: accepts, releases; kafka-share-groups: list, describe, reset, delete; "
        "kafka-dump-log reads the state",
    )
    assert len(consume(tools, topic, 100, "--release")) == 100
    assert start_and_lag(tools, topic) == (0, COUNT)
    assert sorted(consume(tools, topic, COUNT)) == list(range(COUNT))
    assert start_and_lag(tools, topic)[1] == 0  # the start is written with the next change
    assert topic in tools("ShareGroupCommand", "--list").split()
    reset = ["--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute"]
    tools("ShareGroupCommand", *reset)
    assert start_and_lag(tools, topic) == (0, COUNT)
    broker.restart()
    assert start_and_lag(tools, topic) == (0, COUNT)
    assert sorted(consume(tools, topic, COUNT)) == list(range(COUNT))

    logs = [path for log_dir in broker.log_dirs.values() for path in log_dir.glob("__share_group_state-*/*.log")]
    files = [path for path in logs if path.stat().st_size]
    dumped = tools(
        "DumpLogSegments",
        "--share-group-state-decoder",
        "--skip-record-metadata",
        "--files",
        ",".join(map(str, files)),
        at=None,
    )
    keys = re.findall(r'"groupId":"([\w-]+)".*?"partition":(\d+)', dumped)
    assert keys and set(keys) == {(topic, "0")}
    starts = [int(found) for found in re.findall(r'"startOffset":(-?\d+)', dumped)]
    assert starts[0] == -1 and 0 in starts, dumped[-2_000:]

    tools("ShareGroupCommand", "--delete", "--group", topic)
    assert topic not in tools("ShareGroupCommand", "--list").split()


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_verifiable_consumer(
    tools: JavaTools, topic: str, tmp_path: Path, proved: Callable[[str, str, str], None], mode: str
) -> None:
    proved(CLIENT, tools.version, "VerifiableShareConsumer: acknowledges by itself, at once, and later")
    running = tools.start(
        "VerifiableShareConsumer",
        *("--topic", topic, "--group-id", topic, "--max-messages", COUNT, "--acknowledgement-mode", mode),
        output=tmp_path / "said.txt",
    )
    said = [json.loads(line) for line in running.wait().splitlines() if line.startswith("{")]
    acknowledged = [each for each in said if each["name"] == "offsets_acknowledged"]
    assert all(each["success"] for each in acknowledged), acknowledged
    assert sum(each["count"] for each in acknowledged) == COUNT


def test_performance_of_consumers(tools: JavaTools, topic: str, proved: Callable[[str, str, str], None]) -> None:
    proved(CLIENT, tools.version, "kafka-share-consumer-perf-test: one thread, and three that share the records")
    for threads in (1, 3):
        group = f"{topic}-{threads}"
        settings = ["--entity-type", "groups", "--entity-name", group]
        tools("ConfigCommand", *settings, "--alter", "--add-config", "share.auto.offset.reset=earliest")
        arguments = ("--topic", topic, "--group", group, "--num-records", COUNT, "--threads", threads)
        said = tools("ShareConsumerPerformance", *arguments, "--timeout", 30_000)
        columns = said.splitlines()[-1].split(", ")
        assert COUNT in [int(each) for each in columns if each.isdecimal()], said
