"""Effects are performed in their order, whatever calls back in between; timers fire once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.runtime.effects import Answer, Append, CancelTimer, Effect, EffectPerformer, SetTimer
from tests.support.manual_clock import ManualClock

SESSION, JOIN = "session", "join"
STORED = "stored"


class Group:
    """Decides once what the test has scripted, and notes every event."""

    partition = 3
    group_id = "g"

    def __init__(self, journal: list[Any], then: list[Effect]) -> None:
        self.journal = journal
        self.then = then

    def on_append(self, stored: Any, error: ErrorCode) -> list[Effect]:
        self.journal.append(("appended", stored, error))
        return self.take()

    def on_timer(self, timer: str, now: Moment) -> list[Effect]:
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
        self.performer: EffectPerformer[Any] = EffectPerformer(
            self.clock,
            self._append,
            lambda group, then, error: group.on_append(then, error),
            lambda group, timer: group.on_timer(timer, self.performer.now()),
        )
        self.group: Any = Group(self.journal, then or [])

    def _append(self, partition: int, records: Any, done: Any) -> None:
        self.journal.append(("append", partition, records))
        done(self.error)

    def waiter(self) -> Any:
        return SimpleNamespace(answer=self.journal.append)

    def perform(self, *effects: Effect) -> None:
        self.performer.perform(self.group, effects)

    def set_timer(self, timer: str, in_ms: int) -> SetTimer:
        return SetTimer(timer, self.clock.monotonic_ms() + in_ms)

    def passes(self, ms: int) -> list[tuple[str, int]]:
        """The timers that fire within `ms`, each with the time since the begin."""
        self.journal.clear()
        self.clock.advance(ms)
        return [(timer, at_ms - self.began_ms) for timer, at_ms in self.journal]


def test_effects_of_a_callback_follow_those_that_are_queued() -> None:
    late, early = "late", "early"
    world = World()
    world.group.then = [Answer(world.waiter(), late)]
    world.perform(Append([(b"k", b"v")], STORED), Answer(world.waiter(), early))
    assert world.journal == [("append", 3, [(b"k", b"v")]), ("appended", STORED, ErrorCode.NONE), early, late]


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
        world.perform(Answer(SimpleNamespace(answer=fails), "m"))
    world.perform(Answer(world.waiter(), "n"))
    assert world.journal == ["n"]
