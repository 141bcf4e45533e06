"""Effects are performed in their order, whatever calls back in between; timers fire once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.effect_performer import EffectPerformer
from kafkalite.coordinator.group.effects import (
    AnswerJoin,
    AnswerSync,
    Append,
    CancelTimer,
    Effect,
    EmptyGroupStored,
    GroupTimer,
    SetTimer,
)
from kafkalite.coordinator.group.membership import JoinResult, SyncResult
from tests.support.manual_clock import ManualClock

SESSION, JOIN = GroupTimer.SESSION, GroupTimer.JOIN
STORED = EmptyGroupStored(7)


class Group:
    """Decides once what the test has scripted, and notes every event."""

    partition = 3
    group_id = "g"

    def __init__(self, journal: list[Any], then: list[Effect]) -> None:
        self.journal = journal
        self.then = then

    def on_append(self, stored: Any, error: ErrorCode, now: Moment) -> list[Effect]:
        self.journal.append(("appended", stored, error))
        return self.take()

    def on_timer(self, timer: GroupTimer, now: Moment) -> list[Effect]:
        self.journal.append((timer, now.monotonic_ms))
        return self.take()

    def take(self) -> list[Effect]:
        then, self.then = self.then, []
        return then


class World:
    def __init__(self, then: list[Effect] | None = None) -> None:
        self.journal: list[Any] = []
        self.error = ErrorCode.NONE
        self.clock = ManualClock()
        self.began_ms = self.clock.monotonic_ms()
        self.performer = EffectPerformer(self.clock, self._append)
        self.group: Any = Group(self.journal, then or [])

    def _append(self, partition: int, records: Any, done: Any) -> None:
        self.journal.append(("append", partition, records))
        done(self.error)

    def waiter(self) -> Any:
        return SimpleNamespace(answer=self.journal.append)

    def perform(self, *effects: Effect) -> None:
        self.performer.perform(self.group, effects)

    def set_timer(self, timer: GroupTimer, in_ms: int) -> SetTimer:
        return SetTimer(timer, self.clock.monotonic_ms() + in_ms)

    def passes(self, ms: int) -> list[tuple[GroupTimer, int]]:
        """The timers that fire within `ms`, each with the time since the begin."""
        self.journal.clear()
        self.clock.advance(ms)
        return [(timer, at_ms - self.began_ms) for timer, at_ms in self.journal]


def test_effects_of_a_callback_follow_those_that_are_queued() -> None:
    late, early = SyncResult(ErrorCode.NONE, assignment=b"late"), JoinResult(ErrorCode.NONE, "m")
    world = World()
    world.group.then = [AnswerSync(world.waiter(), late)]
    world.perform(Append([(b"k", b"v")], STORED), AnswerJoin(world.waiter(), early))
    assert world.journal == [("append", 3, [(b"k", b"v")]), ("appended", STORED, ErrorCode.NONE), early, late]


@pytest.mark.parametrize(
    ("of_log", "of_group"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
def test_the_log_s_error_becomes_the_group_s(of_log: ErrorCode, of_group: ErrorCode) -> None:
    world = World()
    world.error = of_log
    world.perform(Append([], STORED))
    assert world.journal[-1] == ("appended", STORED, of_group)


def test_a_timer_fires_once_and_setting_it_again_replaces_it() -> None:
    world = World()
    world.perform(world.set_timer(SESSION, 100), world.set_timer(JOIN, 50), world.set_timer(SESSION, 300))
    assert world.passes(299) == [(JOIN, 50)]
    assert world.passes(1) == [(SESSION, 300)]
    assert world.passes(1000) == [] and not world.performer.timers


def test_a_cancelled_timer_does_not_fire_and_may_be_cancelled_again() -> None:
    world = World()
    world.perform(world.set_timer(SESSION, 100), CancelTimer(SESSION), CancelTimer(SESSION), CancelTimer(JOIN))
    assert world.passes(1000) == [] and not world.performer.timers


def test_a_timer_may_set_itself_again() -> None:
    world = World()
    world.group.then = [world.set_timer(SESSION, 250)]
    world.perform(world.set_timer(SESSION, 100))
    assert world.passes(260) == [(SESSION, 100), (SESSION, 250)]


def test_an_effect_that_fails_does_not_block_the_later_ones() -> None:
    world = World()

    def fails(result: Any) -> None:
        raise ValueError("a fault of ours")

    with pytest.raises(ValueError):
        world.perform(AnswerJoin(SimpleNamespace(answer=fails), JoinResult(ErrorCode.NONE, "m")))
    world.perform(AnswerJoin(world.waiter(), JoinResult(ErrorCode.NONE, "n")))
    assert world.journal == [JoinResult(ErrorCode.NONE, "n")]
