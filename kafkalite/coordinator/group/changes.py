"""The changes of a group on their way to the log.

A change is made of steps, each of which is one record. It takes effect at once; its answers, and those that depend on
it, wait until its records are in the log. If the log refuses them, it is undone.
Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.deadlines import Deadline, MemberDeadlines
from kafkalite.coordinator.runtime.effects import (
    CONSUMER_GROUP_APPEND_ERROR,
    STAYS_IN_LOG,
    Answer,
    Append,
    Records,
    Waiter,
)

StepT = TypeVar("StepT")
StepT_contra = TypeVar("StepT_contra", contravariant=True)
Undo = Callable[[], object]


class HeldAnswer(NamedTuple):
    """An answer that waits for the log. `refuse` makes the answer for an error."""

    waiter: Waiter[Any]
    result: Any
    refuse: Callable[[ErrorCode], Any]


class Tables(Protocol[StepT_contra]):
    """The state that the steps change."""

    def apply(self, step: StepT_contra, /) -> Undo:
        """Make the step; returns what undoes it."""
        ...


class Change(Generic[StepT]):
    """The steps of one decision, which have taken effect. `forgotten` are the deadlines that went with them."""

    __slots__ = ("_tables", "_undo", "forgotten", "steps")

    def __init__(self, tables: Tables[StepT]) -> None:
        self.steps: list[StepT] = []
        self.forgotten: list[Deadline] = []
        self._tables = tables
        self._undo: list[Undo] = []

    def make(self, step: StepT) -> None:
        self._undo.append(self._tables.apply(step))
        self.steps.append(step)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def redo(self) -> None:
        """Make the steps again after `undo`, the state being as before them."""
        self._undo += map(self._tables.apply, self.steps)


@contextmanager
def undone(changes: Sequence[Change[Any]]) -> Iterator[None]:
    """The state without these changes, which are the last ones, in their order."""
    for change in reversed(changes):
        change.undo()
    try:
        yield
    finally:
        for change in changes:
            change.redo()


def take_back(
    change: Change[Any], later: Sequence[Change[Any]], deadlines: MemberDeadlines, now_ms: int
) -> Sequence[Any]:
    """The log has refused the change: undoes it beneath those that are decided already, as the log will have it."""
    with undone(later):
        change.undo()
    return deadlines.restore(change.forgotten, now_ms)


class StoredChange(NamedTuple):
    """Steps on their way, and what follows when they are in the log."""

    change: Change[Any]
    answers: list[HeldAnswer]
    effects: Sequence[Any]


class Changes(Generic[StepT]):
    """The changes of one group. `records_of` gives the record of each step."""

    __slots__ = ("_deadlines", "_group_id", "_in_flight", "_records_of", "is_closed", "preceding_records")

    def __init__(
        self, group_id: str, deadlines: MemberDeadlines, records_of: Callable[[str, Iterable[StepT]], Records]
    ) -> None:
        self.is_closed = False
        self.preceding_records: Records = []  # of its conversion: they go before those of its first change
        self._group_id = group_id
        self._deadlines = deadlines
        self._records_of = records_of
        self._in_flight: list[StoredChange] = []

    @property
    def is_storing(self) -> bool:
        """Whether a change is on its way to the log."""
        return bool(self._in_flight)

    @property
    def in_flight(self) -> Sequence[Change[StepT]]:
        return [each.change for each in self._in_flight]

    def store(
        self,
        change: Change[StepT],
        answers: Sequence[HeldAnswer] = (),
        effects: Sequence[Any] = (),
    ) -> Sequence[Any]:
        """Append the steps of the change; answers and effects wait for it, or for an earlier change without any of
        their own."""
        if not change.steps:
            if self._in_flight:
                self._in_flight[-1].answers.extend(answers)
                return ()
            return [Answer(each.waiter, each.result) for each in answers]
        stored = StoredChange(change, [*answers], effects)
        self._in_flight.append(stored)
        preceding, self.preceding_records = self.preceding_records, []
        return [Append([*preceding, *self._records_of(self._group_id, change.steps)], stored)]

    def on_append(self, then: StoredChange, error: ErrorCode, now_ms: int) -> Sequence[Any]:
        if self.is_closed:
            return ()
        later = self.in_flight[self._in_flight.index(then) + 1 :]
        self._in_flight.remove(then)
        if not error:
            return [*(Answer(each.waiter, each.result) for each in then.answers), *then.effects]
        effects: list[Any] = []
        if error in STAYS_IN_LOG:
            effects += then.effects
        else:
            effects += take_back(then.change, later, self._deadlines, now_ms)
        shown = CONSUMER_GROUP_APPEND_ERROR.get(error, error)
        return [*effects, *(Answer(each.waiter, each.refuse(shown)) for each in then.answers)]

    def close(self, error: ErrorCode) -> Sequence[Any]:
        """The group is gone from here: waiting answers get `error`."""
        self.is_closed = True
        answers = [Answer(each.waiter, each.refuse(error)) for stored in self._in_flight for each in stored.answers]
        self._in_flight.clear()
        return answers
