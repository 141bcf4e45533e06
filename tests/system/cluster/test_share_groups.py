"""Members of a share group accept each record once, while the leader of its records and the broker with its state are
killed with -9, and while brokers restart one after the other: three processes on a real ZooKeeper.

The members are confluent-kafka's share consumers.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.common.names import SHARE_STATE_TOPIC
from tests.support.replication.group_members import await_progress, written_places
from tests.support.replication.live_cluster import create_topic, load
from tests.support.replication.share_members import (
    ShareMember,
    await_all_accepted,
    check_accepted_once,
    set_share_group,
)
from tests.support.zookeeper import ZooKeeper
from tests.system.cluster.members import Cluster
from tests.system.cluster.troubles import kill_leaders, restart_in_turn

TOPIC, GROUP = "t", "g"
PARTITIONS = 2
PAUSE_S = 0.005  # between two records
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1500",
    "controlled.shutdown.retry.backoff.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture
def replicated(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers with all replicas of a topic."""
    cluster = Cluster(tmp_path, zookeeper, **SETTINGS)
    try:
        cluster.start()
        create_topic(cluster, TOPIC, PARTITIONS, 3)
        settings = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
        set_share_group(cluster.bootstrap, GROUP, settings)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def members(replicated: Cluster) -> Iterator[list[ShareMember]]:
    found = [ShareMember(replicated.bootstrap, GROUP, TOPIC) for _ in range(2)]
    yield found
    for member in found:
        member.leave()
    for member in found:
        member.await_end()


def accept_through(trouble: Callable[[], None], cluster: Cluster, members: list[ShareMember]) -> str:
    """Returns what came of the records that came in during the trouble: each was accepted once."""
    with load(cluster, TOPIC, PARTITIONS, pause_s=PAUSE_S) as writer:
        await_progress(members)
        trouble()
        await_progress(members)
    assert not writer.failures
    written = written_places(cluster, TOPIC, PARTITIONS)
    assert len(written) == len(writer.acknowledged) + len(writer.unplaced)
    await_all_accepted(members, written)
    check_accepted_once(members, written)
    refusals = sum((member.refusals for member in members), start=type(members[0].refusals)())
    unsure = len({place for member in members for place in member.unsure})
    return f"{len(written)} records, each accepted once; acceptance of {unsure} unsure: {dict(refusals)}"


@pytest.mark.parametrize("led", [TOPIC, SHARE_STATE_TOPIC])
def test_a_leader_is_killed(
    replicated: Cluster, members: list[ShareMember], rounds: int, report: Callable[[str], None], led: str
) -> None:
    back_s: list[float] = []

    def kills() -> None:
        back_s.extend(kill_leaders(replicated, led, rounds, members))

    outcome = accept_through(kills, replicated, members)
    report(
        f"{rounds} kills of the leader of {led}: {outcome}; every member accepts again after "
        f"{statistics.median(back_s):.2f} s (at most {max(back_s):.2f} s)"
    )


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_brokers_restart_one_after_the_other(
    replicated: Cluster, members: list[ShareMember], rounds: int, report: Callable[[str], None]
) -> None:
    def restarts() -> None:
        restart_in_turn(replicated, rounds, members)

    report(f"{rounds} rolling restarts: {accept_through(restarts, replicated, members)}")
