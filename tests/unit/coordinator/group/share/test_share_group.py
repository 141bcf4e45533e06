"""A share group beside groups of other kinds: appends that fail, requests of other protocols, expiry."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.share.share_group import ShareHeartbeat
from tests.support.consumer_group_world import SESSION_MS, Answered, Topics, World


class ShareWorld(World):
    """With a share coordinator that begins the state of every partition at once, and deletes it a turn of the loop
    later."""

    def _settings(self):
        def delete(key, done):
            asyncio.get_running_loop().call_soon(done, None)

        return {"states": SimpleNamespace(initialize=lambda key, epoch, offset, done: done(None), delete=delete)}

    def beat(self, member, epoch, *topics):
        waiter = Answered()
        request = ShareHeartbeat(member, epoch, "c", "/10.0.0.1", None, list(topics) or None)
        self.coordinator.share_groups.heartbeat("g", request, waiter)
        return waiter.result


@pytest.fixture
def world():
    return ShareWorld(Topics(foo=2)).load()


def test_a_member_that_waits_is_to_ask_again_soon(world):
    joined = world.beat("m1", 0, "foo")
    assert not joined.assignment and joined.heartbeat_interval_ms == 500
    assert world.beat("m1", joined.member_epoch).heartbeat_interval_ms == 1_000  # until the next target may be made
    world.clock.advance(1_000)
    told = world.beat("m1", joined.member_epoch)
    assert told.assignment and told.heartbeat_interval_ms == 5_000
    assert world.beat("m1", told.member_epoch).heartbeat_interval_ms == 5_000
    world.clock.step_wall(-1_800_000)  # the last target was made by a coordinator with another clock
    assert world.beat("m2", 0, "foo").assignment


def test_states_that_began_at_a_time_to_come_are_begun_again():
    """Their coordinator had another clock, and may be gone before it has told the share coordinator."""
    begun = []

    class Unanswered(ShareWorld):
        def _settings(self):
            return {"states": SimpleNamespace(initialize=lambda key, *_: begun.append(key))}

    world = Unanswered(Topics(foo=2)).load()
    epoch = world.beat("m1", 0, "foo").member_epoch
    world.beat("m1", epoch)
    assert len(begun) == 2
    world.clock.step_wall(-1_800_000)
    world.beat("m1", epoch)
    assert len(begun) == 4


def test_a_refused_append_is_undone(world):
    assert world.beat("m1", 0, "foo").error == ErrorCode.NONE
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.beat("m2", 0, "foo").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.refuses = ErrorCode.NONE
    assert list(world.group().tables.members) == ["m1"]
    assert world.beat("m2", 0, "foo").error == ErrorCode.NONE


def test_a_member_whose_leaving_the_log_refuses_is_expelled_after_its_session(world):
    world.beat("m1", 0, "foo")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.beat("m1", -1).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.refuses = ErrorCode.NONE
    world.clock.advance(SESSION_MS - 1)
    assert list(world.group().tables.members) == ["m1"]
    world.clock.advance(1)
    assert world.group().state_name == "Empty"


def test_members_that_expire_together_stay_together_if_the_log_refuses(world):
    for member in ("m1", "m2", "m3"):
        world.beat(member, 0, "foo")
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(SESSION_MS)
    assert world.group().tables.members.keys() == {"m1", "m2", "m3"}
    world.refuses = ErrorCode.NONE
    world.clock.advance(500)
    assert world.group().state_name == "Empty"
    world.restart()
    assert world.group().state_name == "Empty"


def test_an_empty_group_outlives_a_topic_that_it_does_not_read(world):
    epoch = world.beat("m1", 0, "foo").member_epoch
    assert epoch and world.beat("m1", -1).error == ErrorCode.NONE
    world.coordinator.offsets.on_topic_deleted("bar")
    assert world.group().state_name == "Empty"


def test_a_group_is_deleted_once(world):
    epoch = world.beat("m1", 0, "foo").member_epoch
    world.clock.advance(1_000)
    world.beat("m1", epoch)
    world.beat("m1", -1)
    assert world.group().tables.state_partitions.initialized
    since = len(world.log)

    async def delete_twice():
        return await asyncio.gather(*(world.coordinator.delete_groups(["g"]) for _ in range(2)))

    assert asyncio.run(delete_twice()) == [{"g": ErrorCode.NONE}, {"g": ErrorCode.GROUP_ID_NOT_FOUND}]
    keys = [record[0] for record in world.log[since:]]
    assert world.group() is None and len(keys) == len(set(keys))


def test_a_group_that_could_not_be_stored_is_none(world):
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.beat("m1", 0, "foo").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group() is None


def test_an_empty_group_neither_expires_nor_becomes_classic(world):
    epoch = world.beat("m1", 0, "foo").member_epoch
    assert world.beat("m1", -1).error == ErrorCode.NONE and epoch > 0
    world.coordinator.offsets.expire()
    assert world.group().state_name == "Empty"
    assert world.classic_join("").result.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.restart()
    assert world.group().kind == "share"
