"""ElectLeaders and AlterPartitionReassignments at each of three brokers in one cluster on a real ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import uvloop

from kafkalite.common.names import NO_LEADER
from kafkalite.protocol.messages.partition_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.zookeeper import ZooKeeper

PREFERRED, UNCLEAN = 0, 1
NOT_CONTROLLER = 41


async def elected(cluster: ThreeBrokers, at: int, kind: int, *partitions: int) -> tuple[int, list[int]]:
    asked = [TopicPartitions(topic="orders", partitions=list(partitions))]
    answer = await cluster.ask(at, ElectLeadersRequest(election_type=kind, topic_partitions=asked), 2)
    ((topic),) = answer.replica_election_results
    return answer.error_code, [one.error_code for one in topic.partition_result]


async def reassigned(cluster: ThreeBrokers, at: int, partition: int, target: list[int] | None) -> tuple[int, Any]:
    row = ReassignablePartition(partition_index=partition, replicas=target)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="orders", partitions=[row])])
    answer = await cluster.ask(at, request, 0)
    if answer.error_code:
        return answer.error_code, None
    return answer.error_code, answer.responses[0].partitions[0]


def test_the_controller_answers_and_the_others_say_so(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> None:
    async def life() -> None:
        async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
            await cluster.create("orders", 6)
            leaders = cluster.leaders("orders")
            controller = cluster.metadata(IDS[0]).controller_id
            for broker in IDS:
                if broker != controller:
                    assert await elected(cluster, broker, PREFERRED, 0, 9) == (NOT_CONTROLLER, [NOT_CONTROLLER] * 2)
                    assert await reassigned(cluster, broker, 0, [broker]) == (NOT_CONTROLLER, None)
                listed = await cluster.ask(broker, ListPartitionReassignmentsRequest(topics=None), 0)
                assert (listed.error_code, listed.topics) == (0, [])
            assert await elected(cluster, controller, PREFERRED, 0, 9) == (0, [84, 3])
            away = next(broker for broker in IDS if broker != controller)
            lost = next(number for number, leader in leaders.items() if leader == away)
            for target, code in (([away], 0), ([away, away], 39), ([], 39), ([77], 39), (None, 85)):
                top, row = await reassigned(cluster, controller, lost, target)
                assert (top, row.error_code, bool(row.error_message)) == (0, code, code != 0)
            await cluster.stop(away)
            await cluster.until(lambda: cluster.leaders("orders", controller)[lost] == NO_LEADER)
            assert await elected(cluster, controller, PREFERRED, lost) == (0, [80])
            assert await elected(cluster, controller, UNCLEAN, lost) == (0, [83])
            _, row = await reassigned(cluster, controller, lost, [away])
            assert row.error_code == 0
            assert cluster.leaders("orders", controller) == leaders | dict.fromkeys(
                [number for number, leader in leaders.items() if leader == away], NO_LEADER
            )

    uvloop.run(life())
