"""Members of a group.protocol=consumer group while brokers of its cluster are killed, stopped and started."""

from __future__ import annotations

import pytest

from kafkalite.common.names import GROUP_METADATA_TOPIC
from kafkalite.testing import Cluster
from tests.support.replication.group_members import (
    GroupMember,
    await_all,
    await_progress,
    check_each_once,
    check_stored_commits,
    stored_commits,
    written_places,
)
from tests.support.replication.live_cluster import EVERY, SETTINGS, create_topic, load

GROUP = "g"
PARTITIONS = 6
GROUP_SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "group_consumer_min_session_timeout_ms": 1_000,
    "group_consumer_session_timeout_ms": 20_000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
}


@pytest.mark.parametrize("trouble", ["the coordinator is killed", "rolling restart"])
def test_a_group_goes_on(trouble):
    with Cluster(3, **SETTINGS, **GROUP_SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY] * PARTITIONS)
        with load(cluster, "t", PARTITIONS) as writer:
            members = [GroupMember(cluster.bootstrap_servers, GROUP, "t") for _ in range(2)]
            await_progress(members)
            victims = [cluster.wait_for_leader(GROUP_METADATA_TOPIC, 0)] if "killed" in trouble else list(EVERY)
            for victim in victims:
                was_coordinator = cluster.leader_of(GROUP_METADATA_TOPIC, 0) == victim
                (cluster.kill if "killed" in trouble else cluster.stop)(victim)
                if was_coordinator:
                    cluster.wait_for_leader(GROUP_METADATA_TOPIC, 0, other_than=[victim])
                await_progress(members)
                cluster.start(victim)
                for partition in range(PARTITIONS):
                    cluster.wait_for_isr("t", partition, EVERY)
                cluster.wait_for_isr(GROUP_METADATA_TOPIC, 0, EVERY)
            await_progress(members)
        assert not writer.failures
        written = written_places(cluster, "t", PARTITIONS)
        assert len(written) == len(writer.acknowledged) + len(writer.unplaced)
        await_all(members, written, lambda: stored_commits(cluster, GROUP, "t"))
        for member in members:
            member.leave()
        for member in members:
            member.await_end()
        check_each_once(members, written)
        stored = stored_commits(cluster, GROUP, "t")
        check_stored_commits(stored, members)
        assert sum(offsets[-1] for offsets in stored.values()) == len(written)
