"""Brokers whose ZooKeeper is paused by SIGSTOP, or killed: clients of theirs do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.support.wait import until
from tests.support.zookeeper import ZooKeeper, without_zookeeper
from tests.system.cluster.members import Cluster
from tests.system.crash.crash_line import Line

ROUNDS = 50
LIMIT_S = 30.0  # of 150 requests about the cluster, each of which waited for 0.5 s once, and for a creation even longer
SETTINGS = {"zookeeper.session.timeout.ms": "120000", "auto.create.topics.enable": "true"}  # sessions outlive a pause
TOPIC = 2  # the type of a resource


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    missing = without_zookeeper()
    if missing is not None:
        pytest.skip(missing)
    with ZooKeeper(tmp_path / "zookeeper") as own:
        yield own


@pytest.fixture
def two(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper, (1, 2), **SETTINGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def use(line: Line, number: int) -> None:
    """Asks about the cluster in each way that finds what other brokers have changed, and produces."""
    assert "known" in [each.name for each in line.ask(MetadataRequest(topics=None), 9).topics]
    unknown = MetadataRequest(topics=[MetadataRequestTopic(name=f"unknown-{number}")])
    assert line.ask(unknown, 9).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="known", configuration_keys=None)
    assert line.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code == ErrorCode.NONE
    line.produce("known", 0, [b"%d" % number])


def use_often(line: Line, numbers: range) -> float:
    """The seconds that it took."""
    begun_s = time.monotonic()
    for number in numbers:
        use(line, number)
    return time.monotonic() - begun_s


def finds_at_once(cluster: Cluster, name: str) -> bool:
    """Whether a topic that one broker creates is there when another is asked next."""
    made = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    created = cluster.members[2].ask(CreateTopicsRequest(topics=[made], timeout_ms=60_000), 4)
    assert created.topics[0].error_code == ErrorCode.NONE, created
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return bool(cluster.members[1].ask(asked, 9).topics[0].error_code == ErrorCode.NONE)


def test_clients_do_not_wait_for_a_zookeeper_that_is_away(two: Cluster, zookeeper: ZooKeeper) -> None:
    two.create("known", [1])
    line = Line(two.members[1].port)
    numbers = iter(range(1_000))
    assert finds_at_once(two, f"found-{next(numbers)}")
    zookeeper.pause()
    took_s = use_often(line, range(ROUNDS))
    assert took_s < LIMIT_S, f"paused: {took_s:.1f} s"
    zookeeper.resume()
    until(lambda: finds_at_once(two, f"found-{next(numbers)}"), "the answers to be current again")
    zookeeper.kill()
    took_s = use_often(line, range(ROUNDS, 2 * ROUNDS))
    assert took_s < LIMIT_S, f"killed: {took_s:.1f} s"
    line.close()
    zookeeper.start()
    two.await_whole()
