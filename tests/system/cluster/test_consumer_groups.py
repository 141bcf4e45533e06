"""Members of a consumer group commit each record once, while brokers restart one after the other and while their
coordinator is killed with -9: three processes on a real ZooKeeper.

The members are confluent-kafka with group.protocol=consumer; in the long form Kafka 4.3's VerifiableConsumer beside it,
with this protocol and the classic one.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.common.names import GROUP_METADATA_TOPIC
from tests.compatibility.interop.conftest import run_command
from tests.compatibility.interop.java_members import JavaMember, java_member
from tests.compatibility.interop.java_tools import JavaTools, java_command
from tests.support.replication.group_members import (
    UNCOMPACTED,
    GroupMember,
    await_all,
    await_progress,
    check_each_once,
    check_stored_commits,
    stored_commits,
    written_places,
)
from tests.support.replication.live_cluster import create_topic, load
from tests.support.zookeeper import ZooKeeper
from tests.system.cluster.members import Cluster
from tests.system.cluster.troubles import kill_leaders, restart_in_turn

JAVA = "4.3.0"
TOPIC, GROUP = "t", "g"
PARTITIONS = 6
PAUSE_S = 0.005  # between two records
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1500",
    "controlled.shutdown.retry.backoff.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    **UNCOMPACTED,
}
WITH_JAVA = pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(7200)], id="with-java")

Members = list[GroupMember | JavaMember]


@pytest.fixture
def replicated(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers with all replicas of a topic."""
    cluster = Cluster(tmp_path, zookeeper, **SETTINGS)
    try:
        cluster.start()
        create_topic(cluster, TOPIC, PARTITIONS, 3)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(params=[pytest.param(False, id="librdkafka"), WITH_JAVA])
def members(request: pytest.FixtureRequest, replicated: Cluster, tmp_path: Path) -> Iterator[Members]:
    """The members of a group; librdkafka's leave at the end."""
    with contextlib.ExitStack() as stack:
        found: Members = [GroupMember(replicated.bootstrap, GROUP, TOPIC) for _ in range(2)]
        if request.param:
            java_command(JAVA)
            tools = JavaTools(JAVA, replicated.bootstrap, run_command)
            for protocol in ("consumer", "classic"):
                output = tmp_path / f"{protocol}.txt"
                found.append(stack.enter_context(java_member(tools, output, TOPIC, GROUP, protocol)))
        yield found
        for member in found:
            member.leave()


def commit_through(trouble: Callable[[], None], cluster: Cluster, members: Members) -> int:
    """The number of records that came in during the trouble: each is committed once, and no offset goes backwards."""
    with load(cluster, TOPIC, PARTITIONS, pause_s=PAUSE_S) as writer:
        await_progress(members)
        trouble()
        await_progress(members)
    assert not writer.failures
    written = written_places(cluster, TOPIC, PARTITIONS)
    assert len(written) == len(writer.acknowledged) + len(writer.unplaced)
    await_all(members, written, lambda: stored_commits(cluster, GROUP, TOPIC))
    check_each_once(members, written)
    stored = stored_commits(cluster, GROUP, TOPIC)
    check_stored_commits(stored, members)
    assert sum(offsets[-1] for offsets in stored.values()) == len(written)
    return len(written)


def test_the_coordinator_is_killed(
    replicated: Cluster, members: Members, rounds: int, report: Callable[[str], None]
) -> None:
    back_s: list[float] = []

    def kills() -> None:
        back_s.extend(kill_leaders(replicated, GROUP_METADATA_TOPIC, rounds, members))

    count = commit_through(kills, replicated, members)
    report(
        f"{rounds} kills of the coordinator of {len(members)} members: {count} records committed, each once; every "
        f"member commits again after {statistics.median(back_s):.2f} s (at most {max(back_s):.2f} s)"
    )


def test_brokers_restart_one_after_the_other(
    replicated: Cluster, members: Members, rounds: int, report: Callable[[str], None]
) -> None:
    def restarts() -> None:
        restart_in_turn(replicated, rounds, members)

    count = commit_through(restarts, replicated, members)
    report(f"{rounds} rolling restarts of three brokers, {len(members)} members: {count} records committed, each once")
