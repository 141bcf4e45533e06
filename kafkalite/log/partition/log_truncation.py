"""Truncates a log on the disk, where a follower has other records than its leader.

The checkpoints of the directory are lowered first (`LogContext.before_truncation`): a recovery point, or a start, that
lies above the new end would make a start after a crash believe in records that are not checked. Then the disk comes
first and memory follows. If the disk refuses in between, the two do not agree, and the log is stopped (`Flusher.stop`),
for records that were appended behind a half-cut log would be lost.
Source: kafka.log.UnifiedLog (truncateTo, truncateFullyAndStartAt); KIP-101, KAFKA-6361.
"""

from __future__ import annotations

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_context import LogContext, LogLocation
from kafkalite.log.partition.log_transactions import LogTransactions
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.partition.segment_swap import SegmentSwap
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache


class LogTruncation:
    """Changes every part of the log but its offsets, which the log moves when these methods return."""

    __slots__ = ("_context", "_epochs", "_flusher", "_location", "_segments", "_swap", "_transactions")

    def __init__(
        self,
        location: LogLocation,
        context: LogContext,
        segments: SegmentList,
        flusher: Flusher,
        epochs: LeaderEpochCache,
        transactions: LogTransactions,
        swap: SegmentSwap,
    ) -> None:
        self._location = location
        self._context = context
        self._segments = segments
        self._flusher = flusher
        self._epochs = epochs
        self._transactions = transactions
        self._swap = swap

    def cut(self, offset: int, start_offset: int, end_offset: int, committed_offset: int) -> None:
        """Removes everything at or past `offset`, which lies below `end_offset` and not before the first segment.
        Raises StorageError; the log may take no more records then."""
        listed = self._segments
        self._prepare(start_offset, offset, empties=False)
        try:
            listed.counts.count_appended(listed.active, end_offset)
            listed.counts.cut()
            self._flusher.lower_to(offset)
            listed.cut(offset)
            listed.counts.counted_to = offset
            listed.secure_end(offset)
            self._epochs.truncate_from_end(offset)
            self._transactions.reload(start_offset, offset, committed_offset)
        except (OSError, StorageError, Malformed) as error:
            raise self._stop_after(error) from error

    def restart(self, offset: int) -> None:
        """Removes all segments, leader epochs and producers; a new segment begins at `offset`. Raises as `cut`."""
        listed = self._segments
        self._prepare(offset, offset, empties=True)
        try:
            listed.counts.cut()
            self._transactions.forget()
            if self._epochs.latest >= 0:
                # on the disk before the new segment: a log that begins elsewhere must not have epochs of the old one
                self._epochs.clear(durable=True)
            listed.restart(offset)
            listed.counts.counted_to = offset
        except (OSError, StorageError) as error:
            raise self._stop_after(error) from error
        self._flusher.restart_at(offset)

    def _prepare(self, start_offset: int, end_offset: int, *, empties: bool) -> None:
        """The log has not changed when this raises StorageError. `empties`: all segments are about to go."""
        with self._location.refusing("truncate"):
            self._swap.cancel_for_truncation(0 if empties else end_offset)
            self._context.before_truncation(self._location.key, start_offset, end_offset, empties)

    def _stop_after(self, error: OSError | StorageError | Malformed) -> StorageError:
        """Stops the log in the middle of a truncation."""
        if isinstance(error, Malformed):
            error = self._location.unreadable(error)
        elif isinstance(error, OSError):
            error = self._location.refusal(f"cannot truncate {self._location.name}", error)
        return self._flusher.stop(error)
