"""The precondition of a cleaning: the dirty range is fsynced and below the checkpointed recovery point.

A cleaning removes records that newer ones supersede, so the newer ones must be on the disk: otherwise a power failure
between two groups could lose both values of a key. Also, a start reads the log from the checkpointed recovery point,
with the producer state of that offset: a transaction that was open there would never end if the cleaning had removed
its marker. Mostly the precondition holds when a log is due, since sealed segments are flushed at once and recovery
points are checkpointed every minute; otherwise `flush` establishes it.
Source: none in Apache Kafka, where other replicas have the records that a crash loses.
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

    def durable_offset(self, log: PartitionLog) -> int:
        """All records below it are on the disk, and so is a recovery point at or above it. The log must be open."""
        key = log.topic, log.partition
        return min(log.flusher.recovery_point, self._logs.directory_of(key).checkpoints.recovery_points.get(key, 0))

    def flush(self, log: PartitionLog, offset: int, done: Callable[[str | None], None]) -> None:
        """Raise the durable offset to `offset`, the end of a sealed segment. `done` gets the reason if that fails, and
        None if not, also when the log is gone meanwhile. Flushes that are under way are waited for first."""
        key = log.topic, log.partition

        def flush(_: Exception | None) -> None:
            if log.flusher.kept_recovery_point >= offset:
                checkpoint()
                return
            try:
                log.flusher.flush_soon()
            except StorageError as error:
                done(str(error))
                return
            log.segment_list.background(_do_nothing, flushed)

        def flushed(_: Exception | None) -> None:
            if log.flusher.kept_recovery_point >= offset:
                checkpoint()
            else:
                done(log.failure or "its segments cannot be flushed, see the broker's log")

        def checkpoint() -> None:
            self._logs.write_recovery_points([key], checkpointed)

        def checkpointed() -> None:
            if self._logs.logs.get(key) is not log or self.durable_offset(log) >= offset:
                done(None)
            else:
                done(f"{RECOVERY_POINTS} cannot be written, see the broker's log")

        log.segment_list.background(_do_nothing, flush)  # segments that were sealed just now may be with a flush thread


def _do_nothing() -> None:
    """A job that is done once all earlier jobs of the log are."""
