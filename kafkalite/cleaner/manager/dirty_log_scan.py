"""A look at all logs: which of them are compacted, and due. Some in each turn of the loop, so that nobody waits for it.

Source: kafka.log.LogCleanerManager.grabFilthiestCompactedLog, which looks at all of them at once in a thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.cleaner.manager.cleaner_state import CleanerState, CleanerStates, is_compacted
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
    """One look; `turn` begins it. `found` is called at its end with those that are due, the dirtiest first; `fault`
    with what is wrong with this program, and the look goes on all the same. Those that are `running` are left out."""

    def __init__(
        self,
        logs: LogManager,
        standings: CleanerStates,
        clock: Clock,
        is_running: Callable[[TopicPartition], bool],
        found: Callable[[list[TopicPartition]], None],
        fault: Callable[[str, Exception], None],
    ) -> None:
        self._logs = logs
        self._standings = standings
        self._clock = clock
        self._is_running = is_running
        self._found = found
        self._fault = fault
        self._left = deque(logs.logs.values())
        self._due: list[tuple[float, TopicPartition]] = []
        self._is_stopped = False

    def turn(self) -> None:
        """Look at some, here and now, and see to it that the others have their turn."""
        work = _WORK_PER_TURN
        while self._left and work > 0:
            log = self._left.popleft()
            try:
                work -= _WORK_OF_A_LOG + len(log.segments)
                self._look_at(log)
            except Exception as error:  # one log's trouble must not keep all others from being looked at
                self._fault(f"looking at {log!r}", error)
        if self._is_stopped:
            return
        if self._left:
            self._clock.call_later(0, self.turn)
        else:
            self._found([key for _, key in sorted(self._due, reverse=True)])

    def stop(self) -> None:
        self._is_stopped = True
        self._left.clear()

    def _look_at(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        if not is_compacted(log):
            self._standings.forget(key)
        elif not self._is_running(key) and self._logs.logs.get(key) is log:
            self._look_closely(key, self._standings.of(log))

    def _look_closely(self, key: TopicPartition, standing: CleanerState) -> None:
        try:
            plan = self._standings.make_plan(standing, self._clock.wall_ms())
        except (OSError, KafkaError) as error:
            logger.warning("cannot see whether %s-%d is to be compacted: %s", *key, error)
            return
        if plan.must_reset:
            self._reset(key, standing, plan.first_dirty_offset)
        if plan.is_due and standing.may_run(self._clock.monotonic_ms()):
            self._due.append((plan.dirty_ratio, key))

    def _reset(self, key: TopicPartition, standing: CleanerState, first_dirty_offset: int) -> None:
        log, cleaned_to = standing.log, self._standings.cleaned_to(standing) or 0
        if cleaned_to > log.end_offset or "delete" not in log.config.cleanup_policy:
            logger.warning(
                "the checkpoint says that %s-%d is compacted up to offset %d, but it has %d to %d: all of it is dirty",
                *key, cleaned_to, log.start_offset, log.end_offset,
            )  # fmt: skip
        self._logs.directory_of(key).write_cleaner_offset(key, first_dirty_offset, _kept)


def _kept(error: Exception | None) -> None:
    if error is not None:
        logger.error("cannot write down how far a log is compacted: %s", error)
