"""Cuts a log at its end, or empties it and begins it anew elsewhere: for followers whose leader has other records.

The checkpoints of the directory are lowered first (`LogContext.before_truncation`): a recovery point, or a start, that
lies above the new end would make a start after a crash believe in records that are not checked. Then the disk comes
first and memory follows. If the disk refuses in between, the two do not agree, and the log is stopped
(`Flusher.stop`), for records that were appended behind a half-cut log would be lost.
Source: kafka.log.UnifiedLog (truncateTo, truncateFullyAndStartAt), kafka.log.LogManager (same), KAFKA-6361.
"""

from __future__ import annotations

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.log.partition.flusher import remember_failed_sync
from kafkalite.log.partition.log_context import LogLocation
from kafkalite.log.partition.log_transactions import LogTransactions
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.partition.segment_swap import SegmentSwap
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.storage.files import SyncFailed


class LogTruncation:
    """The methods raise StorageError. After `cut` and `restart` the owner takes over the offsets, and notifies the
    flusher."""

    __slots__ = ("_epochs", "_key", "_location", "_segments", "_swap", "_transactions")

    def __init__(
        self,
        key: TopicPartition,
        location: LogLocation,
        segments: SegmentList,
        swap: SegmentSwap,
        epochs: LeaderEpochCache,
        transactions: LogTransactions,
    ) -> None:
        self._key = key
        self._location = location
        self._segments = segments
        self._swap = swap
        self._epochs = epochs
        self._transactions = transactions

    def cut(self, offset: int, start_offset: int, end_offset: int, committed_offset: int) -> None:
        """Removes everything at or past `offset`, which lies below `end_offset` and not before the first segment."""
        listed = self._segments
        start_offset = min(start_offset, offset)
        self._prepare(start_offset, offset, empties=False)
        try:
            listed.counts.count_appended(listed.active, end_offset)
            listed.counts.cut()
            listed.flusher.lower_to(offset)
            listed.cut(offset)
            listed.counts.counted_to = offset
            listed.secure_end(offset)
            self._epochs.truncate_from_end(offset)
            listed.flusher.mark_dirty(self._epochs.path)
            self._transactions.reload(start_offset, offset, committed_offset)
        except (OSError, StorageError, Malformed) as error:
            raise self._stop(error) from error

    def restart(self, offset: int) -> None:
        """Removes all segments, epochs and producers; the log is empty and begins at `offset`."""
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
            raise self._stop(error) from error

    def _prepare(self, start_offset: int, end_offset: int, *, empties: bool) -> None:
        """The log has not changed when this raises. `empties`: all segments are about to go."""
        try:
            self._swap.cancel_for_truncation(0 if empties else end_offset)
            self._segments.context.before_truncation(self._key, start_offset, end_offset, empties)
        except OSError as error:
            raise self._location.refusal(f"cannot truncate {self._location.name}", error) from error

    def _stop(self, error: OSError | StorageError | Malformed) -> StorageError:
        if isinstance(error, SyncFailed):
            remember_failed_sync(self._location.files, self._location.directory)
        if isinstance(error, Malformed):
            error = self._location.unreadable(error)
        elif isinstance(error, OSError):
            error = self._location.refusal(f"cannot truncate {self._location.name}", error)
        return self._segments.flusher.stop(error)
