"""A partition with several replicas, as one of them sees it: what leader and follower have in common.

The log does not decide what is committed: the replicas do, and the high watermark follows them. It survives a change of
the role, and a start: the log keeps it (`PartitionLog.replicated_offset`), and the checkpoint file.
Source: kafka.cluster.Partition, kafka.log.UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.replication.partition import ENOUGH_BYTES, Partition
from kafkalite.replication.replica.epoch_divergence import ReplicaLog

if TYPE_CHECKING:
    from kafkalite.log.partition.partition_log import PartitionLog


class ReplicatedPartition(Partition):
    """Invariant: start_offset <= high_watermark <= end_offset, and `log.replicated_offset` is the high watermark."""

    __slots__ = ("local_log",)

    def __init__(self, topic: str, index: int, log: PartitionLog, leader_epoch: int) -> None:
        high_watermark = log.replicated_offset = max(log.start_offset, min(log.committed_offset, log.end_offset))
        self.local_log = log
        super().__init__(topic, index, log, leader_epoch, high_watermark)

    def replica_log(self) -> ReplicaLog:
        """The offsets of the log as they are now."""
        log = self.local_log
        return ReplicaLog(
            log.start_offset,
            log.end_offset,
            log.flusher.ack_offset,
            self.high_watermark,
            log.epochs,
            None if log.gap_offset >= log.end_offset else log.gap_offset,
        )

    def move_high_watermark(self, offset: int) -> None:
        """To `offset`, up, or on a follower down. Consumers that wait here are told of the bytes."""
        self.local_log.replicated_offset = offset
        if offset > self.high_watermark:
            uncommitted = self._uncommitted
            # a batch is committed as a whole; one of unknown size, or a part, ends every wait
            is_part = not (uncommitted and uncommitted[0][0] <= offset)
            self._advance(offset, ENOUGH_BYTES if is_part else 0)
        elif offset < self.high_watermark:
            self.high_watermark = offset
            self._counted_stable_offset = None
            self.wake_all()

    def note_append(self, size_bytes: int) -> None:
        """The log has grown by so many bytes, which are not committed yet."""
        self._uncommitted.append((self.local_log.end_offset, size_bytes))

    def note_truncation(self) -> None:
        """The log was truncated, perhaps below the high watermark."""
        log, uncommitted = self.local_log, self._uncommitted
        while uncommitted and uncommitted[-1][0] > log.end_offset:
            uncommitted.pop()
        if self.high_watermark > log.end_offset:
            self.move_high_watermark(log.end_offset)
        self.wake_all()
