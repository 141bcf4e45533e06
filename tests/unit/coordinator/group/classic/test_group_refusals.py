"""The errors of refused requests: a table per request."""

import pytest

from kafkalite.common.errors import ErrorCode


def refused(call):
    answer = call.answer
    return (ErrorCode(answer.error_code), answer.generation_id, answer.leader, answer.members, answer.member_id)


@pytest.mark.parametrize(
    ("joining", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "x" * 32_768}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "group": "unheard-of"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [], "group": "new"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "", "group": "new"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("unheard-of", b"")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [("\N{SNOWMAN}" * 20_000, b"")]}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_joins_that_are_refused(world, joining, code):
    world.stable("a")
    member_id = joining.get("member_id", "")
    for version in range(10):
        answer = world.join(**{"version": version, **joining})
        assert refused(answer) == (code, -1, "", [], member_id)
        assert answer.answer.protocol_name == ("" if version < 7 else None)


def test_a_pending_id_cannot_become_static(world):
    pending = world.join().answer.member_id
    assert world.join(pending, instance="i").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_client_id_still_makes_a_member(world):
    joined = world.join(client="\N{DUCK}" * 8_191, version=3).answer
    assert joined.error_code == ErrorCode.NONE
    assert len(joined.member_id.encode()) < 32_768
    world.sync(joined.member_id, 1, {joined.member_id: b""})
    world.restart()
    assert world.heartbeat(joined.member_id, 1) == ErrorCode.NONE


def test_version_0_takes_its_session_timeout_for_the_rebalance(world):
    a = world.join(version=0).answer.member_id
    waiting = world.join(version=0)
    world.heartbeat(a, 1)
    world.passes(9_999)
    assert waiting.waits
    world.passes(1)
    assert waiting.answer.generation_id == 2


def test_syncs_that_are_refused(world):
    (a, b), generation = world.stable("a", "b")
    assert world.sync(a, generation, group="").error == ErrorCode.INVALID_GROUP_ID
    assert world.sync(a, generation, group="unheard-of").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("nobody", generation).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(a, generation, instance="i").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(a, generation - 1).error == ErrorCode.ILLEGAL_GENERATION
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    assert world.sync(a, generation, version=5, **named).error == ErrorCode.NONE
    assert world.sync(a, generation, version=5).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        assert world.sync(a, generation, version=5, **named | wrong).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.join(a)
    refusal = world.sync(b, generation)
    assert refusal.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert (refusal.answer.assignment, refusal.answer.protocol_type) == (b"", None)
    world.commit({("orders", 1): 1}, group="idle")
    assert world.sync(a, 1, group="idle").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_that_are_refused(world):
    (a,), generation = world.stable("a")
    assert world.heartbeat(a, generation, group="") == ErrorCode.INVALID_GROUP_ID
    assert world.heartbeat(a, generation, group="unheard-of") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, generation, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, generation + 1) == ErrorCode.ILLEGAL_GENERATION


def answers(world):
    """The error of each kind of request for group g."""
    commit = world.commit({("orders", 1): 1})
    return {
        "join": world.join().error,
        "sync": world.sync("m", 1).error,
        "heartbeat": world.heartbeat("m", 1),
        "leave": ErrorCode(world.leave("m").error_code),
        "commit": commit[0],
        "fetch v1": ErrorCode(world.fetch({"orders": [1]}, version=1).topics[0].partitions[0].error_code),
        "fetch v7": ErrorCode(world.fetch({"orders": [1]}).error_code),
        "fetch v8": ErrorCode(world.fetch({"orders": [1]}, version=8).groups[0].error_code),
        "describe": ErrorCode(world.describe().error_code),
        "delete": world.delete("g")["g"],
    }


def test_while_a_partition_is_loaded_or_led_elsewhere(world):
    world.stable("a")
    partition = world.store.partition_for("g")
    world.store.unload(partition)
    assert set(answers(world).values()) == {ErrorCode.NOT_COORDINATOR}
    world.store.add_loading_partition(partition)
    assert set(answers(world).items()) ^ set(
        dict.fromkeys(answers(world), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS).items()
    ) == {
        ("heartbeat", ErrorCode.NONE),  # it may well be a member
        ("heartbeat", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("sync", ErrorCode.REBALANCE_IN_PROGRESS),
        ("sync", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    }
    assert world.describe().group_state == ""
    world.load(partition, world.batches(partition))
    assert world.state() == "Stable"
    batches = world.batches(partition)
    world.coordinator.close()
    assert set(answers(world).values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.load(partition, batches)  # loading was under way, and is too late
    assert set(answers(world).values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.store.by_id == {}
