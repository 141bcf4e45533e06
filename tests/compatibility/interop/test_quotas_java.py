"""Apache Kafka's tools set quotas, list them and are held to them: by API, and those of 2.7.2 in ZooKeeper.

pytest -m long tests/compatibility/interop/test_quotas_java.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop.conftest import BrokerProcess, run_command
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.compatibility.interop.zookeeper_broker import broker_on
from tests.support.wait import until
from tests.support.zk.znode_tree import zookeeper_client
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
USER, CLIENT = ("--entity-type", "users"), ("--entity-type", "clients")
PERFORMANCE = re.compile(r"([\d.]+) records/sec")


@pytest.fixture(scope="module", params=["journal", "ZooKeeper"])
def broker(
    request: pytest.FixtureRequest, zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker by itself, and one on a ZooKeeper."""
    home = tmp_path_factory.mktemp("broker")
    if request.param == "ZooKeeper":
        with broker_on(zookeeper.connect + "/quotas", home) as running:
            yield running
        return
    running = BrokerProcess(home, {})
    try:
        running.start()
        yield running
        running.stop()
    finally:
        running.kill()


@pytest.fixture(params=["3.9.1", "4.1.0"])
def tools(request: pytest.FixtureRequest, broker: BrokerProcess) -> JavaTools:
    java_command(request.param)
    return JavaTools(request.param, broker.bootstrap, run_command)


def test_quotas_are_set_listed_and_removed(tools: JavaTools, proved: Callable[..., None]) -> None:
    def alter(*arguments: str) -> str:
        return tools("ConfigCommand", "--alter", *arguments)

    alter(*USER, "--entity-name", "a*b", "--add-config", "producer_byte_rate=1048576,request_percentage=12.5")
    alter(*USER, "--entity-default", "--add-config", "consumer_byte_rate=2097152")
    alter(*CLIENT, "--entity-name", "app", "--add-config", "controller_mutation_rate=3.5")
    alter(*USER, "--entity-name", "a*b", *CLIENT, "--entity-default", "--add-config", "producer_byte_rate=7")
    alter("--entity-type", "ips", "--entity-name", "10.20.30.40", "--add-config", "connection_creation_rate=9")
    users = tools("ConfigCommand", "--describe", *USER)
    assert "user-principal 'a*b' are" in users and "producer_byte_rate=1048576.0" in users
    assert "request_percentage=12.5" in users and "consumer_byte_rate=2097152.0" in users
    both = tools("ConfigCommand", "--describe", *USER, "--entity-name", "a*b", *CLIENT, "--entity-default")
    assert "producer_byte_rate=7.0" in both and "1048576" not in both
    assert "controller_mutation_rate=3.5" in tools("ConfigCommand", "--describe", *CLIENT)
    assert "connection_creation_rate=9.0" in tools("ConfigCommand", "--describe", "--entity-type", "ips")
    refused = tools("ConfigCommand", "--alter", *USER, "--entity-name", "a", "--add-config", "nonsense=1", check=False)
    assert "nonsense" in refused
    for entity in ((*USER, "--entity-name", "a*b"), (*USER, "--entity-default"), (*CLIENT, "--entity-name", "app")):
        keys = "producer_byte_rate,request_percentage,consumer_byte_rate,controller_mutation_rate"
        present = [key for key in keys.split(",") if key in tools("ConfigCommand", "--describe", *entity)]
        alter(*entity, "--delete-config", ",".join(present))
    alter(*USER, "--entity-name", "a*b", *CLIENT, "--entity-default", "--delete-config", "producer_byte_rate")
    left = tools("ConfigCommand", "--describe", *USER)
    assert "byte_rate" not in left and "request_percentage" not in left
    proved("kafka-configs", tools.version, "quotas of users, clients, both, defaults and addresses")


def test_a_producer_is_held_to_its_quota(tools: JavaTools, proved: Callable[..., None]) -> None:
    topic = f"perf-{tools.version.replace('.', '-')}"  # one broker serves tools of several versions
    tools.create_topic(topic)
    quota = ["--entity-name", "perf-client", "--alter"]
    tools("ConfigCommand", *CLIENT, *quota, "--add-config", "producer_byte_rate=100000")
    properties = f"bootstrap.servers={tools.bootstrap}"
    size = ["--num-records", 2_000, "--record-size", 1_000, "--throughput", -1]  # two megabytes, one is free
    named = [*size, "--topic", topic, "--producer-props", properties, "client.id=perf-client"]
    printed = tools("ProducerPerformance", *named, at=None, timeout=200)
    held = float(PERFORMANCE.findall(printed)[-1])
    tools("ConfigCommand", *CLIENT, *quota, "--delete-config", "producer_byte_rate")
    printed = tools("ProducerPerformance", *named, at=None, timeout=200)
    free = float(PERFORMANCE.findall(printed)[-1])
    assert held < 250 < free, f"{held} records/s with the quota, {free} without"
    proved("kafka-producer-perf-test", tools.version, "a producer over its quota is slowed down to it")


def test_the_old_tool_and_the_broker_read_what_the_other_wrote(
    zookeeper: ZooKeeper, tmp_path: Path, proved: Callable[..., None]
) -> None:
    java_command("2.7.2")
    java_command("3.9.1")
    connect = zookeeper.connect + "/old-quotas"
    with broker_on(connect, tmp_path) as broker, zookeeper_client(connect) as znodes:
        old = JavaTools("2.7.2", connect, run_command)
        new = JavaTools("3.9.1", broker.bootstrap, run_command)

        def written(tool: JavaTools, at: str, *arguments: Any) -> str:
            return tool("ConfigCommand", *arguments, at=at)

        written(old, "--zookeeper", "--alter", *USER, "--entity-name", "a b", *CLIENT, "--entity-name", "c/d",
                "--add-config", "producer_byte_rate=1024")  # fmt: skip
        written(old, "--zookeeper", "--alter", *USER, "--entity-default", "--add-config", "request_percentage=50")

        def told() -> bool:
            both = written(new, "--bootstrap-server", "--describe", *USER, "--entity-name", "a b", *CLIENT,
                           "--entity-name", "c/d")  # fmt: skip
            return "producer_byte_rate=1024.0" in both

        until(told, "the quota that the old tool wrote")
        assert "request_percentage=50.0" in written(new, "--bootstrap-server", "--describe", *USER, "--entity-default")
        written(new, "--bootstrap-server", "--alter", *CLIENT, "--entity-name", "app",
                "--add-config", "consumer_byte_rate=4096")  # fmt: skip
        assert "consumer_byte_rate=4096" in written(old, "--zookeeper", "--describe", *CLIENT, "--entity-name", "app")
        written(new, "--bootstrap-server", "--alter", *USER, "--entity-name", "a b", *CLIENT, "--entity-name", "c/d",
                "--delete-config", "producer_byte_rate")  # fmt: skip
        assert znodes.exists("/config/users/a%20b") is None
        assert znodes.exists("/config/clients/app") is not None
        written(old, "--zookeeper", "--alter", *CLIENT, "--entity-name", "app", "--delete-config", "consumer_byte_rate")
        until(
            lambda: "4096" not in written(new, "--bootstrap-server", "--describe", *CLIENT),
            "the end of the quota that the old tool removed",
        )
    proved("Kafka's tools with --zookeeper", "2.7.2", "quotas written by the one are obeyed and read by the other")
