"""Which segments have had their time, and the look at all logs that finds them.

    log start         the next segment begins at or below the log's start: nobody may read this one any more. That goes
                      for every log; what follows only where cleanup.policy contains "delete"
    retention.bytes   without the segment the log would still hold as many bytes as it may
    retention.ms      its latest record is older than that, or, where no record has a time, its file. So one timestamp
                      in the future keeps a segment and everything behind it

One rule after the other, each from the oldest segment that is left up to the first that stays; never beyond the high
watermark. The last segment goes like any other if there is something in it: the log begins a new one first.
The look takes some logs in each turn of the loop, one if it finds something, and comes again soon for those that wait
for the disk. A log that is being compacted is left alone, and looked at when that is over.
Source: kafka.log.UnifiedLog (deleteOldSegments, deletableSegments), kafka.log.LogManager.cleanupLogs.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import StorageError
from kafkalite.config.broker_config import TopicConfig

if TYPE_CHECKING:
    from kafkalite.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

LOGS_PER_TURN = 32  # 14 us each where nothing is to be done, 50 us where a time index has to be opened
SEGMENTS_PER_TURN = 8  # three or four renames each, of 10 to 60 us; a new segment takes 1 ms
LOOK_AGAIN_MS = 500
_LOOK_AGAIN_MS_MAX = 60_000


class Reason(Enum):
    """Why a segment goes; the value is for the log line."""

    LOG_START = "they lie before the log's start"
    BYTES = "retention.bytes"
    TIME = "retention.ms"


class SegmentFacts(NamedTuple):
    """What decides about a segment. `end_offset` is the next one's base, or the end of the log. The largest timestamp
    is asked for only where it decides: to find it may take a look at the disk (OSError)."""

    end_offset: int
    size_bytes: int
    largest_timestamp_ms: Callable[[], int]


def deletable(
    segments: Iterable[SegmentFacts],
    segment_count: int,
    size_bytes: int,
    start_offset: int,
    high_watermark: int,
    config: TopicConfig,
    now_ms: int,
    most: int,
) -> list[Reason]:
    """Why each of the first segments of a log goes, so many go, at most `most`. `segments` begin with the oldest;
    there are `segment_count` of them, with `size_bytes` together."""
    deletes = "delete" in config.cleanup_policy
    retention_ms = config.retention_ms if deletes else -1
    surplus_bytes = size_bytes - config.retention_bytes if deletes and config.retention_bytes >= 0 else -1
    rule = Reason.LOG_START
    reasons: list[Reason] = []
    for at, (end_offset, segment_bytes, largest_timestamp_ms) in enumerate(islice(segments, most), start=1):
        is_last = at == segment_count
        if end_offset > high_watermark or (is_last and not segment_bytes):
            break
        if rule is Reason.LOG_START and (is_last or end_offset > start_offset):
            rule = Reason.BYTES
        if rule is Reason.BYTES and surplus_bytes < segment_bytes:
            rule = Reason.TIME
        if rule is Reason.TIME and (retention_ms < 0 or now_ms - largest_timestamp_ms() <= retention_ms):
            break
        surplus_bytes -= segment_bytes
        reasons.append(rule)
    return reasons


class RetentionCheck:
    """A look at every log, `begin` begins one. `logs` are those that there are now, by (topic, partition). One that
    `is_busy` is left alone: its first segments are being compacted."""

    def __init__(
        self,
        logs: Callable[[], Mapping[tuple[str, int], PartitionLog]],
        clock: Clock,
        is_busy: Callable[[tuple[str, int]], bool] = lambda key: False,
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._is_busy = is_busy
        self._waiting: deque[tuple[str, int]] = deque()
        self._later: list[tuple[str, int]] = []  # these have more to delete when something is on the disk
        self._timer: Timer | None = None
        self._pause_ms = LOOK_AGAIN_MS
        self._faults: list[StorageError] = []

    def begin(self) -> None:
        """Look at every log, unless the last look is still under way."""
        if not self._waiting:
            self._later.clear()
            self._pause_ms = LOOK_AGAIN_MS
            self._look(list(self._logs()), 0)

    def look_again(self, key: tuple[str, int]) -> None:
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

    def _look(self, keys: Iterable[tuple[str, int]], delay_ms: int) -> None:
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

    def _look_at(self, log: PartitionLog, key: tuple[str, int], now_ms: int) -> bool:
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
        elif log.waits_for_the_disk:
            self._later.append(key)
        if reasons:
            why = "; ".join(f"{count} for {reason.value}" for reason, count in Counter(reasons).items())
            name = f"{log.topic}-{log.partition}"
            start = log.start_offset
            logger.info("%d segments of %s are deleted (%s); it starts at %d now", len(reasons), name, why, start)
        return bool(reasons) or log.waits_for_the_disk

    def _tell_faults(self) -> None:
        faults, self._faults = self._faults, []
        if faults:
            others = f" (and {len(faults) - 1} more logs)" if len(faults) > 1 else ""
            logger.error("%s%s; the next check tries again", faults[0], others)
