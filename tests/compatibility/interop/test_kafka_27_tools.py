"""Kafka 2.7.2's tools with --zookeeper: what they write, kafkalite obeys within seconds; what it writes, they read.

kafka-topics creates, describes, lists, alters and deletes; kafka-configs changes settings; ZooKeeper's own shell reads.
None of them talks to a broker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kazoo.client import KazooClient

from tests.compatibility.interop.conftest import BrokerProcess, run_command
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.compatibility.interop.zookeeper_broker import broker_on
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.znode_tree import read_tree, zookeeper_client
from tests.support.zookeeper import KafkaliteZooKeeper, ZooKeeper, without_zookeeper

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
VERSION = "2.7.2"
CHROOT = "/tools-of-old"
SOON_S = 10.0  # from the end of a command to its effect; it is milliseconds where nobody else wants the machine


@pytest.fixture(scope="module", params=[ZooKeeper, KafkaliteZooKeeper], ids=["apache", "kafkalite"])
def connect(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param is ZooKeeper and (reason := without_zookeeper()) is not None:
        pytest.skip(reason)
    with request.param(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.connect + CHROOT


@pytest.fixture(scope="module")
def broker(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_on(connect, tmp_path_factory.mktemp("broker"), **{"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture(scope="module")
def znodes(connect: str, broker: BrokerProcess) -> Iterator[KazooClient]:
    with zookeeper_client(connect) as client:
        yield client


@pytest.fixture
def tool(connect: str, broker: BrokerProcess) -> Callable[..., str]:
    """tool("TopicCommand", "--list")"""
    java_command(VERSION)
    tools = JavaTools(VERSION, connect, run_command)
    return lambda name, *arguments: tools(name, *arguments, at="--zookeeper")


@pytest.fixture
def tell(proved: Callable[..., None]) -> Callable[[str], None]:
    return lambda what: proved("Kafka's tools with --zookeeper", VERSION, what)


def partitions_of(admin: AdminClient, topic: str) -> dict[int, int]:
    """The leader of each partition, from the broker's metadata."""
    found = admin.list_topics(topic, timeout=DEADLINE_S).topics.get(topic)
    return {} if found is None or found.error else {number: one.leader for number, one in found.partitions.items()}


def setting_of(admin: AdminClient, topic: str, name: str) -> tuple[str, bool]:
    """Its value, and whether it was set for this topic."""
    resource = ConfigResource("topic", topic)
    found = admin.describe_configs([resource])[resource].result(DEADLINE_S)[name]
    return found.value, not found.is_default


def write_and_read(broker: BrokerProcess, topic: str, *partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for partition in partitions:
        producer.produce(topic, b"of %d" % partition, b"key", partition)
    assert producer.flush(30) == 0
    read(broker, topic, *partitions)


def read(broker: BrokerProcess, topic: str, *partitions: int) -> None:
    """Each has the one record that was written to it."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found = {(one.partition(), one.value()) for one in consumer.consume(len(partitions), 30)}
    consumer.close()
    assert found == {(partition, b"of %d" % partition) for partition in partitions}


def test_topics_are_created_altered_and_deleted(
    tool: Callable[..., str], broker: BrokerProcess, admin: AdminClient, tell: Callable[[str], None],
    unique: Callable[[str], str], znodes: KazooClient,
) -> None:  # fmt: skip
    tell("kafka-topics: create, describe, list, alter (partitions, settings), delete; kafkalite serves what was made")
    topic = unique("t")
    size = ["--partitions", 3, "--replication-factor", 1]
    assert f"Created topic {topic}." in tool(
        "TopicCommand", "--create", "--topic", topic, *size, "--config", "retention.ms=3600000"
    )
    until(lambda: partitions_of(admin, topic) == dict.fromkeys(range(3), 0), "the topic to be served", SOON_S)
    assert setting_of(admin, topic, "retention.ms") == ("3600000", True)
    write_and_read(broker, topic, 0, 1, 2)
    assert topic in tool("TopicCommand", "--list").splitlines()
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described and "retention.ms=3600000" in described
    assert described.count("Leader: 0\tReplicas: 0\tIsr: 0") == 3

    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", 5)
    until(lambda: partitions_of(admin, topic) == dict.fromkeys(range(5), 0), "more partitions", SOON_S)
    write_and_read(broker, topic, 3, 4)
    read(
        broker, topic, 0, 1, 2
    )  # the tool has written the topic anew, without its id; it is the same topic all the same
    tool("TopicCommand", "--alter", "--topic", topic, "--config", "max.message.bytes=1000")
    until(lambda: setting_of(admin, topic, "max.message.bytes") == ("1000", True), "the setting", SOON_S)
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"x" * 5000, partition=0, on_delivery=lambda error, _: refused.append(error))
    producer.flush(30)
    assert refused[0] is not None and refused[0].name() == "MSG_SIZE_TOO_LARGE"
    tool("TopicCommand", "--alter", "--topic", topic, "--delete-config", "max.message.bytes")
    until(lambda: not setting_of(admin, topic, "max.message.bytes")[1], "the setting to go", SOON_S)

    broker.restart()
    read(broker, topic, 0, 1, 2, 3, 4)
    tool("TopicCommand", "--delete", "--topic", topic)
    until(lambda: partitions_of(admin, topic) == {}, "the topic to go", SOON_S)
    until(lambda: not list(broker.data_dir.glob(f"{topic}-?")), "its files to be renamed to -stray", SOON_S)
    assert not any(topic in path for path in read_tree(znodes))
    assert topic not in tool("TopicCommand", "--list")


def test_replicas_are_placed_by_hand(
    tool: Callable[..., str], broker: BrokerProcess, admin: AdminClient, tell: Callable[[str], None],
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    tell("kafka-topics: create with --replica-assignment, also on a broker that is not there")
    topic = unique("t")
    tool("TopicCommand", "--create", "--topic", topic, "--replica-assignment", "0,0,7")
    until(lambda: partitions_of(admin, topic) == {0: 0, 1: 0, 2: -1}, "two of three partitions", SOON_S)
    write_and_read(broker, topic, 0, 1)
    described = tool("TopicCommand", "--describe", "--topic", topic, "--unavailable-partitions")
    assert "Partition: 2\tLeader: none\tReplicas: 7" in described


def test_the_tools_read_what_the_broker_made(
    tool: Callable[..., str], broker: BrokerProcess, admin: AdminClient, tell: Callable[[str], None],
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    tell("kafka-topics and kafka-configs: describe what was made with an admin client")
    topic = unique("t")
    new = NewTopic(topic, 2, 1, config={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    admin.create_topics([new])[topic].result(DEADLINE_S)
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 2\tReplicationFactor: 1" in described
    assert "cleanup.policy=compact" in described and "segment.bytes=1048576" in described
    assert described.count("Leader: 0\tReplicas: 0\tIsr: 0") == 2
    configs = tool("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "cleanup.policy=compact" in configs and "segment.bytes=1048576" in configs
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    assert topic not in tool("TopicCommand", "--list")


def test_settings_are_changed(
    tool: Callable[..., str], broker: BrokerProcess, admin: AdminClient, tell: Callable[[str], None],
    unique: Callable[[str], str], znodes: KazooClient,
) -> None:  # fmt: skip
    tell("kafka-configs: settings of topics are obeyed; those of clients, users and brokers are left as they are")
    topic = unique("t")
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)

    def alter(kind: str, name: str, *words: str) -> None:
        tool("ConfigCommand", "--alter", "--entity-type", kind, "--entity-name", name, *words)

    alter("topics", topic, "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")
    until(lambda: setting_of(admin, topic, "retention.ms") == ("7200000", True), "the setting", SOON_S)
    assert setting_of(admin, topic, "cleanup.policy") == ("compact,delete", True)
    alter("topics", topic, "--delete-config", "retention.ms")
    until(lambda: not setting_of(admin, topic, "retention.ms")[1], "the setting to go", SOON_S)
    alter("clients", "a client/of old", "--add-config", "producer_byte_rate=1048576")
    alter("users", "somebody", "--add-config", "consumer_byte_rate=1048576")
    alter("brokers", "0", "--add-config", "leader.replication.throttled.rate=1048576")
    tree = read_tree(znodes)
    assert tree["/config/clients/a%20client%2Fof%20old"].data["config"] == {"producer_byte_rate": "1048576"}
    assert tree["/config/users/somebody"].data["config"] == {"consumer_byte_rate": "1048576"}
    assert tree["/config/brokers/0"].data["config"] == {"leader.replication.throttled.rate": "1048576"}
    write_and_read(broker, topic, 0)


def test_zookeepers_own_shell(connect: str, broker: BrokerProcess, tell: Callable[[str], None]) -> None:
    tell("zookeeper-shell: reads the registration")

    def shell(*words: str) -> str:
        return run_command(
            [*java_command(VERSION), "org.apache.zookeeper.ZooKeeperMain", "-server", connect, *words], 120
        )

    [registration] = [json.loads(line) for line in shell("get", "/brokers/ids/0").splitlines() if line.startswith("{")]
    assert (registration["version"], registration["host"], registration["port"]) == (5, "127.0.0.1", broker.port)
    assert "[0]" in shell("ls", "/brokers/ids")
