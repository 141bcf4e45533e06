"""DescribeLogDirs and ListPartitionReassignments: what an administrator is told about the place of the logs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.log.batch import NewRecord, build_batch
from kafkalite.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

VERSIONS = range(5)
TOTAL_SINCE = 4


async def create(asker: Any, *names: str) -> None:
    wanted = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    answer = await asker.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 5)
    assert [topic.error_code for topic in answer.topics] == [0] * len(names)


async def produce(asker: Any, topic: str, partition: int, count: int) -> None:
    for number in range(count):
        batch = build_batch([NewRecord(None, b"%d" % number * 100)])
        data = [PartitionProduceData(index=partition, records=memoryview(batch))]
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        answer = await asker.ask(request, 8)
        assert answer.responses[0].partition_responses[0].error_code == 0


async def described(asker: Any, version: int, *asked: tuple[str, list[int]]) -> Any:
    """The one directory; of everything if nothing is asked for."""
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in asked]
    answer = await asker.ask(DescribeLogDirsRequest(topics=topics if asked else None), version)
    assert answer.error_code == 0
    (directory,) = answer.results
    return directory


def sizes(directory: Any) -> dict[tuple[str, int], int]:
    partitions = [(topic.name, one) for topic in directory.topics for one in topic.partitions]
    assert all((one.offset_lag, one.is_future_key) == (0, False) for _, one in partitions)
    return {(name, one.partition_index): one.partition_size for name, one in partitions}


def on_disk(data_dir: Path, topic: str, partition: int) -> int:
    return sum(path.stat().st_size for path in (data_dir / f"{topic}-{partition}").glob("*.log"))


def test_the_sizes_are_those_of_the_files(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "orders", "clicks")
        await produce(asker, "orders", 1, 10)
        await produce(asker, "clicks", 0, 1)
        assert len(list((broker.data_dir / "orders-1").glob("*.log"))) > 1  # it has rolled
        everything = {
            (name, index): on_disk(broker.data_dir, name, index) for name in ("orders", "clicks") for index in (0, 1)
        }
        assert everything["orders", 1] > everything["clicks", 0] > everything["orders", 0] == 0
        for version in VERSIONS:
            directory = await described(asker, version)
            assert (directory.error_code, Path(directory.log_dir)) == (0, broker.data_dir.absolute())
            assert sizes(directory) == everything
            if version >= TOTAL_SINCE:
                assert directory.total_bytes > directory.usable_bytes > 0
            some = await described(asker, version, ("orders", [1, 0, 1, 7]), ("nowhere", [0]), ("orders", [1]))
            assert sizes(some) == {key: size for key, size in everything.items() if key[0] == "orders"}
            none = await described(asker, version, ("nowhere", [0]), ("clicks", []))
            assert none.topics == []

    tell(story, log_segment_bytes=500)


def test_a_volume_that_does_not_answer_is_told_as_such(
    tell: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(asker: Any, broker: Any) -> None:
        def gone(path: str) -> None:
            raise OSError(5, "Input/output error", path)

        await create(asker, "orders")
        monkeypatch.setattr(os, "statvfs", gone)
        directory = await described(asker, 4)
        assert (directory.error_code, directory.topics) == (56, [])
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
        monkeypatch.undo()
        assert (await described(asker, 4)).error_code == 0

    tell(story)


def test_no_partition_is_on_its_way_to_another_broker(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "orders")
        for topics in (
            None,
            [],
            [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0, 9])],
            [ListPartitionReassignmentsTopics(name="nowhere", partition_indexes=[0])],
        ):
            answer = await asker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
            assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])

    tell(story)
