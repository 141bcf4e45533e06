"""Kafka 2.7.2's tools with --zookeeper on a cluster whose partitions have several replicas.

kafka-topics lists partitions that lack replicas, kafka-reassign-partitions and kafka-preferred-replica-election leave
their requests in ZooKeeper, and the controller carries them out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.compatibility.interop.conftest import BrokerProcess, run_command
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.compatibility.interop.swap_scene import read
from tests.compatibility.interop.zookeeper_broker import broker_on
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.znode_tree import read_tree, zookeeper_client
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
VERSION = "2.7.2"
CHROOT = "/replicas-of-old"
COUNT = 200


@pytest.fixture(scope="module")
def connect(zookeeper: ZooKeeper) -> str:
    return zookeeper.connect + CHROOT


@pytest.fixture(scope="module")
def brokers(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with ExitStack() as stack:
        settings = {"auto.leader.rebalance.enable": "false", "min.insync.replicas": "2"}
        yield [
            stack.enter_context(
                broker_on(connect, tmp_path_factory.mktemp("broker"), **{"broker.id": str(number)} | settings)
            )
            for number in range(3)
        ]


@pytest.fixture
def tool(connect: str, brokers: list[BrokerProcess]) -> Callable[..., str]:
    """tool("TopicCommand", "--list")"""
    java_command(VERSION)
    tools = JavaTools(VERSION, connect, run_command)
    return lambda name, *arguments: tools(name, *arguments, at="--zookeeper")


@pytest.fixture
def tell(proved: Callable[..., None]) -> Callable[[str], None]:
    return lambda what: proved("Kafka's tools with --zookeeper", VERSION, what)


def create(tool: Callable[..., str], topic: str, *replicas: tuple[int, ...]) -> None:
    assignment = ",".join(":".join(map(str, each)) for each in replicas)
    tool("TopicCommand", "--create", "--topic", topic, "--replica-assignment", assignment)


def described(tool: Callable[..., str], topic: str, *filters: str) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each partition that passes the filters."""
    shown = tool("TopicCommand", "--describe", "--topic", topic, *filters)
    rows = re.findall(r"Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", shown)

    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",") if each]

    return [(int(leader), numbers(replicas), sorted(numbers(isr))) for leader, replicas, isr in rows]


def write(brokers: list[BrokerProcess], topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": ",".join(broker.bootstrap for broker in brokers), "acks": "all"})
    for number in range(COUNT):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(DEADLINE_S) == 0


def values(brokers: list[BrokerProcess], topic: str, partitions: int) -> list[int]:
    found = read(brokers[0].bootstrap, [(topic, index) for index in range(partitions)])
    return sorted(int(record.value or b"") for records in found.values() for record in records)


def test_partitions_that_lack_replicas_are_listed(
    tool: Callable[..., str], brokers: list[BrokerProcess], tell: Callable[[str], None], unique: Callable[[str], str]
) -> None:
    tell("kafka-topics: --under-replicated-partitions and --unavailable-partitions, with brokers away")
    topic = unique("lacking")
    create(tool, topic, (0, 1), (1, 2), (0, 2))
    under, away = "--under-replicated-partitions", "--unavailable-partitions"
    until(lambda: len(described(tool, topic)) == 3 and not described(tool, topic, under), "whole ISRs")
    brokers[2].stop()
    assert described(tool, topic, under) == [(1, [1, 2], [1]), (0, [0, 2], [0])]
    assert described(tool, topic, away) == []
    brokers[1].stop()
    shown = tool("TopicCommand", "--describe", "--topic", topic, away)
    assert re.findall(r"Partition: (\d+)", shown) == ["1"], shown
    for number in (1, 2):
        brokers[number].start()
    until(lambda: not any(described(tool, topic, each) for each in (under, away)), "whole ISRs again")


def test_partitions_move_by_a_request_in_zookeeper(
    tool: Callable[..., str], brokers: list[BrokerProcess], tell: Callable[[str], None], unique: Callable[[str], str],
    connect: str, tmp_path: Path,
) -> None:  # fmt: skip
    tell("kafka-reassign-partitions: --generate, --execute with a throttle, --verify; the records are all there")
    topic = unique("moved")
    create(tool, topic, (0, 1), (1, 0))
    until(lambda: [isr for _, _, isr in described(tool, topic)] == [[0, 1], [0, 1]], "whole ISRs")
    write(brokers, topic, 2)
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate = ["--generate", "--topics-to-move-json-file", wanted, "--broker-list", "1,2"]
    generated = tool("ReassignPartitionsCommand", *generate)
    proposed = json.loads(generated.splitlines()[-1])["partitions"]
    assert all(sorted(each["replicas"]) == [1, 2] for each in proposed), generated
    plan = tmp_path / "plan.json"
    moves: list[dict[str, Any]] = [
        {"topic": topic, "partition": 0, "replicas": [2, 1]},
        {"topic": topic, "partition": 1, "replicas": [0, 2]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))

    def reassign(command: str, *more: Any) -> str:
        return tool("ReassignPartitionsCommand", command, "--reassignment-json-file", plan, *more)

    assert "Successfully started partition reassignments" in reassign("--execute", "--throttle", 50_000_000)

    def is_complete() -> bool:
        verified = reassign("--verify")
        return all(f"Reassignment of partition {topic}-{number} is complete." in verified for number in (0, 1))

    until(is_complete, lambda: f"the end of the reassignment: {reassign('--verify')}")
    assert [(replicas, isr) for _, replicas, isr in described(tool, topic)] == [([2, 1], [1, 2]), ([0, 2], [0, 2])]
    assert values(brokers, topic, 2) == list(range(COUNT))
    with zookeeper_client(connect) as znodes:
        tree = read_tree(znodes)
    assert "/admin/reassign_partitions" not in tree
    assert not any("throttled" in key for key in tree[f"/config/topics/{topic}"].data["config"])


def test_leadership_goes_to_the_preferred_replicas(
    tool: Callable[..., str], brokers: list[BrokerProcess], tell: Callable[[str], None], unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    tell("kafka-preferred-replica-election, after a broker was away")
    topic = unique("led")
    create(tool, topic, (2, 0), (2, 1))
    until(lambda: [isr for _, _, isr in described(tool, topic)] == [[0, 2], [1, 2]], "whole ISRs")
    brokers[2].restart()
    until(lambda: described(tool, topic) == [(0, [2, 0], [0, 2]), (1, [2, 1], [1, 2])], "whole ISRs again")
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    tool("PreferredReplicaLeaderElectionCommand", "--path-to-json-file", chosen)
    until(lambda: described(tool, topic) == [(2, [2, 0], [0, 2]), (1, [2, 1], [1, 2])], "the preferred leader")
