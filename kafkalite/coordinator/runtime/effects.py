"""Effects of the decisions of groups and transactions, as values, and the performer that carries them out.

A decision takes values and returns effects, which tests compare as lists. They are performed in their order. An append
is often done before it returns, and calls back at once: the effects of that callback are queued behind those that are
queued already. An owner, which is a group or a transaction, has at most one timer of each key; setting a timer replaces
it, and a timer fires once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kafkalite.common.clock import Clock, Moment, Timer
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ProducerIdAndEpoch
from kafkalite.log.state.transaction_verification import VerificationGuard

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

Records = list[tuple[bytes, bytes | None]]
AppendDone = Callable[[ErrorCode], None]


class Waiter(Protocol[R_contra]):
    """Receives the result of a request. Its client may have left meanwhile."""

    def answer(self, result: R_contra, /) -> None: ...


class Answer(NamedTuple, Generic[R]):
    waiter: Waiter[R]
    result: R


class Append(NamedTuple):
    """Write `records` to the owner's partition, then call its `on_append` with `then`."""

    records: Records
    then: Any


class SetTimer(NamedTuple):
    key: Hashable
    deadline_ms: int  # of the monotonic clock


class CancelTimer(NamedTuple):
    key: Hashable


Effect = Answer[Any] | Append | SetTimer | CancelTimer


class AppendRecords(Protocol):
    """Writes one batch to a partition of the coordinator's topic and calls back with the error, often before it
    returns. With `producer` the batch belongs to its transaction, and `guard` is the proof that the partition does."""

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


# Errors of a failed append, translated for the waiting client as Kafka does. Other errors are unchanged.
_NO_PARTITION = dict.fromkeys(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_NOT_LED = dict.fromkeys((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
GROUP_APPEND_ERROR: Mapping[ErrorCode, ErrorCode] = {
    **_NO_PARTITION,
    **_NOT_LED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
TRANSACTION_APPEND_ERROR: Mapping[ErrorCode, ErrorCode] = {
    **GROUP_APPEND_ERROR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
CONSUMER_GROUP_APPEND_ERROR = TRANSACTION_APPEND_ERROR
COMMIT_APPEND_ERROR: Mapping[ErrorCode, ErrorCode] = {
    **_NO_PARTITION,
    **_NOT_LED,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


STAYS_IN_LOG = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Errors of an append whose records are in the log nevertheless, and may be replicated later."""


class Owner(Protocol):
    """A group or a transactional id; `partition` of the coordinator's topic has its records."""

    @property
    def partition(self) -> int: ...


OwnerT = TypeVar("OwnerT", bound=Owner)


class EffectPerformer(Generic[OwnerT]):
    """The timers of all owners, and the queue of effects to perform.

    `on_append` gives the effects of a completed append, `on_timer` those of a timer, and `perform_other` performs the
    effects that only this kind of owner has.
    """

    __slots__ = ("_append", "_is_performing", "_on_append", "_on_timer", "_perform_other", "_queue", "clock", "timers")

    def __init__(
        self,
        clock: Clock,
        append: AppendRecords,
        on_append: Callable[[OwnerT, Any, ErrorCode], Sequence[Any]],
        on_timer: Callable[[OwnerT, Any], Sequence[Any]],
        perform_other: Callable[[OwnerT, Any], None] | None = None,
    ) -> None:
        self.timers: dict[tuple[OwnerT, Hashable], Timer] = {}
        self.clock = clock
        self._append = append
        self._on_append = on_append
        self._on_timer = on_timer
        self._perform_other = perform_other
        self._queue: deque[tuple[OwnerT, Any]] = deque()
        self._is_performing = False

    def perform(self, owner: OwnerT, effects: Sequence[Any]) -> None:
        """Performs the effects in their order, after those that are queued."""
        queue = self._queue
        queue.extend((owner, effect) for effect in effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while queue:
                self._perform_one(*queue.popleft())
        finally:
            self._is_performing = False

    def now(self) -> Moment:
        return Moment(self.clock.monotonic_ms(), self.clock.wall_ms())

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def _perform_one(self, owner: OwnerT, effect: Any) -> None:
        if isinstance(effect, Answer):
            effect.waiter.answer(effect.result)
        elif isinstance(effect, Append):
            self._append(owner.partition, effect.records, partial(self._complete_append, owner, effect.then))
        elif isinstance(effect, SetTimer):
            self._cancel_timer(owner, effect.key)
            delay_ms = effect.deadline_ms - self.clock.monotonic_ms()
            self.timers[owner, effect.key] = self.clock.call_later(delay_ms, partial(self._fire, owner, effect.key))
        elif isinstance(effect, CancelTimer):
            self._cancel_timer(owner, effect.key)
        else:
            assert self._perform_other is not None, effect
            self._perform_other(owner, effect)

    def _complete_append(self, owner: OwnerT, then: Any, error: ErrorCode) -> None:
        self.perform(owner, self._on_append(owner, then, error))

    def _fire(self, owner: OwnerT, key: Hashable) -> None:
        self.timers.pop((owner, key), None)
        self.perform(owner, self._on_timer(owner, key))

    def _cancel_timer(self, owner: OwnerT, key: Hashable) -> None:
        running = self.timers.pop((owner, key), None)
        if running is not None:
            running.cancel()
