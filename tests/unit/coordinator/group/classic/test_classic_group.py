"""A group by itself: what it asks the world to do, as lists."""

import pytest

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group import record_codec
from kafkalite.coordinator.group.classic.classic_group import ClassicGroup
from kafkalite.coordinator.group.classic.group_state import (
    COMMIT_ERROR,
    ENTERED_FROM,
    HEARTBEAT_ERROR,
    SYNC_ERROR,
    AssignmentStored,
    GroupState,
    GroupTimer,
)
from kafkalite.coordinator.group.group import (
    REPORT_AFTER_MS,
    Identity,
    JoinedMember,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from kafkalite.coordinator.runtime.effects import Answer, Append, CancelTimer, SetTimer

NOW_MS, WALL_MS = 1_000_000, 1_700_000_000_000
NOW = Moment(NOW_MS, WALL_MS)
SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 60_000, 3_000
CONFIG = BrokerConfig.load({"group.initial.rebalance.delay.ms": str(DELAY_MS), "group.max.size": "100"})


@pytest.fixture
def group():
    return ClassicGroup("g", 7, CONFIG, WALL_MS)


def after(ms):
    return Moment(NOW_MS + ms, WALL_MS + ms)


def joining(member_id="", **changes):
    known = JoinRequest(
        member_id, None, "c", "/h", REBALANCE_MS, SESSION_MS, "consumer", (("range", b"m"),), False, False, "u"
    )
    return known._replace(**changes)


def syncing(generation_id, assignments):
    return SyncRequest("c-u", None, generation_id, None, None, assignments, False)


def test_one_round_as_effects(group):
    assert group.join(joining(), "a waits", NOW) == [
        SetTimer(GroupTimer.SESSION, NOW_MS + 300_000),  # a new member cannot heartbeat yet
        SetTimer(GroupTimer.JOIN, NOW_MS + DELAY_MS),
    ]
    later_ms = NOW_MS + DELAY_MS
    result = JoinResult(ErrorCode.NONE, "c-u", 1, "consumer", "range", "c-u", False, [JoinedMember("c-u", None, b"m")])
    assert group.on_timer(GroupTimer.JOIN, after(DELAY_MS)) == [
        CancelTimer(GroupTimer.JOIN),
        Answer("a waits", result),
        SetTimer(GroupTimer.SESSION, later_ms + SESSION_MS),
        SetTimer(GroupTimer.SYNC, later_ms + REBALANCE_MS),
        SetTimer(GroupTimer.REPORT, later_ms + REPORT_AFTER_MS),
    ]
    stop, store = group.sync(syncing(1, {"c-u": b"all", "nobody": b"?"}), "a syncs", later_ms)
    assert stop == CancelTimer(GroupTimer.SYNC)
    assert isinstance(store, Append)
    (key, value), then = store.records[0], store.then
    assert record_codec.read_key(key) == record_codec.GroupKey("g")
    stored = record_codec.read_group_value(value)
    assert [each.assignment for each in stored.members] == [b"all"]
    assert stored.current_state_timestamp == WALL_MS + DELAY_MS  # what is stored is dated by the wall clock
    assert then == AssignmentStored(1, {"c-u": b"all"})
    assert group.on_append(then, ErrorCode.NONE, after(DELAY_MS + 5)) == [
        Answer("a syncs", SyncResult(ErrorCode.NONE, "consumer", "range", b"all"))
    ]
    assert group.state_name == "Stable"


def test_a_heartbeat_has_no_effects_and_the_session_timer_catches_up_by_itself(group):
    group.join(joining(), "a", NOW)
    group.on_timer(GroupTimer.JOIN, NOW)
    for second in range(1, 9):
        assert group.heartbeat("c-u", None, 1, NOW_MS + 1000 * second) == (ErrorCode.NONE, ())
    assert group.on_timer(GroupTimer.SESSION, after(SESSION_MS)) == [
        SetTimer(GroupTimer.SESSION, NOW_MS + 8_000 + SESSION_MS)
    ]


def test_the_tables_speak_of_every_state():
    states = set(GroupState)
    for table in (ENTERED_FROM, HEARTBEAT_ERROR, COMMIT_ERROR, SYNC_ERROR):
        assert set(table) == states
    assert GroupState.DEAD not in set().union(*ENTERED_FROM.values())


def test_a_closed_group_answers_whoever_waits_and_stays_silent(group):
    group.join(joining(), "a", NOW)
    assert group.close(ErrorCode.NOT_COORDINATOR) == [
        Answer("a", JoinResult(ErrorCode.NOT_COORDINATOR, "c-u")),
        *(CancelTimer(timer) for timer in GroupTimer),
    ]
    for timer in GroupTimer:
        assert group.on_timer(timer, after(1)) == []
    dead = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.heartbeat("c-u", None, 0, NOW_MS) == (dead, ())
    assert group.validate_commit(Identity("", None, -1), [], NOW_MS) == (dead, ())
    assert group.join(joining(), "b", NOW) == [Answer("b", JoinResult(dead, ""))]
    assert group.sync(syncing(0, {}), "b", NOW_MS) == [Answer("b", SyncResult(dead))]
