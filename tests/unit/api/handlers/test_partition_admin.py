"""ElectLeaders, AlterPartitionReassignments and AlterReplicaLogDirs on one broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from kafkalite.protocol.messages.partition_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from kafkalite.server.broker import Broker
from tests.unit.api.conftest import scene


async def create(asker: Any, name: str) -> None:
    wanted = [CreatableTopic(name=name, num_partitions=2, replication_factor=1)]
    answer = await asker.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 5)
    assert answer.topics[0].error_code == 0


def test_the_only_broker_leads_and_is_right(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "orders")
        asked = [TopicPartitions(topic="orders", partitions=[0, 7]), TopicPartitions(topic="none", partitions=[0])]
        for version in range(3):
            for kind in (0, 1) if version else (0,):
                answer = await asker.ask(ElectLeadersRequest(election_type=kind, topic_partitions=asked), version)
                assert answer.error_code == 0
                assert [
                    (topic.topic, one.partition_id, one.error_code, bool(one.error_message))
                    for topic in answer.replica_election_results
                    for one in topic.partition_result
                ] == [("orders", 0, 84, True), ("orders", 7, 3, True), ("none", 0, 3, True)]
            answer = await asker.ask(ElectLeadersRequest(topic_partitions=None), version)
            assert [(one.topic, one.partition_result) for one in answer.replica_election_results] == [("orders", [])]

    tell(story)


def test_a_replica_can_be_reassigned_to_where_it_is(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "orders")
        targets: dict[int, list[int] | None] = {0: [3], 1: None, 2: [3]}
        partitions = [ReassignablePartition(partition_index=i, replicas=one) for i, one in targets.items()]
        partitions += [ReassignablePartition(partition_index=1, replicas=one) for one in ([], [3, 3], [-1], [4], [3])]
        topics = [ReassignableTopic(name="orders", partitions=partitions)]
        answer = await asker.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.error_message) == (0, None)
        (topic,) = answer.responses
        assert [one.error_code for one in topic.partitions] == [0, 85, 3, 39, 39, 39, 39, 0]
        assert [one.error_message is None for one in topic.partitions] == [True, *[False] * 6, True]

    tell(story, broker_id=3)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda topic, many: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=topic, partitions=many)]),
        lambda topic, many: AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name=topic, partitions=[ReassignablePartition(partition_index=i, replicas=None) for i in many]
                )
            ]
        ),
        lambda topic, many: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/", topics=[AlterReplicaLogDirTopic(name=topic, partitions=many)])]
        ),
    ],
)
def test_more_partitions_than_any_cluster_has_are_not_looked_at(tell: Callable[..., None], request_of: Any) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await asker.send(request_frame(request_of("orders", [0] * 100_001), 0, 1, "many"))
        assert await asker.is_closed()

    tell(story)


def test_a_log_is_confirmed_where_it_is_and_moves_elsewhere(tmp_path: Path) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "orders")
        answer = await asker.ask(DescribeLogDirsRequest(topics=None), 4)
        where = {
            one.partition_index: each.log_dir
            for each in answer.results
            for topic in each.topics
            for one in topic.partitions
        }
        assert len(set(where.values())) == 2

        async def codes(*asked: tuple[str, str, int]) -> list[int]:
            dirs = [
                AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=[index])])
                for path, name, index in asked
            ]
            answers = [await asker.ask(AlterReplicaLogDirsRequest(dirs=dirs), version) for version in range(3)]
            assert answers[0] == answers[1] == answers[2]
            return [one.error_code for topic in answers[0].results for one in topic.partitions]

        assert await codes((where[0], "orders", 0), (where[1], "orders", 1)) == [0, 0]
        assert await codes(("/nowhere", "orders", 0), (where[0], "orders", 7), (where[0], "none", 0)) == [57, 3, 3]
        assert await codes((where[0], "orders", 0), ("/nowhere", "orders", 0)) == [57]
        assert await codes((where[0], "o" * 249, 0)) == [17]
        assert await codes((where[1], "orders", 0)) == [0]
        while True:  # it takes some turns of the loop
            answer = await asker.ask(DescribeLogDirsRequest(topics=None), 4)
            found = [
                (each.log_dir, one.is_future_key)
                for each in answer.results
                for topic in each.topics
                for one in topic.partitions
                if one.partition_index == 0
            ]
            assert (where[0], False) in found or found == [(where[1], False)]
            if len(found) == 1 and found[0][0] == where[1]:
                break

    uvloop.run(scene(Broker(log_dirs=f"{tmp_path}/one,{tmp_path}/two", port=0), story))
