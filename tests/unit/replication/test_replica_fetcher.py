"""A fetcher and a leader over a real socket: what is asked, and that an answer reaches only what it was meant for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkalite.client.broker_channel import BrokerConnection
from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalite.replication import replica_fetcher
from kafkalite.replication.replica.follower_replica import FAILED, FENCED, FETCHING, AskEpochEnd, AskOffset
from kafkalite.replication.replica_fetcher_manager import ReplicaFetcherManager
from tests.support.loop import idle, until
from tests.support.manual_clock import ManualClock
from tests.support.replication.followed_in_memory import FollowedPartition, Leader, LedPartition
from tests.support.replication.simulated_log import SimulatedLog
from tests.support.wait import DEADLINE_S

LEADER = 2


class Scene:
    """Broker 1 with its fetchers, and broker 2, which leads."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.settings = BrokerConfig(**settings)
        self.leader = Leader(self.clock)
        self.endpoints: dict[int, ListenerConfig] = {}
        self.registration = 40
        self.fetchers = ReplicaFetcherManager(
            self.endpoints.get, self.clock, lambda: self.settings, 1, lambda: self.registration
        )

    async def start(self) -> None:
        self.endpoints[LEADER] = await self.leader.start()

    async def stop(self) -> None:
        await self.fetchers.close()
        self.leader.stop()

    def follow(self, led: LedPartition, log: SimulatedLog | None = None, **how: Any) -> FollowedPartition:
        follower = led.follower(log, **how)
        self.fetchers.add(follower)
        return follower

    async def has(self, follower: FollowedPartition, *values: int) -> None:
        await until(lambda: follower.values == list(values))

    async def waits(self, count: int = 1) -> None:
        """Until `count` more fetches have come to the leader."""
        seen = len(self.leader.fetches)
        await until(lambda: len(self.leader.fetches) >= seen + count)

    async def after_ms(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)
        await asyncio.sleep(0)


def play(story: Callable[[Scene], Awaitable[None]], **settings: Any) -> None:
    async def whole() -> None:
        scene = Scene(**settings)
        await scene.start()
        try:
            await story(scene)
        finally:
            await scene.stop()

    async def limited() -> None:
        await asyncio.wait_for(whole(), DEADLINE_S)

    asyncio.run(limited())


def log_of(*epochs_and_values: tuple[int, int]) -> SimulatedLog:
    log = SimulatedLog(flushes=False)
    for epoch, value in epochs_and_values:
        log.append_values(epoch, [value])
    return log


# The usual way


def test_a_new_follower_gets_all_and_then_what_comes() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1, 2, 3)
        follower = scene.follow(led)
        await scene.has(follower, 1, 2, 3)
        await until(lambda: follower.log.high_watermark == 3 and follower.lag == 0)
        scene.leader.append(led, 4, commits=False)
        scene.leader.tell()
        await scene.has(follower, 1, 2, 3, 4)
        assert follower.log.high_watermark == 3
        scene.leader.commit(led, 4)
        await until(lambda: follower.log.high_watermark == 4)

    play(story)


def test_a_fetch_says_who_asks_and_from_where() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t", index=3, leader_epoch=7)
        scene.leader.append(led, 1, 2)
        log = log_of((7, 1), (7, 2))
        log.start_offset = 1
        scene.follow(led, log)
        await until(lambda: scene.leader.fetches)
        request, header = scene.leader.fetches[0], scene.leader.headers[0]
        assert (header.api_version, header.client_id) == (15, "broker-1-fetcher-0")
        assert request.replica_state is not None
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 40)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (444, 2, 9_000_000)
        assert request.isolation_level == 0
        (topic,) = request.topics
        (wanted,) = topic.partitions
        assert (topic.topic_id, wanted.partition) == (led.topic_id, 3)
        assert (wanted.current_leader_epoch, wanted.fetch_offset) == (7, 2)
        assert (wanted.last_fetched_epoch, wanted.log_start_offset, wanted.partition_max_bytes) == (7, 1, 5_000)

    play(
        story,
        replica_fetch_wait_max_ms=444,
        replica_fetch_min_bytes=2,
        replica_fetch_max_bytes=5_000,
        replica_fetch_response_max_bytes=9_000_000,
    )


def test_only_partitions_that_changed_are_named_again() -> None:
    async def story(scene: Scene) -> None:
        leader = scene.leader
        leds = [leader.lead("t", index) for index in range(50)]
        followers = [scene.follow(led) for led in leds]
        await until(lambda: all(follower.lag == 0 for follower in followers))
        (full,) = leader.fetches[:1]
        assert sum(len(topic.partitions) for topic in full.topics) == 50
        assert full.session_epoch == 0
        asked = [len(follower.asked) for follower in followers]
        await scene.waits(0)
        leader.append(leds[7], 1)
        await scene.has(followers[7], 1)
        await until(lambda: followers[7].log.high_watermark == 1)
        await until(lambda: leader.fetches[-1].topics)
        (topic,) = leader.fetches[-1].topics
        assert [each.partition for each in topic.partitions] == [7]
        assert leader.fetches[-1].session_id
        again = [len(follower.asked) for follower in followers]
        assert again[:7] + again[8:] == asked[:7] + asked[8:]  # the others were not even looked at

    play(story)


def test_there_is_one_request_in_flight() -> None:
    async def story(scene: Scene) -> None:
        scene.leader.gate.clear()
        led = scene.leader.lead("t")
        follower = scene.follow(led)
        await until(lambda: scene.leader.requests)
        for value in range(5):
            scene.leader.append(led, value)
            follower.on_ready()
            await asyncio.sleep(0)
        assert len(scene.leader.fetches) == 1
        scene.leader.gate.set()
        await scene.has(follower, *range(5))

    play(story)


def test_a_partition_that_comes_while_a_fetch_waits_does_not_wait_with_it() -> None:
    async def story(scene: Scene) -> None:
        first, second = scene.leader.lead("t", 0), scene.leader.lead("t", 1)
        follower = scene.follow(first)
        await until(lambda: follower.lag == 0)
        await scene.waits(0)
        scene.leader.append(second, 5, commits=False)
        late = scene.follow(second)
        await scene.has(late, 5)  # though no time has passed

    play(story)


def test_a_leader_that_knows_no_early_answers_ends_the_wait_by_itself() -> None:
    async def story(scene: Scene) -> None:
        scene.leader.answers_early = False
        first, second = scene.leader.lead("t", 0), scene.leader.lead("t", 1)
        follower = scene.follow(first)
        await until(lambda: follower.lag == 0)
        scene.leader.append(second, 5, commits=False)
        late = scene.follow(second)
        await until(lambda: any(isinstance(each, FetchRequest) for each in scene.leader.requests))
        assert late.values == []
        scene.leader.append(first, 1)
        await scene.has(late, 5)
        await scene.has(follower, 1)

    play(story)


def test_leaders_and_numbers_have_a_fetcher_each() -> None:
    async def story(scene: Scene) -> None:
        other = Leader(scene.clock)
        scene.endpoints[3] = await other.start()
        here = [scene.leader.lead("t", index) for index in range(4)]
        there = other.lead("u")
        followers = [*(scene.follow(led) for led in here), scene.follow(there, leader_id=3)]
        for led in here:
            scene.leader.append(led, led.index)
        other.append(there, 9)
        for follower, value in zip(followers, [0, 1, 2, 3, 9], strict=True):
            await scene.has(follower, value)
        assert scene.fetchers.fetcher_count == 3
        names = {header.client_id for header in scene.leader.headers}
        assert names == {"broker-1-fetcher-0", "broker-1-fetcher-1"}
        scene.settings = scene.settings.replace(num_replica_fetchers=1)
        scene.fetchers.on_settings()
        await until(lambda: scene.fetchers.fetcher_count == 2)
        for led in here:
            scene.leader.append(led, 7)
        for follower, value in zip(followers[:4], range(4), strict=True):
            await scene.has(follower, value, 7)
        for follower in followers:
            scene.fetchers.remove(follower)
        await until(lambda: scene.fetchers.fetcher_count == 0)
        other.stop()

    play(story, num_replica_fetchers=2)


# Large answers


def test_a_large_answer_is_taken_over_several_turns_and_nothing_is_asked_meanwhile() -> None:
    async def story(scene: Scene) -> None:
        leds = [scene.leader.lead("t", index) for index in range(6)]
        for led in leds:
            led.padding = 700_000
            scene.leader.append(led, 1)
        scene.leader.gate.clear()
        followers = [scene.follow(led) for led in leds]
        await until(lambda: scene.leader.fetches)
        scene.leader.gate.set()
        turns = 0
        async with asyncio.timeout(DEADLINE_S):
            while not all(follower.values == [1] for follower in followers):
                await asyncio.sleep(0)
                if any(follower.values for follower in followers):
                    turns += 1
                    assert len(scene.leader.fetches) == 1
        assert turns >= 3
        await scene.waits()
        assert [follower.values for follower in followers] == [[1]] * 6

    play(story)


def test_many_batches_of_a_partition_come_in_pieces_and_the_last_one_may_be_cut() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        led.padding = 100_000
        scene.leader.max_bytes = 3_050_000
        scene.leader.append(led, *range(40))
        follower = scene.follow(led)
        await scene.has(follower, *range(40))
        await until(lambda: follower.log.high_watermark == 40)
        with_records = [each for each in follower.taken if each.first_offset is not None]
        assert [each.first_offset for each in with_records] == [0, 10, 20, 30]
        assert scene.fetchers.bytes_in == 40 * (100_000 + 28)

    play(story)


def test_the_rest_of_an_answer_does_not_follow_a_piece_that_was_refused() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        led.padding = 200_000
        scene.leader.append(led, *range(20))
        follower = led.follower()
        follower.refuses = KafkaError(ErrorCode.CORRUPT_MESSAGE)
        scene.fetchers.add(follower)
        await until(lambda: follower.taken)
        await until(lambda: follower.retry_at_ms > 0)
        assert follower.values == []
        await scene.after_ms(1000)
        await scene.has(follower, *range(20))

    play(story)


# Roles change while an answer is under way


def test_nothing_of_an_answer_under_way_reaches_a_partition_that_was_removed() -> None:
    async def story(scene: Scene) -> None:
        first, second = scene.leader.lead("t", 0), scene.leader.lead("t", 1)
        scene.leader.append(first, 1)
        scene.leader.append(second, 2)
        scene.leader.gate.clear()
        gone, stays = scene.follow(first), scene.follow(second)
        await until(lambda: scene.leader.fetches)
        scene.fetchers.remove(gone)
        scene.leader.gate.set()
        await scene.has(stays, 2)
        await scene.waits()
        assert gone.values == [] and not gone.taken
        await until(lambda: scene.leader.fetches[-1].forgotten_topics_data or len(scene.leader.fetches) > 3)
        assert any(each.forgotten_topics_data for each in scene.leader.fetches)

    play(story)


def test_an_answer_to_an_earlier_follower_does_not_reach_its_successor() -> None:
    async def story(scene: Scene) -> None:
        led, busy = scene.leader.lead("t"), scene.leader.lead("busy")
        scene.leader.append(led, 1)
        scene.follow(busy)
        await until(lambda: scene.leader.fetches)
        scene.leader.gate.clear()
        earlier = scene.follow(led)
        await until(lambda: len(earlier.asked) > 0)
        scene.fetchers.remove(earlier)
        led.leader_epoch = 5  # elected anew, with another log
        led.log = log_of((5, 100), (5, 101))
        led.log.high_watermark = 2
        successor = scene.follow(led)
        scene.leader.gate.set()
        await scene.has(successor, 100, 101)
        assert earlier.values == []
        assert all(each.high_watermark == 2 for each in successor.taken)

    play(story)


def test_a_partition_that_is_removed_in_the_midst_of_an_answer_gets_no_more_of_it() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        led.padding = 500_000
        scene.leader.append(led, *range(12))
        follower = scene.follow(led)
        await until(lambda: follower.values)
        scene.fetchers.remove(follower)
        had = follower.values
        assert len(had) < 12
        other = scene.follow(scene.leader.lead("u"))
        await until(lambda: other.lag == 0)
        assert follower.values == had

    play(story)


def test_what_was_truncated_while_its_fetch_waited_is_asked_for_from_where_it_ends_now() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1, 2, 3)
        follower = scene.follow(led)
        await scene.has(follower, 1, 2, 3)
        await until(lambda: follower.log.high_watermark == 3)
        await scene.waits(0)
        follower.log.truncate_to(1)
        scene.leader.append(led, 4)
        await scene.has(follower, 1, 2, 3, 4)

    play(story)


# Logs that depart


def test_a_log_that_departs_is_cut_where_the_leader_says() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t", leader_epoch=5)
        led.log = log_of((1, 10), (1, 11), (4, 40), (5, 50))
        led.log.high_watermark = 4
        follower = scene.follow(led, log_of((1, 10), (1, 11), (2, 20), (2, 21), (3, 30)))
        await scene.has(follower, 10, 11, 40, 50)

    play(story)


def test_a_leader_that_cannot_say_so_in_a_fetch_is_asked_where_epochs_end() -> None:
    async def story(scene: Scene) -> None:
        led, other = scene.leader.lead("t", leader_epoch=5), scene.leader.lead("u")
        led.log = log_of((1, 10), (1, 11), (4, 40), (5, 50))
        scene.leader.append(other, 1)
        follower = scene.follow(led, log_of((1, 10), (1, 11), (2, 20), (3, 30)), truncates_on_fetch=False)
        beside = scene.follow(other)
        await scene.has(follower, 10, 11, 40, 50)
        await scene.has(beside, 1)
        asked = [each for each in follower.asked if isinstance(each, AskEpochEnd)]
        assert [(each.leader_epoch, each.epoch) for each in asked] == [(5, 3)]
        request = next(each for each in scene.leader.requests if isinstance(each, OffsetForLeaderEpochRequest))
        assert request.replica_id == 1

    play(story)


def test_a_follower_behind_the_start_of_the_leaders_log_starts_there() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1, 2, 3, 4)
        led.log.records, led.log.base_offset = led.log.records[2:], 2
        led.log.raise_start(2)
        follower = scene.follow(led, log_of((1, 1)))
        await scene.has(follower, 3, 4)
        assert follower.log.start_offset == 2
        asked = [each.timestamp for each in follower.asked if isinstance(each, AskOffset)]
        assert asked == [-1, -2]
        assert [each.replica_id for each in scene.leader.requests if isinstance(each, ListOffsetsRequest)] == [1, 1]

    play(story)


def test_epochs_are_asked_for_before_offsets_and_both_before_a_fetch() -> None:
    async def story(scene: Scene) -> None:
        led, behind = scene.leader.lead("t", leader_epoch=2), scene.leader.lead("u")
        led.log = log_of((1, 10), (2, 20))
        scene.leader.append(behind, 1, 2)
        behind.log.records, behind.log.base_offset = behind.log.records[1:], 1
        behind.log.raise_start(1)
        late = scene.follow(behind)
        await until(lambda: scene.leader.fetches)
        follower = scene.follow(led, log_of((1, 10), (1, 11)), truncates_on_fetch=False)
        await scene.has(follower, 10, 20)
        await scene.has(late, 2)

    play(story)


# Errors


@pytest.mark.parametrize(
    ("error", "pause_ms"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1000),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 50),
        (ErrorCode.KAFKA_STORAGE_ERROR, 1000),
    ],
)
def test_a_partition_that_is_refused_is_left_out_for_a_while(error: ErrorCode, pause_ms: int) -> None:
    async def story(scene: Scene) -> None:
        led, other = scene.leader.lead("t"), scene.leader.lead("u")
        scene.leader.append(led, 1)
        led.error = error
        follower, beside = scene.follow(led), scene.follow(other)
        await until(lambda: follower.taken)
        led.error = ErrorCode.NONE
        scene.leader.append(other, 5)
        await scene.has(beside, 5)
        await until(lambda: beside.log.high_watermark == 1)
        await scene.after_ms(pause_ms - 1)
        assert follower.values == [] and len(follower.taken) == 1
        await scene.after_ms(1)
        await scene.has(follower, 1)

    play(story)


def test_a_fenced_follower_asks_no_more_and_counts_as_failed() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t", leader_epoch=2)
        scene.leader.append(led, 1)
        led.error = ErrorCode.FENCED_LEADER_EPOCH
        follower = scene.follow(led)
        await until(lambda: follower.replica.phase is FENCED)
        assert scene.fetchers.failed_partition_count == 1
        scene.fetchers.remove(follower)
        assert scene.fetchers.failed_partition_count == 0
        led.error = ErrorCode.NONE
        await scene.has(scene.follow(led), 1)

    play(story)


def test_a_failed_disk_and_a_broken_partition_do_not_stop_the_others() -> None:
    async def story(scene: Scene) -> None:
        leds = [scene.leader.lead("t", index) for index in range(3)]
        for led in leds:
            scene.leader.append(led, led.index)
        followers = [led.follower() for led in leds]
        followers[0].refuses = StorageError("the disk is gone")
        followers[1].refuses = ZeroDivisionError("a mistake")
        for follower in followers:
            scene.fetchers.add(follower)
        await scene.has(followers[2], 2)
        await until(lambda: followers[0].replica.phase is FAILED)
        assert followers[1].replica.phase is FETCHING and followers[1].values == []
        await scene.after_ms(1000)
        await scene.has(followers[1], 1)
        assert followers[0].values == []

    play(story)


@pytest.mark.parametrize("truncates_on_fetch", [True, False])
def test_a_broken_connection_is_made_again_after_a_pause_and_nothing_is_lost(truncates_on_fetch: bool) -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1)
        scene.leader.gate.clear()
        follower = scene.follow(led, log_of((1, 1)), truncates_on_fetch=truncates_on_fetch)
        await until(lambda: scene.leader.requests)
        scene.leader.cut()
        scene.leader.gate.set()
        scene.leader.append(led, 2)
        await asyncio.sleep(0)
        await until(lambda: scene.clock._queue)
        assert follower.values == [1]
        await until_with_time(scene, lambda: follower.values == [1, 2])

    play(story)


async def until_with_time(scene: Scene, probe: Callable[[], Any]) -> None:
    """As `until`; time passes meanwhile."""
    async with asyncio.timeout(DEADLINE_S):
        while not probe():
            scene.clock.advance(10)
            await asyncio.sleep(0)


def test_a_leader_that_does_not_answer_is_given_up() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1)
        scene.leader.gate.clear()
        follower = scene.follow(led)
        await until(lambda: scene.leader.requests)
        scene.clock.advance(5_999)
        await asyncio.sleep(0)
        assert len(scene.leader.requests) == 1
        scene.clock.advance(1)
        scene.leader.gate.set()
        await until_with_time(scene, lambda: follower.values == [1])
        assert len(scene.leader.fetches) >= 2

    play(story, replica_socket_timeout_ms=6_000)


def test_a_leader_that_is_not_registered_yet_is_asked_when_it_is() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1)
        endpoint = scene.endpoints.pop(LEADER)
        follower = scene.follow(led)
        await idle()
        scene.endpoints[LEADER] = endpoint
        assert not scene.leader.requests
        scene.fetchers.on_brokers()
        await scene.has(follower, 1)

    play(story)


def test_a_leader_that_moves_is_followed() -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1)
        follower = scene.follow(led)
        await scene.has(follower, 1)
        moved = Leader(scene.clock)
        moved.partitions = scene.leader.partitions
        scene.endpoints[LEADER] = await moved.start()
        scene.fetchers.on_brokers()
        moved.append(led, 2)
        await scene.has(follower, 1, 2)
        assert moved.fetches[0].session_epoch == 0
        moved.stop()

    play(story)


def test_a_leader_that_goes_and_returns_is_asked_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(scene: Scene) -> None:
        led = scene.leader.lead("t")
        scene.leader.append(led, 1)
        follower = scene.follow(led)
        await scene.has(follower, 1)
        endpoint = scene.endpoints.pop(LEADER)
        scene.fetchers.on_brokers()
        scene.leader.append(led, 2)
        await idle()
        assert follower.values == [1]
        scene.endpoints[LEADER] = endpoint
        scene.fetchers.on_brokers()
        await scene.has(follower, 1, 2)  # though no time has passed

    play(story)
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_a_leader_that_lost_its_sessions_gets_all_partitions_again() -> None:
    async def story(scene: Scene) -> None:
        leds = [scene.leader.lead("t", index) for index in range(3)]
        followers = [scene.follow(led) for led in leds]
        await until(lambda: all(follower.lag == 0 for follower in followers))
        scene.leader.sessions = type(scene.leader.sessions)(10)
        scene.leader.append(leds[1], 1)
        scene.leader.append(leds[2], 2)
        await scene.has(followers[1], 1)
        await scene.has(followers[2], 2)
        full = [each for each in scene.leader.fetches if each.session_epoch == 0]
        assert len(full) == 2 and sum(len(topic.partitions) for topic in full[1].topics) == 3

    play(story)


def test_a_leader_without_room_for_sessions_is_named_all_partitions_each_time() -> None:
    async def story(scene: Scene) -> None:
        scene.leader.sessions = type(scene.leader.sessions)(0)
        leds = [scene.leader.lead("t", index) for index in range(3)]
        followers = [scene.follow(led) for led in leds]
        for led in leds:
            scene.leader.append(led, 1, 2)
        for follower in followers:
            await scene.has(follower, 1, 2)
        assert all(each.session_epoch == 0 for each in scene.leader.fetches)

    play(story)


# What waits for something else


def test_a_follower_that_flushes_names_an_offset_when_the_disk_has_it() -> None:
    async def story(scene: Scene) -> None:
        led, other = scene.leader.lead("t"), scene.leader.lead("u")
        scene.leader.append(led, 1)
        scene.follow(other)
        log = SimulatedLog(flushes=True)
        follower = scene.follow(led, log)
        await scene.has(follower, 1)
        scene.leader.append(led, 2)
        await idle()
        assert follower.values == [1]
        log.sync()
        follower.on_ready()
        await scene.has(follower, 1, 2)

    play(story)


def test_a_throttled_follower_that_is_behind_waits_for_its_quota() -> None:
    async def story(scene: Scene) -> None:
        led, other = scene.leader.lead("t"), scene.leader.lead("u")
        led.padding = 1000 - 28
        scene.leader.max_bytes = 1500
        for value in range(4):
            scene.leader.append(led, value)
        follower = led.follower()
        follower.throttled_replicas = ("0:1",)
        scene.fetchers.add(follower)
        beside = scene.follow(other)
        await scene.has(follower, 0)
        scene.leader.append(other, 5)
        await scene.has(beside, 5)
        await idle()
        assert follower.values == [0]  # 1500 bytes in the first second
        await scene.after_ms(3000)
        await until(lambda: len(follower.values) >= 2)
        scene.settings = scene.settings.replace(follower_replication_throttled_rate=1 << 40)
        await until_with_time(scene, lambda: follower.values == [0, 1, 2, 3])

    play(story, follower_replication_throttled_rate=500)


def test_the_bytes_of_a_replica_that_is_being_added_are_counted_for_themselves() -> None:
    async def story(scene: Scene) -> None:
        led, other = scene.leader.lead("t"), scene.leader.lead("u")
        scene.leader.append(other, 1, 2)
        await scene.has(scene.follow(other), 1, 2)
        assert scene.fetchers.bytes_in and not scene.fetchers.reassignment_bytes_in
        before = scene.fetchers.bytes_in
        scene.leader.append(led, 3)
        follower = led.follower()
        follower.is_being_added = True
        scene.fetchers.add(follower)
        await scene.has(follower, 3)
        await until(lambda: scene.fetchers.reassignment_bytes_in == scene.fetchers.bytes_in - before > 0)
        added = scene.fetchers.reassignment_bytes_in
        scene.fetchers.remove(follower)
        await until(lambda: scene.fetchers.fetcher_count <= 1)
        assert scene.fetchers.reassignment_bytes_in == added

    play(story)


def test_the_numbers_for_metrics() -> None:
    async def story(scene: Scene) -> None:
        led, other = scene.leader.lead("t"), scene.leader.lead("u")
        scene.leader.append(led, 1, 2, 3)
        scene.leader.max_bytes = 30
        follower = scene.follow(led)
        scene.follow(other)
        await scene.has(follower, 1, 2, 3)
        await until(lambda: scene.fetchers.lags() == {("t", 0): 0, ("u", 0): 0})
        assert scene.fetchers.max_lag == 0
        follower.lag = 12
        assert scene.fetchers.max_lag == 12
        assert scene.fetchers.bytes_in >= 3 * 28 and scene.fetchers.requests >= 3
        before = scene.fetchers.bytes_in
        for each in list(scene.fetchers._fetcher_of):
            scene.fetchers.remove(each)
        await until(lambda: scene.fetchers.fetcher_count == 0)
        assert scene.fetchers.bytes_in == before

    play(story)


@pytest.mark.parametrize(("topic", "index", "number"), [("t", 0, 0), ("t", 1, 1), ("__consumer_offsets", 49, 1)])
def test_a_partition_has_the_fetcher_that_kafka_gives_it(topic: str, index: int, number: int) -> None:
    from kafkalite.replication.replica_fetcher_manager import fetcher_number

    assert fetcher_number(topic, index, 4) in range(4)
    assert fetcher_number("t", index, 2) == abs(31 * 116 + index) % 2


def test_a_leader_that_does_not_take_the_connection_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    open_, tries = BrokerConnection.open, []

    async def hang_once(connection: BrokerConnection, *address: Any) -> None:
        tries.append(address)
        if len(tries) == 1:
            await asyncio.Event().wait()
        await open_(connection, *address)

    async def story(scene: Scene) -> None:
        monkeypatch.setattr(BrokerConnection, "open", hang_once)
        monkeypatch.setattr(replica_fetcher, "_SETUP_TIMEOUT_S", 0.01)
        led = scene.leader.lead("t")
        scene.leader.append(led, 1)
        follower = scene.follow(led)
        while follower.values != [1]:
            await scene.after_ms(50)
        assert len(tries) >= 2

    play(story)
