"""What a pass stands on: that a start after a crash finds everything below the end of what is compacted.

A pass forgets old records because there are newer ones, so those have to be on the disk before: should the power fail
between two groups, the old value of a key would be gone and the new one too. And a start reads again what lies behind
the recovery point that was written down, from the producers' state as it was there: a transaction that was open there
would never end, if its marker were compacted away. Both is mostly so when a log is due, since sealed segments are
flushed at once and recovery points are written every minute; where it is not, it is brought about first.
Source: none in Apache Kafka, where other replicas have what a crash takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.common.errors import StorageError
from kafkalite.log.storage.file_names import RECOVERY_POINTS

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog


class DurabilityCheck:
    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def of(self, log: PartitionLog) -> int:
        """Everything below this offset is on the disk, and a start knows it. The log must be here."""
        key = log.topic, log.partition
        return min(log.recovery_point, self._logs.directory_of(key).checkpoints.recovery_points.get(key, 0))

    def reach(self, log: PartitionLog, offset: int, done: Callable[[str | None], None]) -> None:
        """See to it that the footing is at `offset` or behind, a sealed segment's end; `done` hears why it cannot be,
        or None, also when the log is gone meanwhile. Work of other hands is waited for first."""
        key = log.topic, log.partition

        def flush(_: Exception | None) -> None:
            if log.kept_recovery_point >= offset:
                keep()
                return
            try:
                log.flush_soon()
            except StorageError as error:
                done(str(error))
                return
            log.background(_nothing, flushed)

        def flushed(_: Exception | None) -> None:
            if log.kept_recovery_point >= offset:
                keep()
            else:
                done(log.failure or "its segments cannot be flushed, see the broker's log")

        def keep() -> None:
            self._logs.write_recovery_points([key], kept)

        def kept() -> None:
            if self._logs.logs.get(key) is not log or self.of(log) >= offset:
                done(None)
            else:
                done(f"{RECOVERY_POINTS} cannot be written, see the broker's log")

        log.background(_nothing, flush)  # the segments that were sealed just now may be with another hand


def _nothing() -> None:
    """A turn of the log's lane: what was handed out before has been done."""
