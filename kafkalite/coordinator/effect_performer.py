"""Performs the effects of groups: answers requests, appends records, sets timers.

An append is often done before `append` returns, and calls back at once. The effects of that callback are queued behind
those that are queued already. A timer fires once; setting it again replaces it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkalite.common.clock import Clock, Moment, Timer
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch
from kafkalite.coordinator.group.group_state import GROUP_APPEND_ERROR

if TYPE_CHECKING:
    from kafkalite.coordinator.group.effects import Append, Effect, GroupTimer
    from kafkalite.coordinator.group.group import Group
    from kafkalite.log.state.transaction_verification import VerificationGuard

logger = logging.getLogger(__name__)

TOLD_AFTER_MS = 5_000  # of waiting

Records = list[tuple[bytes, bytes | None]]
AppendDone = Callable[[ErrorCode], None]


class AppendRecords(Protocol):
    """Writes one batch to a partition of `__consumer_offsets` and calls back with the error, often before it returns.

    With `producer` the batch belongs to its transaction, and `guard` is the proof that the partition does, too.
    """

    def __call__(
        self,
        index: int,
        records: Records,
        done: AppendDone,
        /,
        *,
        producer: ProducerIdAndEpoch | None = None,
        guard: VerificationGuard | None = None,
    ) -> None: ...


class EffectPerformer:
    """The timers of all groups, and the queue of effects to perform. A group that waits for members for long is
    told in the log, once for each rebalance."""

    __slots__ = ("_append", "_clock", "_is_performing", "_queue", "_waits", "timers")

    def __init__(self, clock: Clock, append: AppendRecords) -> None:
        self.timers: dict[tuple[Group, GroupTimer], Timer] = {}
        self._clock = clock
        self._append = append
        self._queue: deque[tuple[Group, Effect]] = deque()
        self._is_performing = False
        self._waits: dict[Group, Timer] = {}  # until the log tells of a rebalance

    def perform(self, group: Group, effects: Sequence[Effect]) -> None:
        """Perform the effects in their order, after those that are queued."""
        queue = self._queue
        queue.extend((group, effect) for effect in effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while queue:
                self._perform_one(*queue.popleft())
        finally:
            self._is_performing = False

    def now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _perform_one(self, group: Group, effect: Effect) -> None:
        from kafkalite.coordinator.group.effects import (
            AnswerJoin,
            AnswerSync,
            Append,
            CancelTimer,
            GroupTimer,
            SetTimer,
        )

        if isinstance(effect, AnswerJoin):  # noqa: SIM114 - the same words about other types
            effect.waiter.answer(effect.result)
        elif isinstance(effect, AnswerSync):
            effect.waiter.answer(effect.result)
        elif isinstance(effect, Append):
            self._append(group.partition, effect.records, partial(self._on_append, group, effect))
        elif isinstance(effect, SetTimer):
            self._cancel_timer(group, effect.timer)
            delay_ms = effect.deadline_ms - self._clock.monotonic_ms()
            on_timer = partial(self._on_timer, group, effect.timer)
            self.timers[group, effect.timer] = self._clock.call_later(delay_ms, on_timer)
            if effect.timer is not GroupTimer.SESSION and group not in self._waits and delay_ms > TOLD_AFTER_MS:
                self._waits[group] = self._clock.call_later(TOLD_AFTER_MS, partial(self._tell, group))
        elif isinstance(effect, CancelTimer):
            self._cancel_timer(group, effect.timer)

    def _tell(self, group: Group) -> None:
        del self._waits[group]
        now = self.now()
        waiting = group.waiting(now.monotonic_ms)
        if waiting is not None and group.state_since_ms is not None:
            waited_ms = now.wall_ms - group.state_since_ms
            if waited_ms >= TOLD_AFTER_MS:
                logger.info("%s", waiting.sentence(group.group_id, waited_ms))
            else:  # an earlier rebalance has ended meanwhile
                self._waits[group] = self._clock.call_later(TOLD_AFTER_MS - waited_ms, partial(self._tell, group))

    def close(self) -> None:
        """Cancel all timers."""
        for timer in (*self.timers.values(), *self._waits.values()):
            timer.cancel()
        self.timers.clear()
        self._waits.clear()

    def _on_append(self, group: Group, append: Append, error: ErrorCode) -> None:
        if error:
            logger.error("group %s could not be stored: %s", group.group_id, error.name)
        error = GROUP_APPEND_ERROR.get(error, error)
        self.perform(group, group.on_append(append.then, error, self.now()))

    def _on_timer(self, group: Group, timer: GroupTimer) -> None:
        self.timers.pop((group, timer), None)
        self.perform(group, group.on_timer(timer, self.now()))

    def _cancel_timer(self, group: Group, timer: GroupTimer) -> None:
        running = self.timers.pop((group, timer), None)
        if running is not None:
            running.cancel()
