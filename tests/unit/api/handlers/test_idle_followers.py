"""Fetches of a follower that has everything: its leader is not told of each, and knows what it needs to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.metadata.cluster_metadata import PartitionRecord
from kafkalite.protocol.messages.fetch import ForgottenTopic
from tests.support.manual_clock import ManualClock
from tests.support.replication.led_in_broker import LAG_TIME_MAX_MS, REGISTRATIONS
from tests.support.replication.replica_fetches import THREE, TWO, VERSION, World, outcome, world

__all__ = ["world"]
LONG_MS = 10 * LAG_TIME_MAX_MS


class Follower:
    """Broker 2, which fetches in a session, and does not wait."""

    def __init__(self, world: World, asker: Any) -> None:
        self._world, self._asker = world, asker
        self._session: dict[str, int] = {"session_epoch": 0}

    @classmethod
    async def begin(cls, world: World) -> Follower:
        """It has all of an empty log, and knows that."""
        follower = cls(world, await world.crowd.join())
        full = await follower.fetch(world.wanted(0))
        follower._session = {"session_id": full.session_id, "session_epoch": 1}
        assert (await follower.fetch()).responses == []
        return follower

    async def fetch(self, *wanted: Any) -> Any:
        answer = await self._asker.ask(self._world.fetch(TWO, *wanted, max_wait_ms=0, **self._session), VERSION)
        if "session_id" in self._session:
            self._session["session_epoch"] += 1
        return answer


@pytest.mark.parametrize("fetches", [True, False])
def test_it_is_in_sync_for_as_long_as_it_has_fetched(world: Callable[..., None], fetches: bool) -> None:
    clock = ManualClock()

    async def story(world: World, leader: Any) -> None:
        follower = await Follower.begin(world)
        clock.advance(LONG_MS)
        leader.shrink_isr()
        assert not leader._isr_store.asked, "it has everything"
        if fetches:
            assert (await follower.fetch()).responses == []
        assert leader.idle_followers
        assert outcome(await world.produce(acks=1)) == (0, 0)
        assert not leader.idle_followers
        leader.shrink_isr()
        assert bool(leader._isr_store.asked) is not fetches
        clock.advance(LAG_TIME_MAX_MS + 1)
        leader.shrink_isr()
        assert leader._isr_store.asked

    world(story, clock=clock, isr=(TWO,))


def test_one_that_is_taken_out_of_the_in_sync_replicas_joins_again(world: Callable[..., None]) -> None:
    async def story(world: World, leader: Any) -> None:
        follower = await Follower.begin(world)
        me, epoch = world.running.broker_id, leader.leader_epoch
        leader.on_record(PartitionRecord((me, TWO, THREE), me, epoch, (me,), 8), 1)
        assert not leader.idle_followers
        await follower.fetch()
        (change,) = leader._isr_store.asked
        assert change.isr == {me, TWO} and change.registrations == {TWO: REGISTRATIONS[TWO]}

    world(story, isr=(TWO,))


def test_a_new_registration_is_told(world: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, leader: Any) -> None:
        follower = await Follower.begin(world)
        monkeypatch.setitem(REGISTRATIONS, TWO, 99)
        await follower.fetch()
        assert leader.replica.followers[TWO].registration == 99

    world(story, isr=(TWO,))


@pytest.mark.parametrize("end", ["forget", "close"])
def test_what_a_session_does_not_have_any_more_is_not_kept(world: Callable[..., None], end: str) -> None:
    async def story(world: World, leader: Any) -> None:
        follower = await Follower.begin(world)
        assert leader.idle_followers
        if end == "forget":
            await follower.fetch(world.wanted(0, index=1))
            request = world.fetch(TWO, max_wait_ms=0, **follower._session)
            request.forgotten_topics_data = [ForgottenTopic(topic_id=world.topic.topic_id, partitions=[0])]
            await follower._asker.ask(request, VERSION)
        else:
            request = world.fetch(TWO, world.wanted(0), max_wait_ms=0, session_epoch=-1)
            request.session_id = follower._session["session_id"]
            await follower._asker.ask(request, VERSION)
        assert not leader.idle_followers

    world(story, isr=(TWO,))
