"""A scan of all logs for compacted ones that are due, some in each turn of the loop.

Source: kafka.log.LogCleanerManager.grabFilthiestCompactedLog, which checks all of them at once in a thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.cleaner.manager.cleaner_health import CleanerHealth
from kafkalite.cleaner.manager.cleaner_state import CleanerState, CleanerStates, is_compacted
from kafkalite.cleaner.manager.status import CLEANING
from kafkalite.common.clock import Clock
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_WORK_PER_TURN = 500  # a log counts for 4 and each of its segments for 1: 0.5 to 1 ms
_WORK_OF_A_LOG = 4


class DirtyLogScan:
    """One scan; `turn` begins it, and `found` gets the dirty ratio and name of each due log at its end. An
    unexpected exception (a bug) at one log is reported to `health`, and the scan continues. Logs that are being
    cleaned, or are on the move to another directory, are skipped."""

    def __init__(
        self,
        logs: LogManager,
        states: CleanerStates,
        clock: Clock,
        health: CleanerHealth,
        found: Callable[[list[tuple[float, TopicPartition]]], None],
    ) -> None:
        self._logs = logs
        self._states = states
        self._clock = clock
        self._health = health
        self._found = found
        self._left = deque(logs.logs.values())
        self._due: list[tuple[float, TopicPartition]] = []
        self._is_stopped = False

    def turn(self) -> None:
        """Scan some logs now, and the others in later turns of the loop."""
        work = _WORK_PER_TURN
        while self._left and work > 0:
            log = self._left.popleft()
            try:
                work -= _WORK_OF_A_LOG + len(log.segments)
                self._scan(log)
            except Exception as error:  # the other logs are still scanned
                self._health.fault(f"looking at {log!r}", error)
        if self._is_stopped:
            return
        if self._left:
            self._clock.call_later(0, self.turn)
        else:
            self._found(self._due)

    def stop(self) -> None:
        self._is_stopped = True
        self._left.clear()

    def _scan(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        if not is_compacted(log):
            self._states.forget(key)
        elif (
            self._logs.logs.get(key) is log
            and key not in self._logs.moves
            and (state := self._states.of(log)).current is not CLEANING
        ):
            self._add_if_due(state)

    def _add_if_due(self, state: CleanerState) -> None:
        try:
            plan = self._states.make_plan(state, self._clock.wall_ms())
        except (OSError, KafkaError) as error:
            logger.warning("cannot see whether %s-%d is to be compacted: %s", *state.key, error)
            return
        if plan.must_reset:
            self._reset_checkpoint(state, plan.first_dirty_offset)
        if plan.is_due and state.may_run(self._clock.monotonic_ms()):
            self._due.append((plan.dirty_ratio, state.key))

    def _reset_checkpoint(self, state: CleanerState, first_dirty_offset: int) -> None:
        log, cleaned_to = state.log, self._states.cleaned_to(state) or 0
        if cleaned_to > log.end_offset or "delete" not in log.config.cleanup_policy:
            logger.warning(
                "the checkpoint says that %s-%d is compacted up to offset %d, but it has %d to %d: all of it is dirty",
                *state.key, cleaned_to, log.start_offset, log.end_offset,
            )  # fmt: skip
        self._logs.directory_of(state.key).write_cleaner_offset(state.key, first_dirty_offset, _checkpointed)


def _checkpointed(error: Exception | None) -> None:
    if error is not None:
        logger.error("cannot checkpoint how far a log is compacted: %s", error)
