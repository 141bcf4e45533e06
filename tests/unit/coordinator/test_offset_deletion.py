"""OffsetDelete: which offsets a group lets go, and that they stay gone."""

import struct

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

NONE = ErrorCode.NONE
READ = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def delete(world, *partitions, group="g"):
    """The code of each (topic, partition), or that of the group."""
    topics = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for topic, index in partitions
    ]
    request = OffsetDeleteRequest(group_id=group, topics=topics)
    response = world.answered(world.handle(world.offset_api.offset_delete, request, 0))
    if response.error_code:
        assert response.topics == []
        return ErrorCode(response.error_code)
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def reads(*topics):
    """The protocols of a consumer that is subscribed to these topics."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return [("range", struct.pack(">hi", 0, len(topics)) + names + b"\xff\xff\xff\xff")]


def test_a_deleted_offset_is_gone_and_stays_gone(world):
    world.commit({("orders", 1): 1, ("orders", 2): 2, ("clicks", 0): 3})
    assert delete(world, ("orders", 1), ("clicks", 0)) == {("orders", 1): NONE, ("clicks", 0): NONE}
    assert world.offsets() == {("orders", 2): 2}
    world.restart()
    assert world.offsets() == {("orders", 2): 2}


def test_with_its_last_offset_a_group_without_members_goes(world):
    world.commit({("orders", 1): 1})
    (a,), _ = world.stable("a", group="h", protocols=reads("orders"))
    world.leave(a, group="h")
    world.commit({("orders", 1): 1}, group="h")
    for group in ("g", "h"):
        assert delete(world, ("orders", 1), group=group) == {("orders", 1): NONE}
        assert delete(world, ("orders", 1), group=group) == ErrorCode.GROUP_ID_NOT_FOUND
    world.restart()
    assert world.groups() == {}


def test_only_what_was_committed_leaves_a_tombstone(world):
    world.commit({("orders", 1): 1, ("orders", 2): 2})
    before = len(world.log)
    assert delete(world, ("orders", 3), ("orders", 3)) == {("orders", 3): NONE}
    assert len(world.log) == before
    assert delete(world, ("orders", 3), ("orders", 1)) == {("orders", 3): NONE, ("orders", 1): NONE}
    assert [value for _, _, value in world.log[before:]] == [None]


def test_what_does_not_exist_is_told_one_by_one(world):
    world.commit({("orders", 1): 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = delete(world, ("orders", 100), ("nowhere", 0), ("orders", -1))
    assert codes == {("orders", 100): unknown, ("nowhere", 0): unknown, ("orders", -1): unknown}
    assert delete(world) == {}
    assert delete(world, ("orders", 1), group="nobody") == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(world, ("orders", 1), group="") == ErrorCode.INVALID_GROUP_ID
    assert world.offsets() == {("orders", 1): 1}


def test_consumers_keep_the_offsets_of_what_they_read(world):
    (a,), generation = world.stable("a", protocols=reads("orders"))
    world.commit({("orders", 1): 1, ("clicks", 1): 2}, a, generation)
    both = ("orders", 1), ("clicks", 1)
    assert delete(world, *both) == {("orders", 1): READ, ("clicks", 1): NONE}
    assert world.offsets() == {("orders", 1): 1}
    world.restart()
    world.commit({("clicks", 1): 2}, a, generation)
    assert delete(world, *both) == {("orders", 1): READ, ("clicks", 1): NONE}
    world.leave(a)
    assert delete(world, *both) == {("orders", 1): NONE, ("clicks", 1): NONE}


def test_during_a_rebalance_the_last_generation_counts(world):
    (a,), generation = world.stable("a", protocols=reads("orders"))
    world.commit({("orders", 1): 1, ("clicks", 1): 2}, a, generation)
    world.join(client="b", version=3, protocols=reads("clicks"))
    assert world.state() == "PreparingRebalance"
    assert delete(world, ("orders", 1), ("clicks", 1)) == {("orders", 1): READ, ("clicks", 1): NONE}
    world.join(a, protocols=reads("orders"))
    assert world.state() == "CompletingRebalance"
    assert delete(world, ("orders", 1), ("clicks", 1)) == {("orders", 1): READ, ("clicks", 1): READ}


@pytest.mark.parametrize("subscription", [b"", b"\0\0\0\0\0\1\0\6ord"])
def test_a_consumer_that_nobody_understands_may_read_anything(world, subscription):
    (a,), generation = world.stable("a", protocols=[("range", subscription)])
    world.commit({("orders", 1): 1}, a, generation)
    assert delete(world, ("orders", 1)) == {("orders", 1): READ}


def test_members_that_are_no_consumers_keep_all_offsets(world):
    (a,), generation = world.stable("a", protocol_type="connect")
    world.commit({("orders", 1): 1}, a, generation)
    assert delete(world, ("orders", 1), ("nowhere", 0)) == ErrorCode.NON_EMPTY_GROUP
    world.leave(a)
    assert delete(world, ("orders", 1)) == {("orders", 1): NONE}


def test_a_commit_under_way_does_not_bring_a_deleted_offset_back(world):
    world.commit({("orders", 1): 1, ("clicks", 0): 1})
    world.dawdles = True
    late = world.commits({("orders", 1): 2})
    assert delete(world, ("orders", 1)) == {("orders", 1): NONE}
    assert not late.waits
    assert world.offsets() == {("clicks", 0): 1}
    world.restart()
    assert world.offsets() == {("clicks", 0): 1}


@pytest.mark.parametrize(
    ("refusal", "heard"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_deletion_that_the_log_refuses_did_not_happen(world, refusal, heard):
    world.commit({("orders", 1): 1, ("clicks", 0): 1})
    world.refuses = refusal
    assert delete(world, ("orders", 1)) == heard
    assert world.offsets() == {("orders", 1): 1, ("clicks", 0): 1}
    assert not world.coordinator.offsets.deletion_count
    world.refuses = NONE
    assert delete(world, ("orders", 1)) == {("orders", 1): NONE}
    assert world.offsets() == {("clicks", 0): 1}
    world.restart()
    assert world.offsets() == {("clicks", 0): 1}


def test_a_deletion_that_is_late_in_the_log_is_not_confirmed(world):
    world.commit({("orders", 1): 1})
    world.refuses = ErrorCode.REQUEST_TIMED_OUT
    assert delete(world, ("orders", 1)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.offsets() == {}
    world.restart()
    assert world.offsets() == {}


def test_another_brokers_groups_and_those_being_loaded_are_left_alone(world):
    world.commit({("orders", 1): 1})
    partition = world.store.partition_for("g")
    world.store.unload(partition)
    assert delete(world, ("orders", 1)) == ErrorCode.NOT_COORDINATOR
    world.store.add_loading_partition(partition)
    assert delete(world, ("orders", 1)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
