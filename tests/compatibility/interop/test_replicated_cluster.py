"""Kafka's tools and a cluster of three brokers whose partitions have several replicas.

kafka-topics, kafka-reassign-partitions, kafka-leader-election, kafka-replica-verification: each as an operator runs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing import Cluster
from tests.compatibility.interop.conftest import run_command
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.support.wait import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
VERSION = "3.9.1"
COUNT = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def tools(cluster: Cluster) -> JavaTools:
    java_command(VERSION)
    return JavaTools(VERSION, cluster.bootstrap_servers, run_command)


@pytest.fixture
def tell(proved: Callable[..., None]) -> Callable[[str], None]:
    return lambda what: proved("Kafka's tools and replicas", VERSION, what)


def create(tools: JavaTools, topic: str, *replicas: tuple[int, ...]) -> None:
    assignment = ",".join(":".join(map(str, each)) for each in replicas)
    tools("TopicCommand", "--create", "--topic", topic, "--replica-assignment", assignment)


def described(tools: JavaTools, topic: str) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each partition."""
    shown = tools("TopicCommand", "--describe", "--topic", topic)
    rows = re.findall(r"Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", shown)

    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",") if each]

    return [(int(leader), numbers(replicas), sorted(numbers(isr))) for leader, replicas, isr in rows]


def test_topics_have_replicas(tools: JavaTools, cluster: Cluster, tell: Callable[[str], None]) -> None:
    tell("kafka-topics --create --replication-factor 3, --describe, --alter --partitions")
    wanted = ["--partitions", 6, "--replication-factor", 3]
    tools("TopicCommand", "--create", "--topic", "spread", *wanted)
    rows = described(tools, "spread")
    assert len(rows) == 6
    assert all(leader == replicas[0] and sorted(replicas) == isr == [0, 1, 2] for leader, replicas, isr in rows)
    tools("TopicCommand", "--alter", "--topic", "spread", "--partitions", 7)
    assert sorted(described(tools, "spread")[6][1]) == [0, 1, 2]
    assert tools("TopicCommand", "--describe", "--under-replicated-partitions").strip() == ""
    refused = tools(
        "TopicCommand", "--create", "--topic", "four", "--partitions", 1, "--replication-factor", 4, check=False
    )
    assert "Replication factor: 4 larger than available brokers: 3" in refused


def test_partitions_move_while_they_are_written_to(
    tools: JavaTools, cluster: Cluster, tell: Callable[[str], None], tmp_path: Path
) -> None:
    tell("kafka-reassign-partitions --execute, --list, --verify, with a throttle; records are all there")
    create(tools, "moved", (0, 1), (1, 0))
    tools.produce("moved", "".join(f"{number}\n" for number in range(COUNT)))
    plan = tmp_path / "plan.json"
    rows = [("moved", 0, [2, 1]), ("moved", 1, [0, 2])]
    partitions = [dict(zip(("topic", "partition", "replicas"), row, strict=True)) for row in rows]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    def reassign(command: str, *more: Any) -> str:
        return tools("ReassignPartitionsCommand", command, "--reassignment-json-file", plan, *more)

    assert "Successfully started partition reassignments" in reassign("--execute", "--throttle", 50_000_000)

    def is_complete() -> bool:
        verified = reassign("--verify")
        return all(f"Reassignment of partition moved-{number} is completed." in verified for number in (0, 1))

    until(is_complete, "the end of the reassignment")
    assert "No partition reassignments found." in tools("ReassignPartitionsCommand", "--list")
    assert [(replicas, isr) for _, replicas, isr in described(tools, "moved")] == [([2, 1], [1, 2]), ([0, 2], [0, 2])]
    assert sorted(map(int, tools.consume("moved", COUNT, "--from-beginning"))) == list(range(COUNT))


def test_a_reassignment_under_way_is_listed_and_cancelled(
    tools: JavaTools, cluster: Cluster, tell: Callable[[str], None], tmp_path: Path
) -> None:
    tell("kafka-reassign-partitions --list and --cancel while a throttle holds the new replica back")
    create(tools, "held", (0, 1))
    lines = [f"{number:05d}{'x' * 1_000}" for number in range(4_000)]
    tools.produce("held", "".join(f"{line}\n" for line in lines))
    plan = tmp_path / "plan.json"
    partitions = [{"topic": "held", "partition": 0, "replicas": [0, 2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    reassignment = ["--reassignment-json-file", plan]
    tools("ReassignPartitionsCommand", "--execute", *reassignment, "--throttle", 1_000)
    shown = tools("ReassignPartitionsCommand", "--list")
    assert re.search(r"held-0: replicas: \S+ adding: 2\. removing: 1\.", shown)
    assert described(tools, "held")[0][2] == [0, 1], "the new replica is far behind"
    cancelled = tools("ReassignPartitionsCommand", "--cancel", *reassignment)
    assert re.search("Successfully cancell?ed partition reassignments? for: held-0", cancelled)
    assert "No partition reassignments found." in tools("ReassignPartitionsCommand", "--list")
    assert described(tools, "held") == [(0, [0, 1], [0, 1])]
    configs = tools("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "held")
    assert "throttled" not in configs
    assert tools.consume("held", len(lines), "--from-beginning") == lines


def test_leadership_comes_back(tools: JavaTools, cluster: Cluster, tell: Callable[[str], None]) -> None:
    tell("kafka-leader-election --election-type preferred after an orderly stop; --under-replicated-partitions")
    create(tools, "led", (2, 0), (1, 2))
    cluster.stop(2)
    assert described(tools, "led") == [(0, [2, 0], [0]), (1, [1, 2], [1])]
    shown = tools("TopicCommand", "--describe", "--topic", "led", "--under-replicated-partitions")
    assert len(re.findall("Partition: ", shown)) == 2
    cluster.start(2)
    for partition in (0, 1):
        cluster.wait_for_isr("led", partition, {0, 2} if partition == 0 else {1, 2})
    tools("LeaderElectionCommand", "--election-type", "preferred", "--topic", "led", "--partition", 0)
    assert described(tools, "led") == [(2, [2, 0], [0, 2]), (1, [1, 2], [1, 2])]


def test_a_producer_notices_nothing_but_new_leaders(
    tools: JavaTools, cluster: Cluster, tell: Callable[[str], None], tmp_path: Path
) -> None:
    tell(
        "kafka-verifiable-producer with the retries that are a producer's default: brokers restart in turn, none fails"
    )
    create(tools, "steady", (0, 1, 2), (1, 2, 0), (2, 0, 1))
    config = tmp_path / "client.producer.properties"
    config.write_text(f"retries={2**31 - 1}\n")  # the tool's own is 0
    steady = ["--topic", "steady", "--throughput", 300, "--producer.config", config]
    producer = tools.start("VerifiableProducer", *steady, output=tmp_path / "steady.txt")

    def told(name: str) -> list[dict[str, Any]]:
        lines = [line for line in producer.said().splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for event in map(json.loads, lines) if event["name"] == name]

    def await_progress() -> None:
        before = len(told("producer_send_success"))
        until(lambda: len(told("producer_send_success")) > before + 100, lambda: producer.said()[-2000:])

    try:
        for number in (0, 1, 2):
            await_progress()
            cluster.stop(number)
            await_progress()
            cluster.start(number)
            for partition in range(3):
                cluster.wait_for_isr("steady", partition, {0, 1, 2})
        await_progress()
    finally:
        producer.stop()
    assert not told("producer_send_error")
    values = {int(event["value"]) for event in told("producer_send_success")}
    assert values == set(range(len(values)))
    read = tools.consume("steady", len(values), "--from-beginning")
    assert set(map(int, read)) == values


LAG = re.compile(r"max lag is (-?\d+) for partition (\S+) at offset (-?\d+) among (\d+) partitions")


def test_replicas_are_compared(tools: JavaTools, cluster: Cluster, tell: Callable[[str], None], tmp_path: Path) -> None:
    tell("kafka-replica-verification: no lag in a cluster that is whole; with a follower stopped, how far it is behind")
    create(tools, "compared", (0, 1, 2), (1, 2, 0))
    tools.produce("compared", "".join(f"{number}\n" for number in range(COUNT)))
    often = ["--topics-include", "compared", "--time", -2, "--report-interval-ms", 200, "--max-wait-ms", 100]
    verifier = tools.start("ReplicaVerificationTool", *often, at="--broker-list", output=tmp_path / "compared.txt")

    def reports() -> list[tuple[int, int]]:
        """The largest lag of all partitions, and how many there are."""
        return [(int(lag), int(count)) for lag, _, _, count in LAG.findall(verifier.said())]

    try:
        until(lambda: reports()[-3:] == [(0, 2)] * 3, lambda: f"no lag: {verifier.said()[-2000:]}")
        cluster.stop(2)
        behind = "".join(f"{number}\n" for number in range(COUNT))
        tools.produce("compared", behind)
        until(lambda: reports()[-1][0] > 0, lambda: f"a lag: {verifier.said()[-2000:]}")
        cluster.start(2)
        for partition in (0, 1):
            cluster.wait_for_isr("compared", partition, {0, 1, 2})
        until(lambda: reports()[-3:] == [(0, 2)] * 3, lambda: f"no lag again: {verifier.said()[-2000:]}")
    finally:
        said = verifier.stop()
    assert "doesn't match" not in said and "unmatched" not in said and "Exception" not in said, said[-4000:]
