"""The periodic check of all logs for segments that retention deletes.

Each turn of the loop checks some logs, but ends after a log with something to delete. Logs that wait for the disk are
checked again soon. A log that is being compacted is skipped until the compaction ends.
Source: kafka.log.LogManager.cleanupLogs.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

LOGS_PER_TURN = 32  # 14 us each where nothing is deleted, 50 us where a time index has to be opened
RECHECK_MS = 500
FIRST_MS = 30_000  # Kafka's: a start is busy enough
_RECHECK_MS_MAX = 60_000


class RetentionTask:
    """`start` starts a check of all logs. Logs that are `being_cleaned` are skipped."""

    def __init__(self, manager: LogManager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        self._waiting: deque[TopicPartition] = deque()
        self._later: list[TopicPartition] = []  # these have more to delete after an fsync
        self._timer: Timer | None = None
        self._recheck_ms = RECHECK_MS
        self._faults: list[StorageError] = []

    def start(self) -> None:
        """Checks every log, unless the last check is still in progress."""
        if not self._waiting:
            self._later.clear()
            self._recheck_ms = RECHECK_MS
            self._schedule(list(self._manager.logs), 0)

    def check_soon(self, key: TopicPartition) -> None:
        """Checks one log soon: it is not busy any more."""
        if self._timer is None:
            self._schedule([key], 0)
        else:
            self._later.append(key)  # a check is in progress or scheduled

    def stop(self) -> None:
        self._waiting.clear()
        self._later.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, keys: Iterable[TopicPartition], delay_ms: int) -> None:
        def check() -> None:
            self._waiting.extend(keys)
            self._check_some()

        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(delay_ms, check)

    def _check_some(self) -> None:
        self._timer = None
        now_ms = self._clock.wall_ms()
        manager = self._manager
        for _ in range(min(LOGS_PER_TURN, len(self._waiting))):
            key = self._waiting.popleft()
            log = manager.logs.get(key)
            if log is not None and key not in manager.being_cleaned and self._check(log, key, now_ms):
                break
        if self._waiting:
            self._timer = self._clock.call_later(0, self._check_some)
            return
        self._log_faults()
        if self._later:
            again, self._later = self._later, []
            self._schedule(again, self._recheck_ms)
            self._recheck_ms = min(2 * self._recheck_ms, _RECHECK_MS_MAX)

    def _check(self, log: PartitionLog, key: TopicPartition, now_ms: int) -> bool:
        """Deletes old segments of one log; returns whether there was work, which is enough for a turn."""
        try:
            reasons = log.delete_old_segments(now_ms, SEGMENTS_PER_TURN)
        except StorageError as fault:
            self._faults.append(fault)
            return True
        except Exception:  # one failing log must not keep the others from being checked
            logger.exception("retention of %s-%d failed; the next check tries again", log.topic, log.partition)
            return True
        if len(reasons) == SEGMENTS_PER_TURN:
            self._waiting.appendleft(key)  # there may be more
        elif log.segment_list.waits_for_disk:
            self._later.append(key)
        if reasons:
            why = "; ".join(f"{count} for {reason.value}" for reason, count in Counter(reasons).items())
            name = f"{log.topic}-{log.partition}"
            start = log.start_offset
            logger.info("%d segments of %s are deleted (%s); it starts at %d now", len(reasons), name, why, start)
        return bool(reasons) or log.segment_list.waits_for_disk

    def _log_faults(self) -> None:
        faults, self._faults = self._faults, []
        if faults:
            others = f" (and {len(faults) - 1} more logs)" if len(faults) > 1 else ""
            logger.error("%s%s; the next check tries again", faults[0], others)
