"""Topics with several replicas, as administrators ask for them, at three brokers on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.partition_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkalite.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.zookeeper import ZooKeeper

DEFAULT = -1


async def create(cluster: ThreeBrokers, name: str, partitions: int, factor: int, *placed: list[int]) -> Any:
    assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(placed)]
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=assignments)
    answer = await cluster.ask(1, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
    return answer.topics[0]


async def grow(cluster: ThreeBrokers, name: str, count: int, *placed: list[int]) -> Any:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in placed] or None
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    answer = await cluster.ask(1, CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000), 3)
    return answer.results[0]


def replicas(cluster: ThreeBrokers, name: str) -> list[tuple[int, ...]]:
    return [state.replicas for state in cluster.metadata(1).topics[name].partitions.values()]


def test_replicas_are_spread_or_go_where_they_are_wanted(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> None:
    async def life() -> None:
        async with three_brokers(
            zookeeper.connect + chroot, tmp_path, default_replication_factor=2, num_partitions=4
        ) as cluster:
            made = await create(cluster, "three", 6, 3)
            assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 6, 3)
            assert all(sorted(each) == [1, 2, 3] for each in replicas(cluster, "three"))
            assert sorted(each[0] for each in replicas(cluster, "three")) == [1, 1, 2, 2, 3, 3]
            states = cluster.metadata(1).topics["three"].partitions.values()
            assert all(state.leader == state.replicas[0] and set(state.isr) == {1, 2, 3} for state in states)
            made = await create(cluster, "default", DEFAULT, DEFAULT)
            assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 4, 2)
            assert {len(set(each)) for each in replicas(cluster, "default")} == {2}
            made = await create(cluster, "chosen", DEFAULT, DEFAULT, [3, 1], [2, 3])
            assert (made.error_code, made.replication_factor) == (0, 2)
            assert replicas(cluster, "chosen") == [(3, 1), (2, 3)]
            for placed, code in (([[1, 2], [3]], 39), ([[1, 1]], 39), ([[1, 9]], 39), ([[]], 39)):
                assert (await create(cluster, "no", DEFAULT, DEFAULT, *placed)).error_code == code
            refused = await create(cluster, "four", 1, 4)
            assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            assert refused.error_message == "Replication factor: 4 larger than available brokers: 3."
            assert (await grow(cluster, "chosen", 3)).error_code == 0
            assert (await grow(cluster, "chosen", 4, [1, 2])).error_code == 0
            assert {len(set(each)) for each in replicas(cluster, "chosen")} == {2}
            assert replicas(cluster, "chosen")[3] == (1, 2)
            refused = await grow(cluster, "chosen", 5, [1, 2, 3])
            assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert "partition 0 has 2 while partitions [4] have replication factors [3]" in refused.error_message
            may_join, leader = asyncio.Event(), cluster.metadata(3).isr_writes
            write_isr = leader.write_isr

            async def write_late(*arguments: Any) -> Any:
                await may_join.wait()
                return await write_isr(*arguments)

            leader.write_isr = write_late  # type: ignore[method-assign]
            controller = cluster.metadata(1).controller_id
            row = ReassignablePartition(partition_index=0, replicas=[2])
            moving = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="chosen", partitions=[row])])
            answer = await cluster.ask(controller, moving, 0)
            assert answer.responses[0].partitions[0].error_code == 0
            await cluster.until(lambda: replicas(cluster, "chosen")[0] == (2, 3, 1))
            assert (await grow(cluster, "chosen", 5)).error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
            may_join.set()
            await cluster.until(lambda: replicas(cluster, "chosen")[0] == (2,))
            asked = [MetadataRequestTopic(name="asked-for")]
            await cluster.ask(2, MetadataRequest(topics=asked, allow_auto_topic_creation=True), 4)
            assert {len(set(each)) for each in replicas(cluster, "asked-for")} == {2}

    uvloop.run(life())


def test_internal_topics_have_as_many_replicas_as_there_are_brokers(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def life() -> None:
        defaults = {"offsets_topic_replication_factor": None, "transaction_state_log_replication_factor": None}
        async with three_brokers(zookeeper.connect + chroot, tmp_path, **defaults) as cluster:
            for kind in (0, 1):
                answer = await cluster.ask(1, FindCoordinatorRequest(key="g", key_type=kind), 3)
                assert answer.error_code == 0
                await cluster.stop(3)
                await cluster.until(lambda: set(cluster.metadata(1).brokers) == {1, 2})
            assert {len(each) for each in replicas(cluster, GROUP_METADATA_TOPIC)} == {3}
            assert {len(each) for each in replicas(cluster, TRANSACTION_STATE_TOPIC)} == {2}
            assert cluster.metadata(1).topics[TRANSACTION_STATE_TOPIC].config["min.insync.replicas"] == "2"

    uvloop.run(life())
    assert "__transaction_state is created with 2 of 3 replicas" in caplog.text
    assert "__consumer_offsets is created" not in caplog.text


def test_replicas_of_internal_topics_that_were_set_are_waited_for(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path
) -> None:
    async def life() -> None:
        settings = {"offsets_topic_replication_factor": 3, "default_replication_factor": 3}
        async with three_brokers(zookeeper.connect + chroot, tmp_path, **settings) as cluster:
            await cluster.stop(3)
            await cluster.until(lambda: set(cluster.metadata(1).brokers) == {1, 2})
            for _ in range(2):
                answer = await cluster.ask(1, FindCoordinatorRequest(key="g", key_type=0), 3)
                assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            asked = [MetadataRequestTopic(name="asked-for")]
            answer = await cluster.ask(1, MetadataRequest(topics=asked, allow_auto_topic_creation=True), 4)
            assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            await cluster.start(3)
            answer = await cluster.ask(1, FindCoordinatorRequest(key="g", key_type=0), 3)
            assert answer.error_code == 0
            assert {len(each) for each in replicas(cluster, GROUP_METADATA_TOPIC)} == {3}

    uvloop.run(life())


def test_a_broker_that_stops_leaves_no_partition_without_a_leader(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path
) -> None:
    async def life() -> None:
        async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
            await create(cluster, "orders", 6, 2)
            seen: set[int] = set()
            away = cluster.metadata(1).controller_id  # the controller hands over its own, too
            other = next(each for each in IDS if each != away)
            await cluster.until(lambda: len(led := cluster.leaders("orders", other).values()) == 6 and -1 not in led)
            cluster.metadata(other).listen(lambda change, name: seen.update(cluster.leaders("orders", other).values()))
            await cluster.stop(away)
            leaders = cluster.leaders("orders", other)
            assert away not in leaders.values() and -1 not in seen
            await cluster.until(lambda: cluster.metadata(other).controller_id not in (-1, away))
            await cluster.start(away)
            controller = cluster.metadata(other).controller_id
            answer = await cluster.ask(controller, ElectLeadersRequest(election_type=0, topic_partitions=None), 2)
            found = {one.error_code for topic in answer.replica_election_results for one in topic.partition_result}
            assert found <= {ErrorCode.NONE, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}, "it may have to catch up first"

    uvloop.run(life())
