"""Members of a group of Kafka Streams keep their tasks while their coordinator is killed with -9: three processes on a
real ZooKeeper, raw heartbeats.

No task is active at two members by what they were answered, no epoch goes back, and the tasks of a member that has left
are another's.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kafkalite.common.names import GROUP_METADATA_TOPIC
from tests.support.replication.live_cluster import create_topic
from tests.support.streams_members import StreamsMember, counting_topology
from tests.support.wait import until
from tests.support.zookeeper import ZooKeeper
from tests.system.cluster.members import Cluster

GROUP = "app"
PARTITIONS = 6
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1500",
    "controlled.shutdown.retry.backoff.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
ALL = {(key, index) for key in ("0", "1") for index in range(PARTITIONS)}


@pytest.fixture
def replicated(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers with all replicas of the topic that is read."""
    cluster = Cluster(tmp_path, zookeeper, **SETTINGS)
    try:
        cluster.start()
        create_topic(cluster, "lines", PARTITIONS, 3)
        yield cluster
    finally:
        cluster.close()


def joined(cluster: Cluster, member_id: str) -> StreamsMember:
    return StreamsMember(cluster.bootstrap, GROUP, member_id, counting_topology(GROUP, "lines"))


def active(members: Sequence[StreamsMember]) -> Counter[tuple[str, int]]:
    """How often each task is active, by what the members were answered."""
    found = Counter((key, each) for member in members for key, some in member.active.items() for each in some)
    assert not found or max(found.values()) == 1, found
    return found


def share(members: Sequence[StreamsMember]) -> None:
    """Heartbeats until every task is active once, at members of one epoch."""

    def is_shared() -> bool:
        for member in members:
            member.beat()
            member.confirm()
            active(members)
        return active(members).keys() == ALL and len({member.epoch for member in members}) == 1

    until(is_shared, "every task at a member")


def test_the_coordinator_is_killed(replicated: Cluster, rounds: int, report: Callable[[str], None]) -> None:
    members = [joined(replicated, f"m{number}") for number in range(3)]
    share(members)
    back_s: list[float] = []
    for _ in range(rounds):
        before = [(member.epoch, member.active) for member in members]
        victim = replicated.wait_for_leader(GROUP_METADATA_TOPIC, 0)
        began = time.monotonic()
        replicated.members[victim].kill()
        for member in members:
            member.beat()
        back_s.append(time.monotonic() - began)
        assert [(member.epoch, member.active) for member in members] == before, "nothing of the group is lost"
        leaving = members.pop(0)
        leaving.leave()
        share(members)
        members.append(joined(replicated, leaving.member_id))
        share(members)
        replicated.start()
        replicated.await_in_sync()
    for member in members:
        member.leave()
    report(
        f"{rounds} kills of the coordinator of 3 members of a streams group: no task twice, none lost; every member is "
        f"answered again after {statistics.median(back_s):.2f} s (at most {max(back_s):.2f} s)"
    )
