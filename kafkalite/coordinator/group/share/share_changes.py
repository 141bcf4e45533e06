"""The changes of a share group on their way to the log.

A change takes effect at once; its answers, and those that depend on it, wait until its records are in the log. If the
log refuses them, it is undone.
Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.consumer.deadlines import MemberDeadlines, Wait
from kafkalite.coordinator.group.share.share_tables import ShareGroupTables, Step, Undo, records_of
from kafkalite.coordinator.runtime.effects import (
    CONSUMER_GROUP_APPEND_ERROR,
    STAYS_IN_LOG,
    Answer,
    Append,
    Waiter,
)

RETRY_MS = 500  # after the log refused the removal of a member


class HeldAnswer(NamedTuple):
    """An answer that waits for the log. `refuse` makes the answer for an error."""

    waiter: Waiter[Any]
    result: Any
    refuse: Callable[[ErrorCode], Any]


class StoredChange(NamedTuple):
    """Steps on their way, and what follows when they are in the log."""

    undoing: list[Undo]
    answers: list[HeldAnswer]
    effects: Sequence[Any]
    expired: str | None  # the member whose session ended, which led to it


class ShareChange:
    """The steps of one decision, which have taken effect."""

    __slots__ = ("_tables", "steps", "undoing")

    def __init__(self, tables: ShareGroupTables) -> None:
        self._tables = tables
        self.steps: list[Step] = []
        self.undoing: list[Undo] = []

    def make(self, step: Step) -> None:
        self.undoing.append(self._tables.apply(step))
        self.steps.append(step)

    def undo(self) -> None:
        for undo in reversed(self.undoing):
            undo()


class ShareChanges:
    """The changes of one group."""

    __slots__ = ("_deadlines", "_group_id", "_in_flight", "is_closed")

    def __init__(self, group_id: str, deadlines: MemberDeadlines) -> None:
        self.is_closed = False
        self._group_id = group_id
        self._deadlines = deadlines
        self._in_flight: list[StoredChange] = []

    def store(
        self,
        change: ShareChange,
        answers: Sequence[HeldAnswer] = (),
        effects: Sequence[Any] = (),
        expired: str | None = None,
    ) -> Sequence[Any]:
        """Append the steps of the change; answers and effects wait for it, or for an earlier change without any of
        their own."""
        if not change.steps:
            if self._in_flight:
                self._in_flight[-1].answers.extend(answers)
                return ()
            return [Answer(each.waiter, each.result) for each in answers]
        stored = StoredChange(change.undoing, [*answers], effects, expired)
        self._in_flight.append(stored)
        return [Append(records_of(self._group_id, change.steps), stored)]

    def on_append(self, then: StoredChange, error: ErrorCode, now_ms: int) -> Sequence[Any]:
        if self.is_closed:
            return ()
        is_last = then is self._in_flight[-1]
        self._in_flight.remove(then)
        if not error:
            return [*(Answer(each.waiter, each.result) for each in then.answers), *then.effects]
        effects: list[Any] = []
        if error in STAYS_IN_LOG:
            effects += then.effects
        elif is_last:
            for undo in reversed(then.undoing):
                undo()
            if then.expired is not None:
                effects += self._deadlines.set(Wait.SESSION, then.expired, now_ms + RETRY_MS)
        shown = CONSUMER_GROUP_APPEND_ERROR.get(error, error)
        return [*effects, *(Answer(each.waiter, each.refuse(shown)) for each in then.answers)]

    def close(self, error: ErrorCode) -> Sequence[Any]:
        """The group is gone from here: waiting answers get `error`."""
        self.is_closed = True
        answers = [Answer(each.waiter, each.refuse(error)) for stored in self._in_flight for each in stored.answers]
        self._in_flight.clear()
        return answers
