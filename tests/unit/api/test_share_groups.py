"""Share groups over a connection: joining, fetching, acknowledging, and what ends of sessions and starts do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages import configs, share_fetch, share_groups
from kafkalite.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from kafkalite.record.batch import NewRecord, build_batch, iter_batches
from kafkalite.server.broker import Broker
from tests.unit.api.conftest import Asker

GROUP_RESOURCE = 32
SETTINGS = {"group_share_assignment_interval_ms": 0}
ACCEPT, RELEASE, REJECT = 1, 2, 3


class Member:
    """One member of the group `shares`, as a client library would behave."""

    def __init__(self, asker: Asker, topic_id: UUID, member_id: str = "m") -> None:
        self.asker = asker
        self.topic_id = topic_id
        self.member_id = member_id
        self.epoch = 0
        self.session_epoch = 0

    async def beat(self, **fields: Any) -> Any:
        if self.epoch == 0:
            fields.setdefault("subscribed_topic_names", ["t"])
        request = share_groups.ShareGroupHeartbeatRequest(
            group_id="shares", member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        answer = await self.asker.ask(request, 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    async def join(self) -> list[int]:
        """The partitions of the member once it has some."""
        async with asyncio.timeout(20):
            while True:
                answer = await self.beat()
                assert answer.error_code == 0, answer.error_message
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return list(answer.assignment.topic_partitions[0].partitions)

    async def fetch(self, *acknowledged: tuple[int, int, list[int]], **fields: Any) -> Any:
        """The row of partition 0; None if the answer has none."""
        fields = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500} | fields
        row = share_fetch.ShareFetchPartition(partition_index=0, acknowledgement_batches=_batches(acknowledged))
        request = share_fetch.ShareFetchRequest(
            group_id="shares",
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[share_fetch.ShareFetchTopic(topic_id=self.topic_id, partitions=[row])],
            **fields,
        )
        answer = await self.asker.ask(request, 2)
        assert answer.error_code == 0, answer
        self.session_epoch += 1
        return answer.responses[0].partitions[0] if answer.responses else None

    async def acknowledge(self, *acknowledged: tuple[int, int, list[int]], closes: bool = False) -> Any:
        row = share_fetch.ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(acknowledged))
        topics = [share_fetch.ShareAcknowledgeTopic(topic_id=self.topic_id, partitions=[row])] if acknowledged else []
        request = share_fetch.ShareAcknowledgeRequest(
            group_id="shares",
            member_id=self.member_id,
            share_session_epoch=-1 if closes else self.session_epoch,
            topics=topics,
        )
        answer = await self.asker.ask(request, 2)
        assert answer.error_code == 0, answer
        self.session_epoch += 1
        return answer.responses[0].partitions[0] if answer.responses else None


def _batches(acknowledged: tuple[tuple[int, int, list[int]], ...]) -> list[share_fetch.AcknowledgementBatch]:
    return [
        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acknowledged
    ]


def acquired(row: Any) -> list[tuple[int, int, int]]:
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in row.acquired_records]


def offsets(row: Any) -> list[int]:
    """The base offsets of the batches that were sent."""
    return [header.base_offset for header, _ in iter_batches(memoryview(bytes(row.records)))]


async def begin(asker: Asker, broker: Broker, batches: int = 3, records: int = 10, partition_count: int = 1) -> Member:
    """A topic with batches of records, which the group reads from its beginning, and a member that has joined."""
    running: Any = broker._running
    await running.coordinators.offsets_topic.ensure()
    topic = await running.topic_admin.create("t", partition_count, {})
    for index in range(partition_count):
        append(broker, batches, records, index)
    setting = configs.IncrementalAlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = configs.IncrementalAlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name="shares", configs=[setting]
    )
    answer = await asker.ask(configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0
    member = Member(asker, topic.topic_id)
    assert await member.join() == [*range(partition_count)]
    return member


def append(broker: Broker, batches: int, records: int, index: int = 0) -> None:
    partition = broker._running.replica_manager.partition("t", index)
    for _ in range(batches):
        batch = build_batch([NewRecord(None, b"x" * 10)] * records)
        partition.append(memoryview(batch), 0, 9)


def test_records_are_acquired_and_acknowledged(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)
        first = await member.fetch(max_records=15, batch_size=5)
        assert acquired(first) == [(0, 9, 1), (10, 19, 1)]  # whole batches
        assert offsets(first) == [0, 10]
        second = await member.fetch((0, 9, [ACCEPT]), (10, 19, [RELEASE] * 5 + [REJECT] * 5))
        assert second.acknowledge_error_code == 0
        assert acquired(second) == [(10, 14, 2), (20, 29, 1)]
        assert (await member.acknowledge((10, 14, [ACCEPT]), (20, 29, [ACCEPT]))).error_code == 0
        assert await member.fetch() is None or acquired(await member.fetch()) == []

    tell(story, **SETTINGS)


def test_a_partition_that_is_loaded_first_is_answered_alone(tell: Callable[..., None]) -> None:
    """As by Apache Kafka, where each is read from the share coordinator and completes the fetch that waits."""

    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker, partition_count=3)
        wanted = [share_fetch.ShareFetchPartition(partition_index=index) for index in range(3)]
        topics = [share_fetch.ShareFetchTopic(topic_id=member.topic_id, partitions=wanted)]
        found = []
        for epoch in range(2):
            request = share_fetch.ShareFetchRequest(
                group_id="shares",
                member_id="m",
                share_session_epoch=epoch,
                topics=[] if epoch else topics,
                max_wait_ms=60_000,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=500,
                batch_size=500,
            )
            answer = await asker.ask(request, 2)
            found.append([row.partition_index for row in answer.responses[0].partitions if row.acquired_records])
        assert [len(each) for each in found] == [1, 2]
        assert sorted(found[0] + found[1]) == [0, 1, 2]

    tell(story, **SETTINGS)


def test_a_consumer_cannot_take_the_name_of_a_share_group(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)
        consumer = ConsumerGroupHeartbeatRequest(
            group_id="shares",
            member_id="c",
            rebalance_timeout_ms=1_000,
            topic_partitions=[],
            subscribed_topic_names=["t"],
        )
        for _ in range(2):
            refused = await asker.ask(consumer, 1)
            assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert refused.error_message == "Group shares is not a consumer group."
            assert (await member.beat()).error_code == 0
            member.epoch = -1
            await member.beat()  # the empty group keeps its name, too
            member.epoch = 0

    tell(story, **SETTINGS)


def test_others_records_cannot_be_acknowledged(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)
        await member.fetch()
        other = Member(asker, member.topic_id, "other")
        await other.join()
        assert acquired(await other.fetch()) == []
        row = await other.acknowledge((0, 9, [ACCEPT]))
        assert row.error_code == ErrorCode.INVALID_RECORD_STATE
        assert (await member.acknowledge((0, 29, [ACCEPT]))).error_code == 0
        assert (await member.acknowledge((0, 29, [ACCEPT]))).error_code == 0  # below the start: as if it had been

    tell(story, **SETTINGS)


def test_a_fetch_waits_for_records_and_for_what_others_release(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker, batches=1)
        await member.fetch()
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        other = Member(Asker(reader, writer), member.topic_id, "other")
        await other.join()
        waiting = asyncio.ensure_future(other.fetch(max_wait_ms=20_000))
        await asyncio.sleep(0)
        await member.acknowledge((0, 9, [RELEASE]))
        assert acquired(await waiting) == [(0, 9, 2)]
        waiting = asyncio.ensure_future(other.fetch(max_wait_ms=20_000))
        await asyncio.sleep(0)
        append(broker, 1, 3)
        assert acquired(await waiting) == [(10, 12, 1)]
        writer.close()  # its records are free at once
        async with asyncio.timeout(20):
            while not acquired(row := await member.fetch(max_wait_ms=100) or share_fetch.ShareFetchedPartition()):
                pass
        assert acquired(row) == [(0, 9, 3), (10, 12, 2)]

    tell(story, **SETTINGS)


def test_a_limit_of_bytes_may_cut_the_second_batch(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)
        size = broker._running.replica_manager.partition("t", 0).log.size_bytes // 3
        assert acquired(await member.fetch(max_bytes=2 * size - 1)) == [(0, 9, 1)]
        assert acquired(await member.fetch(max_bytes=1)) == [(10, 19, 1)]

    tell(story, **SETTINGS)


def test_fetches_that_wait_get_what_is_left_one_after_another(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)
        await member.fetch(batch_size=10)
        writers, waiting = [], []
        for number in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            other = Member(Asker(reader, writer), member.topic_id, f"other-{number}")
            await other.join()
            waiting.append(asyncio.ensure_future(other.fetch(max_wait_ms=20_000, max_records=10)))
            writers.append(writer)
        led = broker._running.apis.shares.fetches.shares.find("shares", member.topic_id, 0)
        for _ in range(100_000):
            if len(led.delayed_fetches) == 4:
                break
            await asyncio.sleep(0)
        waiting[0].cancel()
        released = asyncio.ensure_future(member.acknowledge((0, 29, [RELEASE])))
        writers[0].close()  # the first of those that wait
        found = [acquired(await each) for each in waiting[1:]]
        assert sorted(found) == [[(0, 9, 2)], [(10, 19, 2)], [(20, 29, 2)]]
        await released

    tell(story, **SETTINGS)


def test_sessions_have_one_sequence_of_epochs(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)

        async def fetch(epoch: int, **fields: Any) -> int:
            request = share_fetch.ShareFetchRequest(
                group_id="shares", member_id="m", share_session_epoch=epoch, max_records=1, **fields
            )
            return int((await asker.ask(request, 2)).error_code)

        async def acknowledge(epoch: int) -> int:
            request = share_fetch.ShareAcknowledgeRequest(group_id="shares", member_id="m", share_session_epoch=epoch)
            return int((await asker.ask(request, 2)).error_code)

        assert await fetch(1) == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await acknowledge(0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await fetch(0) == 0
        assert await fetch(2) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await acknowledge(1) == 0
        assert await fetch(2) == 0
        assert await fetch(3, is_renew_ack=True) == ErrorCode.INVALID_REQUEST  # with max_records
        assert await acknowledge(-1) == 0
        assert await acknowledge(-1) == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.epoch > 0

    tell(story, **SETTINGS)


def test_a_group_is_described_altered_and_deleted(tell: Callable[..., None]) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)
        await member.fetch(max_records=10)
        await member.acknowledge((0, 9, [ACCEPT]))
        await member.acknowledge(closes=True)
        described = (await asker.ask(share_groups.ShareGroupDescribeRequest(group_ids=["shares", "none"]), 1)).groups
        assert [(each.error_code, each.group_state) for each in described] == [(0, "Stable"), (69, "")]
        assert described[0].members[0].assignment.topic_partitions[0].partitions == [0]
        listed = (await asker.ask(ListGroupsRequest(types_filter=["share"]), 5)).groups
        assert [(each.group_id, each.protocol_type, each.group_type) for each in listed] == [
            ("shares", "share", "share")
        ]
        alter = share_groups.AlterShareGroupOffsetsRequest(
            group_id="shares",
            topics=[
                share_groups.AlterShareGroupOffsetsTopic(
                    topic_name="t",
                    partitions=[share_groups.AlterShareGroupOffsetsPartition(partition_index=0, start_offset=20)],
                )
            ],
        )
        assert (await asker.ask(alter, 0)).error_code == ErrorCode.NON_EMPTY_GROUP
        member.epoch = -1
        await member.beat()
        altered = await asker.ask(alter, 0)
        assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)
        everything = share_groups.DescribeShareGroupOffsetsRequest(
            groups=[share_groups.DescribeShareGroupOffsetsGroup(group_id="shares", topics=None)]
        )
        row = (await asker.ask(everything, 1)).groups[0].topics[0].partitions[0]
        assert (row.start_offset, row.lag) == (20, 10)
        member = Member(asker, member.topic_id)
        await member.join()
        assert acquired(await member.fetch()) == [(20, 29, 1)]
        member.epoch = -1
        await member.beat()
        deleted = await asker.ask(DeleteGroupsRequest(groups_names=["shares"]), 2)
        assert deleted.results[0].error_code == 0
        assert not (await asker.ask(ListGroupsRequest(), 5)).groups

    tell(story, **SETTINGS)


def test_a_new_start_reads_what_is_durable(tell: Callable[..., None]) -> None:
    """Records that were acknowledged do not come again, those that were only acquired do."""

    async def first(asker: Asker, broker: Broker) -> None:
        member = await begin(asker, broker)
        await member.fetch()
        await member.acknowledge((0, 4, [ACCEPT]), (10, 19, [RELEASE]))

    async def second(asker: Asker, broker: Broker) -> None:
        topic_id = broker._running.replica_manager.by_name["t"].topic_id
        member = Member(asker, topic_id)
        await member.join()
        found = acquired(await member.fetch())
        assert found == [(5, 29, 2)]  # the end of the session has released what it held

    tell(first, **SETTINGS)
    tell(second, **SETTINGS)
