"""aiokafka in and out, alone and as a group of three in one loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError

from tests.support.wait import DEADLINE_S

START_MS = int(time.time() * 1000) - 86_400_000  # yesterday: known to differ from now, kept by retention
LARGE = bytes(range(256)) * (900 * 4)


def run(story: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
    return asyncio.run(asyncio.wait_for(story, seconds))


def reader(bootstrap: str, *topics: str, **given: Any) -> aiokafka.AIOKafkaConsumer:
    defaults = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 100,
        "heartbeat_interval_ms": 100,
    }
    return aiokafka.AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **defaults | given)


async def write(
    bootstrap: str, topic: str, count: int, first: int = 0, partition: int = 0, **settings: Any
) -> list[int]:
    """Sends numbered records and returns the offsets that the broker answered."""
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        sent = [
            await producer.send(topic, b"%d" % n, partition=partition, timestamp_ms=START_MS + 1000 * n)
            for n in range(first, first + count)
        ]
        return [answer.offset for answer in await asyncio.gather(*sent)]


async def take(consumer: aiokafka.AIOKafkaConsumer, count: int) -> list[int]:
    return [int((await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value) for _ in range(count)]


@pytest.mark.parametrize("settings", [{"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}], ids=str)
def test_records_come_back_in_order(bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
    async def story() -> None:
        assert await write(bootstrap, topic, 300, **settings) == list(range(300))
        async with reader(bootstrap, topic) as consumer:
            assert await take(consumer, 300) == list(range(300))

    run(story())


def test_unanswered_records_arrive_too(bootstrap: str, topic: str) -> None:
    async def story() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks=0) as producer:
            for n in range(20):
                await producer.send_and_wait(topic, b"%d" % n)
        async with reader(bootstrap, topic) as consumer:
            assert await take(consumer, 20) == list(range(20))

    run(story())


def test_large_empty_and_null(bootstrap: str, topic: str) -> None:
    async def story() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(2_000_000))
            for value in (LARGE, b"", None):
                await producer.send_and_wait(topic, value, key=b"k", headers=[("h", b"1")])
        async with reader(bootstrap, topic) as consumer:
            records = [await consumer.getone() for _ in range(3)]
        assert [r.value for r in records] == [LARGE, b"", None]
        assert [r.headers for r in records] == [(("h", b"1"),)] * 3

    run(story())


def test_seek_times_and_ends(bootstrap: str, topic: str) -> None:
    async def story() -> None:
        await write(bootstrap, topic, 100, linger_ms=20)
        partition = TopicPartition(topic, 0)
        async with reader(bootstrap, topic) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 100}
            found = (await consumer.offsets_for_times({partition: START_MS + 41_500}))[partition]
            assert (found.offset, found.timestamp) == (42, START_MS + 42_000)
            consumer.seek(partition, 90)
            assert await take(consumer, 10) == list(range(90, 100))
            await consumer.seek_to_beginning(partition)
            assert await take(consumer, 1) == [0]
            assert await consumer.position(partition) == 1
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 100

    run(story())


def test_commit_and_go_on(bootstrap: str, topic: str, unique: Callable[[str], str]) -> None:
    async def story() -> None:
        group, partition = unique("group"), TopicPartition(topic, 0)
        await write(bootstrap, topic, 30)
        async with reader(bootstrap, topic, group_id=group) as consumer:
            assert await take(consumer, 12) == list(range(12))
            await consumer.commit({partition: aiokafka.OffsetAndMetadata(12, "noted")})
            assert await consumer.committed(partition) == 12
        async with reader(bootstrap, topic, group_id=group) as consumer:
            assert await take(consumer, 18) == list(range(12, 30))

    run(story())


class CommitsBeforeGivingBack(aiokafka.ConsumerRebalanceListener):
    def __init__(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            await self.consumer.commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


def test_three_members_share_the_work_and_one_leaves(
    bootstrap: str, create_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = create_topic(bootstrap, partitions=6), unique("three")
    seen: list[tuple[int, bytes]] = []
    expected: set[tuple[int, bytes]] = set()

    async def member() -> aiokafka.AIOKafkaConsumer:
        consumer = reader(bootstrap, group_id=group)
        consumer.subscribe([topic], listener=CommitsBeforeGivingBack(consumer))
        await consumer.start()
        return consumer

    async def turn(members: list[aiokafka.AIOKafkaConsumer]) -> list[int]:
        for found in await asyncio.gather(*(m.getmany(timeout_ms=50) for m in members)):
            seen.extend((record.partition, record.value) for records in found.values() for record in records)
        return sorted(len(m.assignment()) for m in members)

    async def settles_and_sees(members: list[aiokafka.AIOKafkaConsumer], sizes: list[int]) -> None:
        deadline = time.monotonic() + 15
        while (now := await turn(members)) != sizes:
            assert time.monotonic() < deadline, f"partitions of the members: {now}, awaited: {sizes}"
        first = len(expected)
        for partition in range(6):
            await write(bootstrap, topic, 5, first=first, partition=partition)
            expected.update((partition, b"%d" % n) for n in range(first, first + 5))
        while not expected <= set(seen):
            await turn(members)
            assert time.monotonic() < deadline, f"{len(seen)} of {len(expected)} records seen"
        assert Counter(seen) == Counter(expected), "each record exactly once"

    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            members: list[aiokafka.AIOKafkaConsumer] = []
            for sizes in ([6], [3, 3], [2, 2, 2]):
                members.append(await member())
                stack.push_async_callback(members[-1].stop)
                await settles_and_sees(members, sizes)
            leaver = members.pop(0)
            await leaver.commit()
            await leaver.stop()
            await settles_and_sees(members, [3, 3])

    run(story(), 60)


def test_a_static_member(bootstrap: str, topic: str, unique: Callable[[str], str]) -> None:
    async def story() -> None:
        await write(bootstrap, topic, 4)
        group = unique("static")
        for expected in ([0, 1], [2, 3]):
            async with reader(bootstrap, topic, group_id=group, group_instance_id="me") as consumer:
                assert await take(consumer, 2) == expected
                await consumer.commit({TopicPartition(topic, 0): expected[-1] + 1})

    run(story())


def test_the_admin_client(bootstrap: str, unique: Callable[[str], str]) -> None:
    async def eventually(probe: Callable[[], Coroutine[Any, Any, Any]], wanted: Any) -> None:
        deadline = time.monotonic() + 10
        while (got := await probe()) != wanted:
            assert time.monotonic() < deadline, f"{got!r} instead of {wanted!r}"

    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            name, partition = unique("life"), TopicPartition
            await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"retention.ms": "77000"})])
            await admin.create_partitions({name: NewPartitions(3)})

            async def partitions() -> int:
                return len((await admin.describe_topics([name]))[0]["partitions"])

            await eventually(partitions, 3)
            await write(bootstrap, name, 10)
            await admin.delete_records({partition(name, 0): RecordsToDelete(4)})
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            entries = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert entries["retention.ms"] == "77000"
            assert (await admin.describe_cluster())["brokers"]
            async with reader(bootstrap, name, group_id=name) as consumer:
                assert await take(consumer, 6) == list(range(4, 10))
                await consumer.commit()
            assert (name, "consumer") in await admin.list_consumer_groups()
            offsets = await admin.list_consumer_group_offsets(name)
            assert offsets[partition(name, 0)].offset == 10
            await admin.delete_topics([name])

            async def listed() -> bool:
                return name in await admin.list_topics()

            await eventually(listed, False)
        finally:
            await admin.close()

    run(story())
