"""DescribeLogDirs and ListPartitionReassignments: what an administrator is told about the place of the logs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.protocol.messages.log_dirs import (
    COUNTING,
    COUNTS,
    COUNTS_OF_SEGMENTS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kafkalite.protocol.messages.partition_admin import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.wait import DEADLINE_S

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


async def counted(asker: Any, version: int, count_records: int = COUNTS_OF_SEGMENTS) -> dict[tuple[str, int], Any]:
    """The description of every partition when all are counted."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await asker.ask(DescribeLogDirsRequest(topics=None, count_records=count_records), version)
            assert answer.counts_records
            found = {
                (topic.name, one.partition_index): one
                for result in answer.results
                for topic in result.topics
                for one in topic.partitions
            }
            if all(one.counts.live_records != COUNTING for one in found.values()):
                return found
            await asyncio.sleep(0)


def test_records_are_counted_for_those_who_ask(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "orders")
        await produce(asker, "orders", 1, 10)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=1, offset=7)])
            ],
            timeout_ms=5000,
        )
        answer = await asker.ask(request, 2)
        assert answer.topics[0].partitions[0].low_watermark == 7
        for version in (2, 3, 4):
            found = await counted(asker, version)
            one = found["orders", 1]
            counts = one.counts
            assert (counts.start_offset, counts.end_offset, counts.leader_epoch) == (7, 10, 0)
            assert (counts.live_records, counts.control_records) == (3, 0)
            assert counts.segment_count == len(counts.segments)
            assert sum(segment.live_records for segment in counts.segments) == 3
            assert sum(segment.size_bytes for segment in counts.segments) == one.partition_size
            assert found["orders", 0].counts.live_records == 0
            assert (await counted(asker, version, COUNTS))["orders", 1].counts.segments == []

    tell(story, log_segment_bytes=500)


def test_who_does_not_ask_for_counts_is_answered_as_ever(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "orders")
        for version in VERSIONS:
            answer = await asker.ask(DescribeLogDirsRequest(topics=None), version)
            assert not answer.counts_records
            partitions = [one for topic in answer.results[0].topics for one in topic.partitions]
            assert partitions and all(one.counts is None for one in partitions)
        for version in (0, 1):  # there are no tagged fields
            answer = await asker.ask(DescribeLogDirsRequest(topics=None, count_records=COUNTS), version)
            assert not answer.counts_records

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
