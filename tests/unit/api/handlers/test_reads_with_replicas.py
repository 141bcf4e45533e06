"""Consumers and administrators of partitions with several replicas: where they read, the latest offset, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkalite.api.request.broker_endpoints import BrokerEndpoint
from kafkalite.common.errors import ErrorCode
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import BrokerRecord
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.protocol.messages.log_dirs import DescribeLogDirsRequest
from kafkalite.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkalite.protocol.messages.transactions import DescribeProducersRequest, DescribeProducersTopicRequest
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.replica.leader_replica import ReplicaFetch
from kafkalite.server.broker import Broker
from tests.support.bound_apis import replace_parts
from tests.support.loop import until
from tests.support.manual_clock import ManualClock
from tests.support.replication.led_in_broker import REGISTRATIONS, follow, lead, resign
from tests.unit.api.conftest import Crowd

TWO, THREE = 2, 3
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
WAIT_MS = 500


def batch(**how: Any) -> memoryview:
    return memoryview(bytearray(build_batch([NewRecord(None, b"value", timestamp=1)], **how)))


def fetch(offset: int, *, rack: str = "", max_wait_ms: int = 0, epoch: int = -1, isolation: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics, rack_id=rack, isolation_level=isolation)


def only(response: Any) -> Any:
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def replica_fetch(leader: Any, follower: int, offset: int, log_start_offset: int = 0) -> None:
    registration = REGISTRATIONS[follower]
    leader.on_replica_fetch(ReplicaFetch(follower, registration, leader.leader_epoch, offset, -1, log_start_offset))


Story = Callable[[Crowd, Broker], Awaitable[None]]


@pytest.fixture
def beside(tell: Callable[..., None]) -> Callable[..., None]:
    """Run a story with a crowd and the topic t."""

    def run(story: Story, **settings: Any) -> None:
        async def whole(_: Any, broker: Broker) -> None:
            running: Any = broker._running
            await running.topic_admin.create("t", 1, {})
            crowd = Crowd(broker)
            try:
                await story(crowd, broker)
            finally:
                crowd.leave()

        tell(whole, **settings)

    return run


# From followers


def test_a_follower_serves_new_clients_up_to_its_high_watermark(beside: Callable[..., None]) -> None:
    async def story(crowd: Crowd, broker: Broker) -> None:
        leader = lead(broker, "t")
        for _ in range(3):
            leader.append(batch(), 1, 9)
        for follower in (TWO, THREE):
            replica_fetch(leader, follower, 1)
        follower = follow(broker, "t")
        assert follower.high_watermark == 1
        epoch = follower.leader_epoch
        data = only(await crowd.ask(fetch(0), 11))
        assert (data.error_code, data.high_watermark, len(data.records)) == (0, 1, len(batch()))
        assert only(await crowd.ask(fetch(0), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert only(await crowd.ask(fetch(0, epoch=epoch), 11)).error_code == 0
        assert only(await crowd.ask(fetch(0, epoch=epoch - 1), 11)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert only(await crowd.ask(fetch(0, epoch=epoch + 1), 11)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        behind = only(await crowd.ask(fetch(2), 11))  # not known to be committed here
        assert (behind.error_code, behind.records or b"") == (0, b"")
        assert only(await crowd.ask(fetch(4), 11)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        parked = crowd.begin(fetch(1, max_wait_ms=60_000), 12)
        await until(lambda: follower.delayed_operations)
        follower.move_high_watermark(3)
        assert len(only(await parked).records) == 2 * len(batch())
        parked = crowd.begin(fetch(3, max_wait_ms=60_000), 12)
        await until(lambda: follower.delayed_operations)
        running: Any = broker._running
        running.replica_manager.by_name["t"].followers.pop(0).retire()
        assert only(await parked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    beside(story)


def test_aborted_records_of_a_follower_are_named(beside: Callable[..., None]) -> None:
    async def story(crowd: Crowd, broker: Broker) -> None:
        leader = lead(broker, "t", isr=())
        records = batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        leader.append(records, 1, 9, transactional=True, guard=leader.producers.begin_verification(7, 0, 0))
        leader.append_marker(7, 0, 1, False, 1)
        assert leader.high_watermark == 2
        follow(broker, "t")
        data = only(await crowd.ask(fetch(0, isolation=1), 11))
        assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(7, 0)]

    beside(story)


class _Others:
    """The broker's view of other brokers."""

    def __init__(self, real: Any, **replaced: Any) -> None:
        self._real = real
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def in_racks(broker: Broker, racks: dict[int, str]) -> None:
    running: Any = broker._running
    brokers = {each: BrokerRecord(each, (), rack) for each, rack in racks.items()}

    def finder_for(connection: Any) -> Any:
        return lambda each: BrokerEndpoint(each, "there", 9092, racks.get(each)) if each in racks else None

    replace_parts(
        running,
        metadata=_Others(running.metadata, brokers=brokers),
        brokers=_Others(
            running.apis.fetch.brokers,
            finder_for=finder_for,
            find=lambda connection, each: finder_for(connection)(each),
            all_for=lambda connection: [BrokerEndpoint(each, "there", 9092, None) for each in racks],
        ),
    )


def test_a_leader_sends_consumers_to_the_replica_in_their_rack(beside: Callable[..., None]) -> None:
    async def story(crowd: Crowd, broker: Broker) -> None:
        leader = lead(broker, "t")
        in_racks(broker, {0: "a", TWO: "b", THREE: "c"})
        leader.append(batch(), 1, 9)
        asker = await crowd.join()
        for follower in (TWO, THREE):
            replica_fetch(leader, follower, 1)
        for _ in range(3):  # whatever was asked before, on this connection
            for offset in (0, 1):  # with records, and at the end, where nobody waits for long
                data = only(await asker.ask(fetch(offset, rack="b", max_wait_ms=60_000), 11))
                assert (data.preferred_read_replica, data.records or b"") == (TWO, b"")
                assert data.high_watermark == 1
            data = only(await asker.ask(fetch(0, rack="a"), 11))
            assert (data.preferred_read_replica, len(data.records)) == (-1, len(batch()))
            data = only(await asker.ask(fetch(0), 11))
            assert (data.preferred_read_replica, len(data.records)) == (-1, len(batch()))
        leader.append(batch(), 1, 9)
        replica_fetch(leader, THREE, 2)
        assert only(await asker.ask(fetch(2, rack="b"), 11)).preferred_read_replica == -1  # it has not got there
        assert only(await asker.ask(fetch(2, rack="c"), 11)).preferred_read_replica == THREE
        in_racks(broker, {0: "a", THREE: "c"})  # 2 is gone, or has no such listener
        assert only(await asker.ask(fetch(0, rack="b"), 11)).preferred_read_replica == -1

    beside(story, replica_selector_class="RackAwareReplicaSelector")


def test_a_leader_that_is_cut_off_sends_no_consumer_back(beside: Callable[..., None]) -> None:
    async def story(crowd: Crowd, broker: Broker) -> None:
        async def end_of(epoch: int) -> tuple[int, int, int]:
            wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
            topics = [OffsetForLeaderTopic(topic="t", partitions=[wanted])]
            (topic,) = (await crowd.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)).topics
            (answer,) = topic.partitions
            return answer.error_code, answer.leader_epoch, answer.end_offset

        running: Any = broker._running
        known = running.metadata
        unheard_of = _Others(known, is_surely_registered=False)
        replace_parts(running, metadata=unheard_of)
        assert only(await crowd.ask(fetch(1), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "nobody else has it"
        replace_parts(running, metadata=known)
        leader = lead(broker, "t")
        own, newer = leader.leader_epoch, leader.leader_epoch + 1
        beyond = leader.log.end_offset + 1
        assert await end_of(newer) == (0, -1, -1), "as Kafka's"
        assert only(await crowd.ask(fetch(beyond), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        replace_parts(running, metadata=unheard_of)
        assert await end_of(own) == (0, own, leader.log.end_offset)
        assert await end_of(newer) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
        for version in (4, 12):
            assert only(await crowd.ask(fetch(beyond), version)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert only(await crowd.ask(fetch(beyond - 1), 12)).error_code == 0

    beside(story)


def test_without_a_selector_racks_do_not_matter(beside: Callable[..., None]) -> None:
    async def story(crowd: Crowd, broker: Broker) -> None:
        leader = lead(broker, "t")
        in_racks(broker, {0: "a", TWO: "b", THREE: "c"})
        leader.append(batch(), 1, 9)
        for follower in (TWO, THREE):
            replica_fetch(leader, follower, 1)
        data = only(await crowd.ask(fetch(0, rack="b"), 11))
        assert (data.preferred_read_replica, len(data.records)) == (-1, len(batch()))

    beside(story)


def test_selectors_have_kafkas_names() -> None:
    def parsed(text: str) -> str | None:
        return BrokerConfig.load({"replica.selector.class": text}).replica_selector_class

    assert parsed(SELECTOR) == parsed("RackAwareReplicaSelector") == SELECTOR
    assert parsed("org.apache.kafka.common.replica.LeaderSelector") is None
    assert BrokerConfig().replica_selector_class is None


# KIP-207


def test_a_new_leader_does_not_know_the_latest_offset_at_once(beside: Callable[..., None]) -> None:
    async def story(crowd: Crowd, broker: Broker) -> None:
        former = lead(broker, "t")
        former.append(batch(), 1, 9)
        resign(broker, "t")
        running: Any = broker._running
        running.replica_manager.by_name["t"].partitions[0] = former
        leader = lead(broker, "t")
        assert (leader.high_watermark, leader.log.end_offset) == (0, 1)

        async def code(timestamp: int, version: int, isolation: int = 0) -> int:
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topics = [ListOffsetsTopic(name="t", partitions=[wanted])]
            answer = await crowd.ask(ListOffsetsRequest(topics=topics, isolation_level=isolation), version)
            return int(answer.topics[0].partitions[0].error_code)

        for timestamp in (-1, 0):
            for isolation in (0, 1):
                assert await code(timestamp, 5, isolation) == ErrorCode.OFFSET_NOT_AVAILABLE
                assert await code(timestamp, 4, isolation) == ErrorCode.LEADER_NOT_AVAILABLE
        assert await code(-2, 5) == 0
        for follower in (TWO, THREE):
            replica_fetch(leader, follower, 1)
        assert await code(-1, 5) == await code(0, 5) == 0

    beside(story)


# Administrators


def delete(offset: int, timeout_ms: int = WAIT_MS) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=timeout_ms)


def outcome(answer: Any) -> tuple[int, int]:
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.low_watermark


def test_records_are_deleted_when_every_live_replica_has_deleted_them(beside: Callable[..., None]) -> None:
    clock = ManualClock()

    async def story(crowd: Crowd, broker: Broker) -> None:
        leader = lead(broker, "t")
        leader.append(batch(), 1, 9), leader.append(batch(), 1, 9)
        for follower in (TWO, THREE):
            replica_fetch(leader, follower, 2)
        parked = crowd.begin(delete(1), 2)
        await until(lambda: leader._delayed_deletions)
        replica_fetch(leader, TWO, 2, log_start_offset=1)
        assert leader.log.start_offset == 1 and not parked.done()
        replica_fetch(leader, THREE, 2, log_start_offset=1)
        assert outcome(await parked) == (0, 1)
        assert outcome(await crowd.ask(delete(0), 2)) == (0, 1)  # nothing to do

        parked = crowd.begin(delete(-1), 2)
        await until(lambda: leader._delayed_deletions)
        clock.advance(WAIT_MS)
        assert outcome(await parked) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        parked = crowd.begin(delete(2, 60_000), 2)
        await until(lambda: len(leader._delayed_deletions) == 2)
        resign(broker, "t")
        assert outcome(await parked) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    beside(story, clock=clock)


def test_a_followers_log_and_its_producers_are_described(beside: Callable[..., None]) -> None:
    async def story(crowd: Crowd, broker: Broker) -> None:
        leader = lead(broker, "t", isr=())
        leader.append(batch(producer_id=7, producer_epoch=0, base_sequence=0), 1, 9)

        async def described() -> tuple[Any, Any]:
            logs = await crowd.ask(DescribeLogDirsRequest(topics=None), 4)
            (topic,) = logs.results[0].topics
            asked = DescribeProducersRequest(topics=[DescribeProducersTopicRequest(name="t", partition_indexes=[0])])
            (producers,) = (await crowd.ask(asked, 0)).topics[0].partitions
            partition = topic.partitions[0]
            told = (partition.partition_size, partition.offset_lag, partition.is_future_key)
            return told, [(each.producer_id, each.last_sequence) for each in producers.active_producers]

        of_leader = await described()
        assert of_leader == ((len(batch()), 0, False), [(7, 0)])
        follow(broker, "t")
        assert await described() == of_leader

    beside(story)


def test_a_commit_waits_for_the_replicas_of_its_partition(beside: Callable[..., None]) -> None:
    """As with acks=-1, and no longer than offsets.commit.timeout.ms."""
    from kafkalite.protocol.messages.group_offsets import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    clock = ManualClock()

    async def story(crowd: Crowd, broker: Broker) -> None:
        running: Any = broker._running
        await running.coordinators.offsets_topic.ensure()
        leader = lead(broker, "__consumer_offsets", min_isr=2)

        def commit() -> asyncio.Task[Any]:
            one = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            topics = [OffsetCommitRequestTopic(name="t", partitions=[one])]
            return crowd.begin(OffsetCommitRequest(group_id="g", topics=topics), 7)

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        parked = commit()
        await until(lambda: leader.log.end_offset == 1)
        assert not parked.done()
        for follower in (TWO, THREE):
            replica_fetch(leader, follower, 1)
        assert code(await parked) == 0
        parked = commit()
        await until(lambda: leader.log.end_offset == 2)
        clock.advance(1_000)
        assert code(await parked) == ErrorCode.REQUEST_TIMED_OUT
        for follower in (TWO, THREE):
            replica_fetch(leader, follower, 2)  # too late, and nothing is told twice
        parked = commit()
        await until(lambda: leader.log.end_offset == 3)
        resign(broker, "__consumer_offsets")
        assert code(await parked) == ErrorCode.NOT_COORDINATOR

        running.replica_manager.by_name["__consumer_offsets"].partitions[0] = leader
        lead(broker, "__consumer_offsets", isr=(), min_isr=2)
        assert code(await commit()) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    beside(story, clock=clock, offsets_topic_num_partitions=1, offsets_commit_timeout_ms=1_000)


def test_a_marker_waits_for_the_replicas_of_its_partition(beside: Callable[..., None]) -> None:
    from kafkalite.protocol.messages.transactions import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    async def story(crowd: Crowd, broker: Broker) -> None:
        leader = lead(broker, "t", min_isr=2)
        records = batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        leader.append(records, 1, 9, transactional=True, guard=leader.producers.begin_verification(7, 0, 0))
        marker = WritableTxnMarker(
            producer_id=7, producer_epoch=0, coordinator_epoch=1, transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )  # fmt: skip

        def code(answer: Any) -> int:
            return int(answer.markers[0].topics[0].partitions[0].error_code)

        parked = crowd.begin(WriteTxnMarkersRequest(markers=[marker]), 1)
        await until(lambda: leader.log.end_offset == 2)
        replica_fetch(leader, TWO, 2)
        assert leader.last_stable_offset == 0 and not parked.done()
        replica_fetch(leader, THREE, 2)
        assert code(await parked) == 0 and leader.last_stable_offset == 2
        lead(broker, "t", isr=(), min_isr=2)
        refused = await crowd.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert code(refused) == ErrorCode.NOT_ENOUGH_REPLICAS and leader.log.end_offset == 2

    beside(story)


def test_metadata_names_replicas_isr_and_what_is_offline(beside: Callable[..., None]) -> None:
    from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    async def story(crowd: Crowd, broker: Broker) -> None:
        async def described() -> Any:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            (topic,) = (await crowd.ask(asked, 9)).topics
            return topic.partitions[0]

        running: Any = broker._running
        me = running.broker_id
        leader = lead(broker, "t", isr=(TWO,))
        in_racks(broker, {me: "a", TWO: "b"})
        running.apis.fetch.metadata.is_shared = True
        told = await described()
        assert (told.leader_id, told.leader_epoch, told.error_code) == (me, leader.leader_epoch, 0)
        assert (told.replica_nodes, told.isr_nodes, told.offline_replicas) == ([me, TWO, THREE], [me, TWO], [THREE])
        follow(broker, "t")
        assert (await described()).leader_id == TWO
        running.replica_manager.hosted.offline["t", 0] = "its disk has failed"
        assert (await described()).offline_replicas == [me, THREE]

    beside(story)
