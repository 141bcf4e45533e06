"""Fetches of followers: what they tell their leader, what they read, and how long they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.loop import until
from tests.support.manual_clock import ManualClock
from tests.support.replication.led_in_broker import REGISTRATIONS, resign
from tests.support.replication.replica_fetches import (
    BATCH,
    NEWS_WAIT_MS,
    THREE,
    TWO,
    VERSION,
    WAIT_MS,
    World,
    only,
    outcome,
    world,
)

__all__ = ["world"]


def test_a_producer_waits_until_each_follower_has_asked_for_more(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        first, second = world.begin(TWO, 0), world.begin(THREE, 0)
        await until(lambda: len(leader.replica_fetches) == 2)
        one_is_enough, all_are = world.produce(acks=1), world.produce()
        assert outcome(await one_is_enough) == (0, 0)
        await until(lambda: leader.log.end_offset == 2)
        for fetch in (first, second):
            data = only(await fetch)
            assert len(data.records) >= len(BATCH) and data.high_watermark == 0
        again = world.begin(TWO, 2)
        await until(lambda: leader.replica.followers[TWO].log_end_offset == 2)
        assert not all_are.done() and leader.high_watermark == 0
        at_once = await world.ask(THREE, 2, max_wait_ms=0)
        assert only(at_once).high_watermark == 2 and not only(at_once).records
        assert outcome(await all_are) == (0, 1)
        assert only(await again).high_watermark == 2  # it waited, and learns of it

    world(story)


def test_a_producer_is_told_in_time_that_its_batch_is_not_everywhere(world: Callable[..., None]) -> None:
    clock = ManualClock()

    async def story(world: World, leader: Any) -> None:
        asker = await world.crowd.join()
        for offset in range(2):  # the second one takes the fast path
            data = PartitionProduceData(index=0, records=memoryview(BATCH))
            request = ProduceRequest(
                acks=-1, timeout_ms=100, topic_data=[TopicProduceData(name="t", partition_data=[data])]
            )
            parked = asyncio.ensure_future(asker.ask(request, 9))
            await until(lambda offset=offset: leader.log.end_offset == offset + 1)
            clock.advance(99)
            await world.crowd.ask(world.fetch(THREE, world.wanted(0), max_wait_ms=0), VERSION)
            assert not parked.done()
            clock.advance(1)
            assert outcome(await parked) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    world(story, clock=clock)


def test_a_producer_learns_who_leads_when_its_leader_loses_its_office(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        asker = await world.crowd.join()
        await world.ask(TWO, 0, max_wait_ms=0)
        data = PartitionProduceData(index=0, records=memoryview(BATCH))
        request = ProduceRequest(
            acks=-1, timeout_ms=100, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        other = await world.crowd.join()
        await asker.ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=request.topic_data), 10)
        for one in (asker, other):
            one.parked = asyncio.ensure_future(one.ask(request, 10))  # type: ignore[attr-defined]
        await until(lambda: leader.log.end_offset == 3)
        resign(world.broker, "t")
        for one in (asker, other):
            answer = (await one.parked).responses[0].partition_responses[0]  # type: ignore[attr-defined]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (TWO, 1)

    world(story)


def test_nothing_is_written_while_too_few_are_in_sync(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        world.topic.overrides = {"min.insync.replicas": "2"}
        world.running.replica_manager.configure(world.topic, {"min.insync.replicas": "2"})
        world.running.replica_manager.hosted.update_replicas(world.topic)
        for _ in range(2):
            assert outcome(await world.produce()) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert leader.log.end_offset == 0
        assert outcome(await world.produce(acks=1)) == (0, 0)

    world(story, isr=())


def test_a_session_has_news_and_then_waits_for_more(world: Callable[..., None]) -> None:
    clock = ManualClock()

    async def story(world: World, leader: Any) -> None:
        asker = await world.crowd.join()
        full = await asker.ask(world.fetch(TWO, world.wanted(0), max_wait_ms=0, session_epoch=0), VERSION)
        assert full.session_id and only(full).high_watermark == 0
        session = {"session_id": full.session_id}
        parked = asyncio.ensure_future(asker.ask(world.fetch(TWO, session_epoch=1, **session), VERSION))
        await until(lambda: leader.idle_followers)
        clock.advance(WAIT_MS)
        assert (await parked).responses == []  # no news
        assert leader.idle_followers and not leader.replica_fetches
        assert outcome(await world.produce(acks=1)) == (0, 0)
        data = only(await asker.ask(world.fetch(TWO, session_epoch=2, **session), VERSION))
        assert len(data.records) == len(BATCH)
        await world.ask(THREE, 1, max_wait_ms=0)
        news = asyncio.ensure_future(asker.ask(world.fetch(TWO, world.wanted(1), session_epoch=3, **session), VERSION))
        await until(lambda: leader.replica_fetches)
        clock.advance(NEWS_WAIT_MS - 1)
        assert not news.done()
        clock.advance(1)
        assert only(await news).high_watermark == 1 and not only(await news).records
        parked = asyncio.ensure_future(asker.ask(world.fetch(TWO, session_epoch=4, **session), VERSION))
        await until(lambda: leader.idle_followers)
        leader.delete_records_before(1)
        assert not leader.idle_followers
        (woken,) = leader.replica_fetches
        await until(lambda: not woken.woken)  # it has looked, and waits on
        assert not parked.done()
        clock.advance(NEWS_WAIT_MS)
        assert only(await parked).log_start_offset == 1

    world(story, clock=clock)


def test_news_go_with_the_next_record_if_it_comes_soon(world: Callable[..., None]) -> None:
    clock = ManualClock()

    async def story(world: World, leader: Any) -> None:
        asker = await world.crowd.join()
        assert outcome(await world.produce(acks=1)) == (0, 0)
        full = await asker.ask(world.fetch(TWO, world.wanted(0), max_wait_ms=0, session_epoch=0), VERSION)
        session = {"session_id": full.session_id, "session_epoch": 1}
        await world.ask(THREE, 1, max_wait_ms=0)
        parked = asyncio.ensure_future(asker.ask(world.fetch(TWO, world.wanted(1), **session), VERSION))
        await until(lambda: leader.high_watermark == 1)
        assert outcome(await world.produce(acks=1)) == (0, 1)
        both = only(await parked)
        assert both.high_watermark == 1 and len(both.records) == len(BATCH)

    world(story, clock=clock)


def test_the_log_of_a_follower_that_departs_is_told_where(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        assert outcome(await world.produce(acks=1)) == (0, 0)
        epoch = leader.leader_epoch
        answer = only(await world.crowd.ask(world.fetch(TWO, world.wanted(5, last_epoch=epoch)), VERSION))
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (epoch, 1)
        assert leader.replica.followers[TWO].log_end_offset == -1
        answer = only(await world.crowd.ask(world.fetch(TWO, world.wanted(5)), VERSION))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    world(story)


@pytest.mark.parametrize(
    ("follower", "index", "epoch", "expected"),
    [
        (TWO, 0, -1, ErrorCode.NONE),
        (9, 0, None, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (TWO, 1, None, ErrorCode.UNKNOWN_LEADER_EPOCH),  # one replica
        (TWO, 1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (TWO, 0, "older", ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_who_is_no_follower_of_this_leader_is_refused(
    world: Callable[..., None], follower: int, index: int, epoch: Any, expected: ErrorCode
) -> None:
    async def story(world: World, leader: Any) -> None:
        if epoch == "older":
            leader.leader_epoch = 7
            leader.replica.in_sync.committed = leader.replica.in_sync.committed._replace(leader_epoch=7)
        wanted = world.wanted(0, index=index, epoch=0 if epoch == "older" else epoch)
        answer = await world.crowd.ask(world.fetch(follower, wanted, max_wait_ms=0), VERSION)
        assert only(answer).error_code == expected

    world(story)


def test_a_fetch_that_knows_more_waits_for_this_broker_to_learn_it(world: Callable[..., None]) -> None:
    clock = ManualClock()

    async def story(world: World, leader: Any) -> None:
        epoch = leader.leader_epoch
        ahead = world.running.apis.follower_fetches.ahead
        early = world.crowd.begin(world.fetch(TWO, world.wanted(0, epoch=epoch + 2)), VERSION)
        await until(lambda: ahead)
        clock.advance(WAIT_MS - 1)
        assert not early.done()
        clock.advance(1)
        assert only(await early).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

        resign(world.broker, "t")  # epoch + 1
        early = world.crowd.begin(world.fetch(TWO, world.wanted(0, epoch=epoch + 2)), VERSION)
        await until(lambda: ahead)
        world.topic.states = {**world.topic.states, 0: world.topic.states[0]._replace(leader_epoch=epoch + 2)}
        again = lead_again(world, leader, epoch + 2)
        assert outcome(await world.produce(acks=1)) == (0, 0)
        world.running.replica_manager.on_election(again)
        data = only(await early)
        assert data.error_code == 0 and len(data.records) == len(BATCH)
        assert again.replica.followers[TWO].log_end_offset == 0

    world(story, clock=clock)


def test_in_a_session_a_fetch_that_knows_more_is_told_nothing_and_asks_again(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        epoch = leader.leader_epoch
        opened = await world.ask(TWO, 0, session_epoch=0, max_wait_ms=0)
        session = {"session_id": opened.session_id, "max_wait_ms": 1}
        wanted = world.wanted(0, epoch=epoch + 2)
        answer = await world.crowd.ask(world.fetch(TWO, wanted, session_epoch=1, **session), VERSION)
        assert answer.error_code == 0 and not answer.responses
        assert outcome(await world.produce(acks=1)) == (0, 0)
        answer = await world.crowd.ask(world.fetch(TWO, session_epoch=2, **session), VERSION)
        assert answer.error_code == 0 and not answer.responses, "it is not led under that epoch"

        resign(world.broker, "t")  # epoch + 1
        world.topic.states = {**world.topic.states, 0: world.topic.states[0]._replace(leader_epoch=epoch + 2)}
        lead_again(world, leader, epoch + 2)
        answer = await world.crowd.ask(world.fetch(TWO, session_epoch=3, **session), VERSION)
        assert len(only(answer).records) == len(BATCH)

        wanted = world.wanted(0, epoch=epoch)
        answer = await world.crowd.ask(world.fetch(TWO, wanted, session_epoch=4, **session), VERSION)
        assert only(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH, "an older epoch is refused as before"

    world(story)


def lead_again(world: World, former: Any, epoch: int) -> Any:
    from kafkalite.metadata.cluster_metadata import PartitionRecord
    from kafkalite.replication.leader_partition import LeaderPartition

    me = world.running.broker_id
    record = PartitionRecord((me, TWO, THREE), me, epoch, (me, TWO, THREE), 3)
    partition = LeaderPartition(
        "t", 0, former.log, record, me, {me: 11, **REGISTRATIONS}, former._isr_store, world.running.clock,
        min_insync_replicas=1, lag_time_max_ms=30_000,
    )  # fmt: skip
    partition.begin()
    world.topic.partitions[0] = partition
    return partition


def test_a_fetch_that_waits_ends_when_its_leader_loses_its_office(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        parked = world.begin(TWO, 0, max_wait_ms=60_000)
        await until(lambda: leader.replica_fetches)
        resign(world.broker, "t")
        answer = only(await parked)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader.leader_id == TWO
        assert not leader.replica_fetches

    world(story)


def test_an_unknown_topic_is_waited_for_as_well(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        answer = await world.crowd.ask(world.fetch(TWO, world.wanted(0), topic_id=UUID(int=77), max_wait_ms=1), VERSION)
        assert only(answer).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        answer = await world.crowd.ask(world.fetch(TWO, world.wanted(0, epoch=-1), topic_id=UUID(int=77)), VERSION)
        assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    world(story)


def test_a_topic_that_comes_while_its_fetch_waits_is_found(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        manager, topic = world.running.replica_manager, world.topic
        assert outcome(await world.produce(acks=1)) == (0, 0)
        request = world.fetch(TWO, world.wanted(0), max_wait_ms=60_000, topic_id=UUID(int=topic.topic_id.int))
        del manager.by_name["t"], manager.by_id[topic.topic_id]
        early = world.crowd.begin(request, VERSION)
        await until(lambda: world.running.apis.follower_fetches.ahead)
        manager.by_name["t"] = manager.by_id[topic.topic_id] = topic
        manager.on_election(leader)
        assert len(only(await early).records) == len(BATCH)

    world(story)


def test_the_bytes_for_a_replica_that_is_being_added_are_counted_for_themselves(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        manager, fetches = world.running.replica_manager, world.running.apis.follower_fetches

        def reassign(*adding: int) -> None:
            world.topic.states = {0: world.topic.states[0]._replace(adding=adding)}
            manager.hosted.update_replicas(world.topic)

        assert outcome(await world.produce(acks=1)) == (0, 0)
        reassign(THREE)
        await world.ask(TWO, 0)
        assert (fetches.bytes_out, fetches.reassignment_bytes_out) == (len(BATCH), 0)
        await world.ask(THREE, 0)
        assert (fetches.bytes_out, fetches.reassignment_bytes_out) == (2 * len(BATCH), len(BATCH))
        reassign()
        await world.ask(THREE, 0)
        assert (fetches.bytes_out, fetches.reassignment_bytes_out) == (3 * len(BATCH), len(BATCH))

    world(story)


def test_a_throttled_partition_is_left_out_while_the_follower_is_not_in_sync(world: Callable[..., None]) -> None:
    clock = ManualClock()

    async def story(world: World, leader: Any) -> None:
        manager, fetches = world.running.replica_manager, world.running.apis.follower_fetches
        manager.configure(world.topic, {"leader.replication.throttled.replicas": "*"})
        assert outcome(await world.produce(acks=1)) == (0, 0)
        fetches.quota._rate = lambda: 10
        assert len(only(await world.ask(THREE, 0)).records) == len(BATCH)
        assert fetches.bytes_out == len(BATCH)
        assert not only(await world.ask(THREE, 0, max_wait_ms=0)).records
        assert len(only(await world.ask(TWO, 0)).records) == len(BATCH)  # in sync
        clock.advance(60_000)
        assert len(only(await world.ask(THREE, 0)).records) == len(BATCH)

    world(story, clock=clock, isr=(TWO,))


def test_a_follower_is_told_the_end_of_the_log(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        epoch = leader.leader_epoch
        assert outcome(await world.produce(acks=1)) == (0, 0)

        async def offset(replica_id: int, *, epoch: int = epoch, timestamp: int = -1) -> tuple[int, int]:
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
            topics = [ListOffsetsTopic(name="t", partitions=[wanted])]
            answer = await world.crowd.ask(ListOffsetsRequest(replica_id=replica_id, topics=topics), 7)
            return answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].offset

        assert await offset(-1) == (0, 0)
        assert await offset(TWO) == (0, 1)
        assert await offset(TWO, timestamp=-2) == (0, 0)
        assert await offset(TWO, epoch=epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        resign(world.broker, "t")
        assert await offset(-1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await offset(TWO, epoch=epoch + 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await offset(TWO, epoch=epoch + 2) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        one = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch + 2, leader_epoch=epoch)
        asked = OffsetForLeaderEpochRequest(replica_id=TWO, topics=[OffsetForLeaderTopic(topic="t", partitions=[one])])
        ends = (await world.crowd.ask(asked, 4)).topics[0].partitions[0]
        assert ends.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    world(story)


def test_a_replica_is_not_taken_for_a_consumer_that_repeats_itself(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        assert outcome(await world.produce(acks=1)) == (0, 0)
        asker = await world.crowd.join()
        for version in (12, VERSION):  # without a registration, and then with one
            for _ in range(3):
                request = world.fetch(TWO, world.wanted(0))
                if version == 12:
                    request.replica_id, request.replica_state = TWO, None
                assert len(only(await asker.ask(request, version)).records) == len(BATCH)
        assert leader.replica.followers[TWO].log_end_offset == 0

    world(story)
