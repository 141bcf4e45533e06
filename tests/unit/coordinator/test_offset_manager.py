"""Committing, fetching, expiring and deleting offsets."""

import pytest

from kafkalite.common.errors import ErrorCode

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def test_what_was_committed_is_fetched_in_every_version(world):
    assert world.commit({("orders", 1): 42}, metadata="note", epoch=3) == [ErrorCode.NONE]
    for version in range(1, 8):
        topic = world.fetch({"orders": [1, 2]}, version=version).topics[0]
        assert topic.name == "orders"
        here, not_yet = topic.partitions
        assert (here.partition_index, here.committed_offset, here.metadata, here.error_code) == (1, 42, "note", 0)
        assert here.committed_leader_epoch == 3
        assert (not_yet.committed_offset, not_yet.committed_leader_epoch) == (-1, -1)  # no commit is no error
        assert (not_yet.metadata, not_yet.error_code) == ("", 0)
    response = world.fetch({"orders": [1]}, group=["g", "other"], version=8)
    known, unknown = response.groups
    assert (known.group_id, known.error_code, known.topics[0].partitions[0].committed_offset) == ("g", 0, 42)
    assert (unknown.group_id, unknown.error_code, unknown.topics[0].partitions[0].committed_offset) == ("other", 0, -1)


def test_null_means_everything_and_an_empty_list_nothing(world):
    world.commit({("orders", 1): 1, ("clicks", 0): 2})
    for version in (2, 7):
        assert {topic.name for topic in world.fetch(None, version=version).topics} == {"orders", "clicks"}
        assert world.fetch({}, version=version).topics == []
    assert {topic.name for topic in world.fetch(None, version=8).groups[0].topics} == {"orders", "clicks"}
    assert world.fetch({}, version=8).groups[0].topics == []
    assert world.fetch(None, group="unknown").topics == []


def test_partitions_that_do_not_exist_are_refused_one_by_one(world):
    codes = world.commit({("orders", 1): 1, ("orders", 100): 1, ("nowhere", 0): 1, ("orders", -1): 1})
    assert codes == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert world.offsets() == {("orders", 1): 1}
    assert world.commit({("nowhere", 0): 1}, group="h") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert "h" not in world.groups()


def test_notes_have_a_length_limit_in_java_characters(world):
    assert world.commit({("orders", 1): 1}, metadata="x" * 4096) == [ErrorCode.NONE]
    assert world.commit({("orders", 1): 2}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit({("orders", 1): 3}, metadata="\N{SNOWMAN}" * 4096) == [ErrorCode.NONE]
    assert world.commit({("orders", 1): 4}, metadata="\N{DUCK}" * 2049) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit({("orders", 1): 5}, metadata=None) == [ErrorCode.NONE]
    assert world.fetch({"orders": [1]}).topics[0].partitions[0].metadata == ""


def test_a_note_that_the_log_cannot_hold_is_refused_whatever_the_setting(new_world):
    world = new_world(offset_metadata_max_bytes=10**9)
    for note in ("x" * 32_768, "\N{SNOWMAN}" * 11_000):
        assert world.commit({("orders", 1): 1}, metadata=note, version=8) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit({("orders", 1): 1}, metadata="x" * 32_767, version=8) == [ErrorCode.NONE]
    world.restart()
    assert world.offsets() == {("orders", 1): 1}


def test_who_may_commit(world):
    simple = {("orders", 1): 1}
    assert world.commit(simple) == [ErrorCode.NONE]  # nobody is in the group
    assert world.commit(simple, "m", 3) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit(simple, "m", 3, group="new") == [ErrorCode.ILLEGAL_GENERATION]
    (a, b), generation = world.stable("a", "b")
    assert world.commit(simple, a, generation) == [ErrorCode.NONE]
    assert world.commit(simple) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit(simple, "nobody", generation) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit(simple, "nobody", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit(simple, a, generation - 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit(simple, a, -1) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit(simple, a, generation, instance="i") == [ErrorCode.UNKNOWN_MEMBER_ID]
    world.join(a)
    assert world.commit({("orders", 1): 2}, b, generation) == [ErrorCode.NONE]  # while a rebalance is prepared
    world.join(b)
    assert world.commit(simple, a, generation) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit(simple, a, generation + 1) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_commit_is_a_sign_of_life(world):
    (a,), generation = world.stable("a")
    for offset in range(5):
        world.passes(9_000)
        assert world.commit({("orders", 1): offset}, a, generation) == [ErrorCode.NONE]
    world.passes(9_999)
    assert world.heartbeat(a, generation) == ErrorCode.NONE


def test_a_commit_is_visible_when_it_is_on_disk(world):
    world.dawdles = True
    call = world.commits({("orders", 1): 5})
    assert call.waits
    assert world.offsets() == {}
    world.log_answers()
    assert call.answer.topics[0].partitions[0].error_code == 0
    assert world.offsets() == {("orders", 1): 5}


@pytest.mark.parametrize(
    ("refusal", "heard"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_commit_that_the_log_refuses_did_not_happen(world, refusal, heard):
    world.commit({("orders", 1): 1})
    world.refuses = refusal
    assert world.commit({("orders", 1): 2, ("nowhere", 1): 2}) == [heard, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.offsets() == {("orders", 1): 1}


@pytest.mark.parametrize(
    ("late", "heard"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_commit_that_is_in_the_log_counts_though_its_client_hears_an_error(world, late, heard):
    world.commit({("orders", 1): 1})
    world.refuses = late
    assert world.commit({("orders", 1): 2}) == [heard]
    assert world.offsets() == {("orders", 1): 2}


def test_answers_of_the_log_out_of_order_turn_nothing_back(world):
    world.dawdles = True
    first, second = world.commits({("orders", 1): 1}), world.commits({("orders", 1): 2})
    world.held.reverse()
    world.log_answers()
    world.log_answers()
    assert not first.waits
    assert not second.waits
    assert world.offsets() == {("orders", 1): 2}


def test_a_client_that_is_gone_still_has_committed(world):
    world.dawdles = True
    world.commits({("orders", 1): 1}).give_up()
    world.log_answers()
    assert world.offsets() == {("orders", 1): 1}


def test_offsets_of_a_group_without_members_expire_after_the_retention(new_world):
    world = new_world(offsets_retention_minutes=60)
    (a,), generation = world.stable("a", rebalance_ms=6_000)
    world.commit({("orders", 1): 1}, a, generation)
    world.passes(9_000)
    world.leave(a)
    world.passes(60 * MINUTE_MS - 1)  # counted from when the group became empty
    assert world.coordinator.offsets.expire() == 0
    world.passes(1)
    assert world.coordinator.offsets.expire() == 1
    assert world.groups() == {}
    assert [value for _, _, value in world.log[-2:]] == [None, None]  # the offset, and the group itself
    world.restart()
    assert world.groups() == {}


def test_offsets_of_a_working_group_expire_only_for_topics_that_it_does_not_read(new_world):
    world = new_world(offsets_retention_minutes=1)
    subscription = b"\0\1" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff" + b"what newer versions add"
    (a,), generation = world.stable("a", protocols=[("range", subscription)], session_ms=600_000)
    world.commit({("orders", 1): 1, ("clicks", 1): 1}, a, generation)
    world.passes(MINUTE_MS)
    assert world.coordinator.offsets.expire() == 1
    assert world.offsets() == {("orders", 1): 1}


@pytest.mark.parametrize(
    "subscription", [b"", b"\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\6ord", b"\0\0\0\0\0\1\0\1\xff"]
)
def test_nothing_expires_while_nobody_knows_what_the_members_read(new_world, subscription):
    world = new_world(offsets_retention_minutes=1)
    (a,), generation = world.stable("a", protocols=[("range", subscription)], session_ms=600_000)
    world.commit({("orders", 1): 1}, a, generation)
    world.passes(5 * MINUTE_MS)
    assert world.coordinator.offsets.expire() == 0


def test_offsets_of_simple_consumers_expire_each_from_its_commit(new_world):
    world = new_world(offsets_retention_minutes=10)
    world.commit({("orders", 1): 1})
    world.passes(5 * MINUTE_MS)
    world.commit({("orders", 2): 2})
    world.passes(5 * MINUTE_MS)
    assert world.coordinator.offsets.expire() == 1
    assert world.offsets() == {("orders", 2): 2}
    world.passes(5 * MINUTE_MS)
    world.coordinator.offsets.expire()
    assert world.groups() == {}
    assert [value for _, _, value in world.log[-1:]] == [None]  # no group tombstone: there never was a group record


def test_an_old_client_may_ask_for_a_retention_of_its_own(world):
    world.commit({("orders", 1): 1}, retention_ms=3 * DAY_MS, version=4)
    world.commit({("orders", 2): 1}, retention_ms=30 * DAY_MS, version=2)
    world.restart()
    world.passes(3 * DAY_MS - 1)
    assert world.coordinator.offsets.expire() == 0
    world.passes(1)
    assert world.coordinator.offsets.expire() == 1
    world.passes(26 * DAY_MS)
    assert world.coordinator.offsets.expire() == 0


@pytest.mark.parametrize(
    ("retention_ms", "expired_after_the_retention_of_all"),
    [(2**63 - 1, False), (-1, True), (-2, True), (-(2**63), True)],
)
def test_no_retention_is_too_long_or_too_short_to_be_written_down(
    world, retention_ms, expired_after_the_retention_of_all
):
    assert world.commit({("orders", 1): 1}, retention_ms=retention_ms, version=2) == [ErrorCode.NONE]
    world.restart()
    assert world.offsets() == {("orders", 1): 1}
    world.passes(7 * DAY_MS)
    assert world.coordinator.offsets.expire() == expired_after_the_retention_of_all


def test_a_retention_that_ends_where_minus_one_means_none_has_still_ended(world):
    world.commit({("orders", 1): 1}, retention_ms=-world.clock.wall_ms() - 1, version=2)
    assert world.coordinator.offsets.expire() == 1


def test_a_commit_of_which_nothing_is_written_makes_no_group(world):
    assert world.commit({("orders", 1): 1}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.groups() == {}


def test_an_offset_whose_commit_is_under_way_does_not_expire(new_world):
    world = new_world(offsets_retention_minutes=1)
    world.commit({("orders", 1): 1})
    world.passes(MINUTE_MS)
    world.dawdles = True
    world.commits({("orders", 1): 2})
    assert world.coordinator.offsets.expire() == 0
    world.log_answers()
    assert world.offsets() == {("orders", 1): 2}


def test_a_deleted_topic_takes_its_offsets_along(world):
    world.commit({("orders", 1): 1, ("clicks", 1): 1})
    world.commit({("orders", 1): 1}, group="h")
    world.dawdles = True
    late = world.commits({("orders", 2): 9})
    world.coordinator.offsets.on_topic_deleted("orders")
    while world.held:
        world.log_answers()
    assert not late.waits
    assert world.offsets() == {("clicks", 1): 1}  # also not the one that was on its way
    assert list(world.groups()) == ["g"]  # nothing is left of h
    world.restart()
    assert world.offsets() == {("clicks", 1): 1}


def test_groups_are_deleted_when_nobody_is_in_them(world):
    world.commit({("orders", index): index for index in range(100)}, group="old")
    (a,), _ = world.stable("a")
    assert world.delete("old", "g", "nowhere", "old") == {
        "old": ErrorCode.NONE,
        "g": ErrorCode.NON_EMPTY_GROUP,
        "nowhere": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert world.fetch(group="old").topics == []
    world.leave(a)
    assert world.delete("g") == {"g": ErrorCode.NONE}
    world.restart()
    assert world.groups() == {}


def test_a_group_stays_whose_deletion_the_log_refuses(world):
    world.commit({("orders", index): index for index in range(3)})
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.delete("g") == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.offsets() == {("orders", index): index for index in range(3)}
    world.refuses = ErrorCode.NONE
    assert world.delete("g") == {"g": ErrorCode.NONE}
    assert world.groups() == {}
    world.restart()
    assert world.groups() == {}


def test_offsets_whose_expiration_the_log_refuses_expire_later(new_world):
    world = new_world(offsets_retention_minutes=1)
    world.commit({("orders", 1): 1})
    world.passes(MINUTE_MS)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.coordinator.offsets.expire() == 0 and world.offsets() == {("orders", 1): 1}
    world.refuses = ErrorCode.NONE
    assert world.coordinator.offsets.expire() == 1 and world.groups() == {}


def test_groups_are_listed_by_state_whatever_its_case(world):
    world.commit({("orders", 1): 1}, group="idle")
    world.stable("a")
    assert world.groups() == {"idle": "Empty", "g": "Stable"}
    assert world.groups("stable") == {"g": "Stable"}
    assert world.groups("Empty", "Dead") == {"idle": "Empty"}
    assert world.groups("nonsense") == {}
    assert world.state("nowhere") == "Dead"


def test_the_empty_group_name_can_keep_offsets_but_no_members(world):
    assert world.commit({("orders", 1): 1}, group="") == [ErrorCode.NONE]
    assert world.offsets("") == {("orders", 1): 1}
    assert world.join(group="").error == ErrorCode.INVALID_GROUP_ID
    assert world.heartbeat("m", 1, group="") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.delete("") == {"": ErrorCode.NONE}
