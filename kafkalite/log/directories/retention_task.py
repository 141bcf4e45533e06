"""The periodic check of all logs for segments that retention deletes.

Each turn of the loop checks some logs, one log if it finds something. Logs that wait for the disk are checked again
soon. A log that is being compacted is left alone until the compaction ends.
Source: kafka.log.LogManager.cleanupLogs.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN

if TYPE_CHECKING:
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

LOGS_PER_TURN = 32  # 14 us each where nothing is to be done, 50 us where a time index has to be opened
LOOK_AGAIN_MS = 500
_LOOK_AGAIN_MS_MAX = 60_000


class RetentionTask:
    """A look at every log, `begin` begins one. `logs` are those that there are now, by (topic, partition). One that
    `is_busy` is left alone: its first segments are being compacted."""

    def __init__(
        self,
        logs: Callable[[], Mapping[TopicPartition, PartitionLog]],
        clock: Clock,
        is_busy: Callable[[TopicPartition], bool] = lambda key: False,
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._is_busy = is_busy
        self._waiting: deque[TopicPartition] = deque()
        self._later: list[TopicPartition] = []  # these have more to delete when something is on the disk
        self._timer: Timer | None = None
        self._pause_ms = LOOK_AGAIN_MS
        self._faults: list[StorageError] = []

    def begin(self) -> None:
        """Look at every log, unless the last look is still under way."""
        if not self._waiting:
            self._later.clear()
            self._pause_ms = LOOK_AGAIN_MS
            self._look(list(self._logs()), 0)

    def look_again(self, key: TopicPartition) -> None:
        """Look at one log soon: it is not busy any more."""
        if self._timer is None:
            self._look([key], 0)
        else:
            self._later.append(key)  # a look is under way, or will be

    def stop(self) -> None:
        self._waiting.clear()
        self._later.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, keys: Iterable[TopicPartition], delay_ms: int) -> None:
        def begin() -> None:
            self._waiting.extend(keys)
            self._turn()

        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(delay_ms, begin)

    def _turn(self) -> None:
        self._timer = None
        now_ms = self._clock.wall_ms()
        logs = self._logs()
        for _ in range(min(LOGS_PER_TURN, len(self._waiting))):
            key = self._waiting.popleft()
            log = logs.get(key)
            if log is not None and not self._is_busy(key) and self._look_at(log, key, now_ms):
                break
        if self._waiting:
            self._timer = self._clock.call_later(0, self._turn)
            return
        self._tell_faults()
        if self._later:
            again, self._later = self._later, []
            self._look(again, self._pause_ms)
            self._pause_ms = min(2 * self._pause_ms, _LOOK_AGAIN_MS_MAX)

    def _look_at(self, log: PartitionLog, key: TopicPartition, now_ms: int) -> bool:
        """Whether there was something to do, which is enough for a turn."""
        try:
            reasons = log.delete_old_segments(now_ms, SEGMENTS_PER_TURN)
        except StorageError as fault:
            self._faults.append(fault)
            return True
        except Exception:  # one log's trouble must not keep all others from being looked at
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

    def _tell_faults(self) -> None:
        faults, self._faults = self._faults, []
        if faults:
            others = f" (and {len(faults) - 1} more logs)" if len(faults) > 1 else ""
            logger.error("%s%s; the next check tries again", faults[0], others)
