"""Produce 13, OffsetCommit 10 and OffsetFetch 10: topics by their ids, known, unknown, deleted and made again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.group import Identity
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.fast_path_client import batch

NOBODY = uuid.UUID(int=7)


async def made(asker: Any, *names: str) -> list[uuid.UUID]:
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answer = await asker.ask(CreateTopicsRequest(topics=wanted, timeout_ms=1000), 7)
    return [topic.topic_id for topic in answer.topics]


async def produced(asker: Any, *ids: uuid.UUID) -> dict[uuid.UUID, int]:
    """The error by id."""
    data = [PartitionProduceData(index=0, records=memoryview(batch()))]
    topics = [TopicProduceData(topic_id=one, partition_data=data) for one in ids]
    answer = await asker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 13)
    return {topic.topic_id: topic.partition_responses[0].error_code for topic in answer.responses}


def test_records_go_to_the_topic_of_an_id(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        t, u = await made(asker, "t", "u")
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert await produced(asker, u, NOBODY, t) == {u: 0, NOBODY: unknown, t: 0}
        ends = [broker._running.replica_manager.partition(name, 0).log.end_offset for name in "tu"]
        assert ends == [1, 1]

    tell(story)


def test_no_record_goes_to_a_topic_that_was_made_again(tell: Callable[..., None]) -> None:
    """Not by the fast path, either."""

    async def story(asker: Any, broker: Any) -> None:
        (old,) = await made(asker, "t")
        for _ in range(3):
            assert await produced(asker, old) == {old: 0}
        await asker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        (new,) = await made(asker, "t")
        assert await produced(asker, old) == {old: ErrorCode.UNKNOWN_TOPIC_ID}
        assert await produced(asker, new) == {new: 0}
        assert broker._running.replica_manager.partition("t", 0).log.end_offset == 1

    tell(story)


def test_offsets_are_committed_and_fetched_by_id(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        t, u = await made(asker, "t", "u")
        await asker.ask(FindCoordinatorRequest(key="g"), 3)
        one = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        topics = [OffsetCommitRequestTopic(topic_id=each, partitions=one) for each in (t, NOBODY)]
        answer = await asker.ask(OffsetCommitRequest(group_id="g", topics=topics), 10)
        errors = {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}
        assert errors == {t: 0, NOBODY: ErrorCode.UNKNOWN_TOPIC_ID}

        async def fetched(ids: list[uuid.UUID] | None) -> dict[uuid.UUID, tuple[int, int]]:
            wanted = (
                None if ids is None else [OffsetFetchRequestTopic(topic_id=each, partition_indexes=[0]) for each in ids]
            )
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
            topics = (await asker.ask(request, 10)).groups[0].topics
            return {
                each.topic_id: (each.partitions[0].committed_offset, each.partitions[0].error_code) for each in topics
            }

        def commit(name: str, topic_id: uuid.UUID) -> None:
            offset = (name, 0, 9, -1, "", -1)
            broker._running.coordinators.groups.offsets.commit(
                "g", Identity("", None, -1), [offset], -1, SimpleNamespace(answer=late.extend), {name: topic_id}
            )

        assert await fetched([u, NOBODY, t]) == {t: (5, 0), u: (-1, 0), NOBODY: (-1, ErrorCode.UNKNOWN_TOPIC_ID)}
        assert await fetched(None) == {t: (5, 0)}
        late: list[ErrorCode] = []
        commit("t", NOBODY)  # for an earlier topic of this name, whose deletion the coordinator has not seen
        assert await fetched([t]) == {t: (-1, 0)} and late == [ErrorCode.NONE]
        assert await fetched(None) == {t: (9, 0)}
        commit("t", t)
        assert await fetched([t]) == {t: (9, 0)}

    tell(story)
