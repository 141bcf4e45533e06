"""Requests that wait for others: woken, given up, and answered when the broker stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.loop import until


def fetch(offset: int = 0, **how: int) -> FetchRequest:
    how.setdefault("max_wait_ms", 60_000)
    how.setdefault("min_bytes", 1)
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=[wanted])], **how)


async def make_topic(asker: Any, broker: Any) -> Any:
    await asker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 1)
    return broker._running.replica_manager.partition("t", 0)


def append(partition: Any, size_bytes: int) -> None:
    written = build_batch([NewRecord(None, bytes(size_bytes), timestamp=1)])
    partition.append(memoryview(written), 1, 9)


def test_a_fetch_is_answered_when_enough_has_come(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await make_topic(asker, broker)
        waiting = asyncio.ensure_future(asker.ask(fetch(min_bytes=500), 11))
        await until(lambda: bool(partition.delayed_operations))
        append(partition, 200)
        assert not waiting.done()
        append(partition, 400)
        answer = (await waiting).responses[0].partitions[0]
        assert answer.high_watermark == 2 and len(answer.records) > 600
        assert not partition.delayed_operations

    tell(story)


def test_what_no_answer_could_hold_is_not_waited_for(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await make_topic(asker, broker)
        append(partition, 3000)
        answer = await asker.ask(fetch(min_bytes=1 << 30, max_bytes=2000), 11)
        assert len(answer.responses[0].partitions[0].records) > 3000

    tell(story)


def test_a_client_that_leaves_leaves_no_waiter_behind(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await make_topic(asker, broker)
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        for number in range(5):  # all at once; each is parked in its turn, also those that are read after the end
            writer.write(request_frame(fetch(), 11, number, "leaver"))
        await writer.drain()
        await until(lambda: bool(partition.delayed_operations))
        writer.close()
        await until(lambda: broker._running.server.connection_count == 1)
        await until(lambda: not partition.delayed_operations)

    tell(story)


def test_a_stop_does_not_wait_for_those_who_wait(tell: Callable[..., None]) -> None:
    started = []

    async def story(asker: Any, broker: Any) -> None:
        partition = await make_topic(asker, broker)
        waiting = asyncio.ensure_future(asker.ask(fetch(), 11))
        await until(lambda: bool(partition.delayed_operations))
        started.append(time.monotonic())
        await broker.stop()
        assert (await waiting).responses[0].partitions[0].high_watermark == 0

    tell(story)
    assert time.monotonic() - started[0] < 4  # the grace for those that hang is five seconds


def test_a_topic_that_is_deleted_wakes_its_readers(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await make_topic(asker, broker)
        waiting = asyncio.ensure_future(asker.ask(fetch(), 11))
        await until(lambda: bool(partition.delayed_operations))
        await broker._running.topic_admin.delete("t")
        assert (await waiting).responses[0].partitions[0].error_code == 3

    tell(story)


def test_others_are_served_while_records_of_many_partitions_are_deleted(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        running = broker._running
        await running.topic_admin.create("t", 20, {})
        partitions = running.replica_manager.by_name["t"].partitions
        for partition in partitions.values():
            append(partition, 10)
        seen: set[int] = set()
        wanted = [DeleteRecordsPartition(partition_index=index, offset=1) for index in partitions]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)], timeout_ms=1000)
        answer = asyncio.ensure_future(asker.ask(request, 2))
        while not answer.done():
            seen.add(sum(partition.log.start_offset for partition in partitions.values()))
            await asyncio.sleep(0)
        assert [one.low_watermark for one in answer.result().topics[0].partitions] == [1] * 20
        assert len(seen) > 10, "the loop turned in between"

    tell(story)


def test_a_refused_change_of_the_brokers_settings_is_not_kept(tell: Callable[..., None], tmp_path: Any) -> None:
    def change(broker_name: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
        entry = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=4, resource_name=broker_name, configs=[entry])
        return IncrementalAlterConfigsRequest(resources=[resource])

    async def refused(asker: Any, broker: Any) -> None:
        first = await asker.ask(change("", "log.cleaner.max.compaction.lag.ms", "1000000"), 1)
        second = await asker.ask(change("0", "log.cleaner.min.compaction.lag.ms", "5000000"), 1)
        assert [answer.responses[0].error_code for answer in (first, second)] == [0, 42]
        described = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=[])]
        )
        configs = (await asker.ask(described, 4)).results[0].configs
        assert {e.name: e.value for e in configs}["log.cleaner.min.compaction.lag.ms"] == "0"

    async def starts_again(asker: Any, broker: Any) -> None:
        assert broker._running.config.log_cleaner_max_compaction_lag_ms == 1_000_000

    tell(refused)
    tell(starts_again)
