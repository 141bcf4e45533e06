"""Logs that somebody wants to have compacted: each is let in, or refused with a reason, some in each turn of the loop.

One that is let in is forgiven what went wrong before; if asked for, its active segment is sealed first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalite.cleaner.standing import Standings, is_compacted
from kafkalite.common.clock import Clock
from kafkalite.common.errors import KafkaError

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager

Key = tuple[str, int]
_PER_TURN = 32


class Admission:
    """`why_none` says why nothing can be compacted at all, if so."""

    def __init__(
        self, logs: LogManager, standings: Standings, clock: Clock, why_none: Callable[[], str | None]
    ) -> None:
        self._logs = logs
        self._standings = standings
        self._clock = clock
        self._why_none = why_none

    def take(
        self,
        keys: Iterable[Key],
        roll: bool,
        decided: Callable[[Key, str | None], None],
        after_turn: Callable[[], None],
    ) -> None:
        """`decided` hears of each log why it is refused, or None; the first of them before this returns."""
        left = deque(keys)

        def turn() -> None:
            for _ in range(min(len(left), 1 if roll else _PER_TURN)):  # a new segment takes 1 ms
                key = left.popleft()
                decided(key, self._refusal(key, roll))
            if left:
                self._clock.call_later(0, turn)
            after_turn()

        turn()

    def _refusal(self, key: Key, roll: bool) -> str | None:
        if (why_none := self._why_none()) is not None:
            return why_none
        log = self._logs.logs.get(key)
        if log is None:
            return "there is no such partition, or it is offline"
        if not is_compacted(log):
            return f"it is not compacted: its cleanup.policy is {','.join(log.config.cleanup_policy)}"
        if log.failure is not None:
            return log.failure
        try:
            if roll:
                log.roll(self._clock.wall_ms())
        except KafkaError as error:
            return str(error)
        self._standings.of(log).forgive()
        return None
