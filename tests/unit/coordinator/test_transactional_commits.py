"""Offsets committed within transactions: invisible until the commit marker, and who may commit them."""

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group_store import GroupLoader

NONE = ErrorCode.NONE
ONE = {("orders", 1): 1}


def test_an_offset_is_visible_from_the_commit_marker_on(world):
    world.commit({("orders", 1): 1})
    assert world.commit_in_transaction({("orders", 1): 5, ("clicks", 0): 6}, 7) == [NONE, NONE]
    assert world.offsets() == {("orders", 1): 1}
    world.ends(7)
    assert world.offsets() == {("orders", 1): 5, ("clicks", 0): 6}


def test_an_aborted_offset_never_is(world):
    world.commit({("orders", 1): 1})
    world.commit_in_transaction({("orders", 1): 5}, 7)
    world.ends(7, is_committed=False)
    world.ends(7)
    assert world.offsets() == {("orders", 1): 1}
    world.restart()
    assert world.offsets() == {("orders", 1): 1}


def test_transactions_of_several_producers_end_one_by_one(world):
    world.commit_in_transaction({("orders", 1): 1, ("orders", 2): 1}, 7)
    world.commit_in_transaction({("orders", 1): 2}, 8)
    world.ends(8)
    world.ends(7)
    assert world.offsets() == {("orders", 1): 2, ("orders", 2): 1}  # the later one in the log counts


def test_a_marker_ends_the_transaction_in_the_groups_of_its_partition_alone(world):
    groups = {world.store.partition_for(name): name for name in ("a", "b", "c", "d")}
    here, there = list(groups.values())[:2]
    for group in (here, there):
        world.commit_in_transaction(ONE, 7, group=group)
    world.ends(7, group=here)
    assert world.offsets(here) == ONE
    assert world.offsets(there) == {}
    world.ends(7, group=there)
    assert world.offsets(there) == ONE


def test_an_open_transaction_is_pending_after_a_restart(world):
    world.commit_in_transaction(ONE, 7)
    world.restart()
    assert world.groups() == {"g": "Empty"}
    assert world.offsets() == {}
    world.ends(7)
    assert world.offsets() == ONE


def test_a_marker_that_is_written_while_the_partition_is_loaded_counts(world):
    world.commit_in_transaction(ONE, 7)
    partition = world.store.partition_for("g")
    batches = world.batches(partition)
    world.store.unload(partition)
    world.store.add_loading_partition(partition)
    loader = GroupLoader()
    loader.read(batches)
    world.ends(7)
    list(loader.finish())
    world.store.load(partition, loader)
    assert world.offsets() == ONE
    world.commit_in_transaction({("orders", 1): 2}, 7)
    assert world.offsets() == ONE


def test_a_marker_may_overtake_the_answer_of_the_append(world):
    world.dawdles = True
    first, second = world.commits_in_transaction(ONE, 7), world.commits_in_transaction({("clicks", 0): 1}, 8)
    world.ends(7)
    world.ends(8, is_committed=False)
    assert first.waits
    assert second.waits
    world.log_answers()
    world.log_answers()
    assert world.offsets() == ONE


def test_a_commit_that_the_log_refuses_is_not_pending(world):
    world.refuses = ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.commit_in_transaction(ONE, 7) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.commit_in_transaction(ONE, 7) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.refuses = NONE
    world.ends(7)
    assert world.offsets() == {}
    world.coordinator.offsets.expire()
    assert world.groups() == {}


def test_a_group_with_only_pending_offsets_exists(world):
    world.commit_in_transaction(ONE, 7)
    world.passes(10 * 24 * 60 * 60_000)
    assert world.coordinator.offsets.expire() == 0
    assert world.groups() == {"g": "Empty"}
    world.ends(7, is_committed=False)
    world.coordinator.offsets.expire()
    assert world.groups() == {}


def test_a_pending_offset_holds_up_the_expiry_of_the_old_one(new_world):
    world = new_world(offsets_retention_minutes=1)
    world.commit(ONE)
    world.passes(60_000)
    world.commit_in_transaction({("orders", 1): 2}, 7)
    assert world.coordinator.offsets.expire() == 0
    world.ends(7)
    assert world.coordinator.offsets.expire() == 0
    assert world.offsets() == {("orders", 1): 2}


@pytest.mark.parametrize("restarts", [False, True])
def test_removed_offsets_are_not_brought_back_by_a_marker(world, restarts):
    world.commit_in_transaction({("orders", 1): 1, ("clicks", 0): 1}, 7)
    world.coordinator.offsets.on_topic_deleted("orders")
    world.commit_in_transaction(ONE, 7, group="gone")
    assert world.delete("gone") == {"gone": NONE}
    if restarts:
        world.restart()
    world.ends(7)
    world.ends(7, group="gone")
    assert world.offsets() == {("clicks", 0): 1}
    assert world.groups() == {"g": "Empty"}


def test_who_may_commit_in_a_transaction(world):
    assert world.commit_in_transaction(ONE, 7, "m", 3) == [ErrorCode.UNKNOWN_MEMBER_ID]  # a new group has no members
    assert world.commit_in_transaction(ONE, 7, instance="i") == [NONE]
    assert world.commit_in_transaction(ONE, 7, group="") == [ErrorCode.INVALID_GROUP_ID]
    (a, b), generation = world.stable("a", "b")
    assert world.commit_in_transaction(ONE, 7) == [NONE]  # an old producer, which does not know the member
    assert world.commit_in_transaction(ONE, 7, a, generation) == [NONE]
    assert world.commit_in_transaction(ONE, 7, a, -1) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit_in_transaction(ONE, 7, a, generation - 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit_in_transaction(ONE, 7, "", generation) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit_in_transaction(ONE, 7, "nobody", generation) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit_in_transaction(ONE, 7, a, generation, instance="i") == [ErrorCode.UNKNOWN_MEMBER_ID]
    world.join(a)
    world.join(b)
    assert world.commit_in_transaction(ONE, 7, a, generation) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit_in_transaction(ONE, 7, a, generation + 1) == [NONE]  # even before the assignment is known


def test_a_replaced_static_member_is_fenced(world):
    first = world.join(instance="i").answer
    world.sync(first.member_id, first.generation_id, {first.member_id: b""}, instance="i")
    assert world.commit_in_transaction(ONE, 7, first.member_id, first.generation_id, instance="i") == [NONE]
    second = world.join(instance="i").answer
    fenced = world.commit_in_transaction(ONE, 7, first.member_id, first.generation_id, instance="i")
    assert fenced == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.commit_in_transaction(ONE, 7, second.member_id, second.generation_id, instance="i") == [NONE]


def test_a_commit_in_a_transaction_is_no_sign_of_life(world):
    (a,), generation = world.stable("a")
    world.passes(9_000)
    assert world.commit_in_transaction(ONE, 7, a, generation) == [NONE]
    world.passes(1_000)
    assert world.heartbeat(a, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_partition_that_is_loading_or_led_elsewhere_takes_no_commits(world):
    partition = world.store.partition_for("g")
    world.store.unload(partition)
    assert world.commit_in_transaction(ONE, 7) == [ErrorCode.NOT_COORDINATOR]
    world.store.add_loading_partition(partition)
    assert world.commit_in_transaction(ONE, 7) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_a_note_that_is_too_long_is_refused(world):
    assert world.commit_in_transaction(ONE, 7, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.groups() == {}


def test_partitions_that_do_not_exist_are_refused_one_by_one(world):
    codes = world.commit_in_transaction({("orders", 1): 1, ("nowhere", 0): 1, ("orders", -1): 1}, 7)
    assert codes == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit_in_transaction({("nowhere", 0): 1}, 7, group="h") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert list(world.groups()) == ["g"]


def test_a_fetch_that_wants_stable_offsets_waits_for_the_marker(world):
    world.commit({("orders", 1): 1, ("clicks", 0): 2}, metadata="note")
    world.commit_in_transaction({("orders", 1): 5, ("orders", 2): 5}, 7)
    for version in (7, 8, 9):
        response = world.fetch({"orders": [1, 2], "clicks": [0]}, version=version, require_stable=True)
        assert rows(response, version) == {
            ("orders", 1): (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
            ("orders", 2): (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
            ("clicks", 0): (2, "note", NONE),
        }
        everything = rows(world.fetch(version=version, require_stable=True), version)
        assert everything == {
            ("orders", 1): (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT),
            ("clicks", 0): (2, "note", NONE),
        }
        assert rows(world.fetch({"orders": [1]}, version=version), version) == {("orders", 1): (1, "note", NONE)}
    world.ends(7)
    response = world.fetch({"orders": [1, 2]}, require_stable=True)
    assert rows(response, 7) == {("orders", 1): (5, "", NONE), ("orders", 2): (5, "", NONE)}


def test_an_append_in_progress_is_not_stable_either(world):
    world.dawdles = True
    world.commits(ONE)
    unstable = {("orders", 1): (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    assert rows(world.fetch({"orders": [1]}, require_stable=True), 7) == unstable
    world.log_answers()
    world.commits_in_transaction(ONE, 7)
    assert rows(world.fetch({"orders": [1]}, require_stable=True), 7) == unstable


def rows(response, version):
    topics = response.groups[0].topics if version >= 8 else response.topics
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata, each.error_code)
        for topic in topics
        for each in topic.partitions
    }


def test_the_commit_is_verified_before_it_is_appended(world):
    world.verifies_late = True
    call = world.commits_in_transaction(ONE, 7, producer_epoch=3)
    assert call.waits
    assert world.groups() == {}
    assert world.verified == [(world.store.partition_for("g"), "t7", (7, 3), False)]
    world.unverified.pop()(NONE, None)
    assert not call.waits
    world.ends(7)
    assert world.offsets() == ONE


def test_version_5_adds_the_partition_to_the_transaction(world):
    for version in range(6):
        world.commit_in_transaction(ONE, 7, version=version)
    assert [adds for *_, adds in world.verified] == [False] * 5 + [True]


def test_the_partition_may_move_during_the_verification(world):
    world.verifies_late = True
    call = world.commits_in_transaction(ONE, 7)
    world.store.unload(world.store.partition_for("g"))
    world.unverified.pop()(NONE, None)
    assert call.answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("verification", "version", "heard"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 3, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_transaction_that_does_not_include_the_group_commits_nothing(world, verification, version, heard):
    world.verification = verification
    assert world.commit_in_transaction(ONE, 7, version=version) == [heard]
    assert world.groups() == {}
    assert world.log == []


def test_a_leader_epoch_and_a_note_are_kept(world):
    world.commit_in_transaction(ONE, 7, metadata="note", epoch=3)
    world.ends(7)
    world.restart()
    answer = world.fetch({"orders": [1]}).topics[0].partitions[0]
    assert (answer.committed_offset, answer.metadata, answer.committed_leader_epoch) == (1, "note", 3)
