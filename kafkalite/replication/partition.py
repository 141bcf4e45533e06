"""A partition on its leader: the log, the leader epoch, the high watermark, and the operations that wait for it.

A fetch that found too few bytes adds a `DelayedOperation` here. An append adds its size to each of them, and one that
has enough is woken, from the event loop rather than from inside the append. A new segment ends all waits: a fetch does
not wait in an older segment than the end that it may read to (`countable_bytes`).
With one replica a record is committed as soon as the log acknowledges it: at once, or with flush.messages when it is on
the disk. Until then no client reads it, and its producer waits (`when_committed`).
A read_committed fetch ends at the last stable offset: below it no transaction is open, and every marker is committed.
It waits for that offset to move; bytes of open transactions do not count.
Source: kafka.cluster.Partition, kafka.log.UnifiedLog, kafka.server.DelayedFetch, kafka.server.DelayedProduce.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NoReturn

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.region import FileRegion
from kafkalite.log.partition.partition_log import AppendResult, PartitionLog
from kafkalite.log.segment.segment import NEVER
from kafkalite.log.segment.timestamp_lookup import TimeLookup
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.record.transaction_marker import build_marker
from kafkalite.replication.delayed_operations import ENOUGH_BYTES, DelayedAcks, DelayedOperation, Notify
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, ReplicaLog, check_epoch, divergence_from

_NO_OFFSET = -2  # matches no fetch offset


class Partition:
    """A partition that this broker leads. `leader_epoch` is stamped on every batch; `high_watermark` is the first
    offset that is not committed. Invariant: start_offset <= high_watermark <= end_offset.

    For delayed read_committed operations bytes are counted up to `_counted_stable_offset`; None: up to the high
    watermark, since no transaction is open. `watched_base` is the base offset of the active segment when the first of
    the delayed operations began to wait.
    """

    __slots__ = (
        "_counted_stable_offset",
        "_delayed_acks",
        "_uncommitted",
        "delayed_operations",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "producers",
        "topic",
        "watched_base",
    )

    is_offline = False  # see OfflinePartition

    def __init__(
        self, topic: str, index: int, log: PartitionLog, leader_epoch: int, high_watermark: int | None = None
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = log.flusher.ack_offset if high_watermark is None else high_watermark
        self.delayed_operations: dict[DelayedOperation, None] = {}
        self._uncommitted: deque[tuple[int, int]] = deque()  # (end offset, size in bytes) of each batch
        if log.end_offset > self.high_watermark:
            self._uncommitted.append((log.end_offset, ENOUGH_BYTES))
        self._delayed_acks = DelayedAcks()
        self.producers = log.producers
        self.producers.acknowledge(self.high_watermark)
        self._counted_stable_offset: int | None = None
        self.watched_base = NEVER  # of no interest before the first operation waits
        log.flusher.on_ack = self._on_ack
        log.on_new_start = self.wake_all

    @property
    def last_stable_offset(self) -> int:
        """The end of a read_committed fetch: the high watermark, or the first offset of the oldest transaction that is
        open or whose marker is not committed. It is O(1), and may lie below the first offset of a transaction whose
        first records retention has deleted."""
        unstable_offset = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        if unstable_offset >= high_watermark:
            return high_watermark
        return max(unstable_offset, self.log.start_offset)

    def append(
        self,
        records: memoryview,
        now_ms: int,
        produce_version: int,
        trusted: bool = False,
        transactional: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append one batch. It is committed if the high watermark is past it; otherwise see `when_committed`.

        `trusted`: the broker itself made the batch, so its content is not checked. `transactional`: the request has a
        transactional id, so the batch may be transactional. `guard`: its transaction is verified. Raises KafkaError
        with the code for the producer.
        """
        log = self.log
        try:
            # by position: 0.1 us less than with keywords
            return log.append(records, self.leader_epoch, now_ms, produce_version, trusted, transactional, guard)
        finally:
            ack_offset = log.flusher.ack_offset
            if ack_offset != self.high_watermark:
                if self.delayed_operations or self._uncommitted:  # 0.1 us less than calling it always
                    self._advance(ack_offset, len(records))
                else:
                    self.high_watermark = ack_offset
            elif log.end_offset != self.high_watermark:
                uncommitted = self._uncommitted
                if not uncommitted or uncommitted[-1][0] != log.end_offset:  # neither a duplicate nor refused
                    uncommitted.append((log.end_offset, len(records)))

    def append_at(self, records: memoryview, end_offset: int, start_offset: int, now_ms: int) -> None:
        """Append a mirror's batches, which keep their offsets, if the log ends at `end_offset`. An empty log that ends
        before `start_offset` begins there instead. Raises KafkaError: OFFSET_OUT_OF_RANGE if neither can be."""
        log, fault = self.log, ""
        if log.end_offset != end_offset:
            fault = f"the log ends at offset {log.end_offset}, and not at {end_offset}"
        elif start_offset > end_offset > log.start_offset:
            fault = f"the log has records before offset {end_offset}, so it cannot begin at {start_offset}"
        if fault:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, fault)
        if start_offset > end_offset:
            self._restart_at(start_offset)
        if records:
            before, active_base = log.end_offset, log.segment_list.active.base_offset
            try:
                log.append_as_follower(records, now_ms, self.leader_epoch, from_mirror=True)
            finally:
                if log.end_offset != before:
                    self._on_appended(len(records), active_base)

    def _restart_at(self, offset: int) -> None:
        """The empty log begins at `offset`."""
        self.log.restart_at(offset)

    def _on_appended(self, size_bytes: int, active_base: int) -> None:
        """The log has more; its active segment began at `active_base` before."""
        self._uncommitted.append((self.log.end_offset, size_bytes))
        self._on_ack(None)

    def _advance(self, high_watermark: int, size_bytes: int) -> None:
        """More is committed: `size_bytes`, and the bytes that were uncommitted until now."""
        old_high_watermark = self.high_watermark
        self.high_watermark = high_watermark
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            size_bytes += uncommitted.popleft()[1]
        if self._counted_stable_offset is not None or self.producers.first_unstable_offset < high_watermark:
            self._advance_unstable(size_bytes, old_high_watermark)
        elif self.delayed_operations:
            if self.log.segment_list.active.base_offset != self.watched_base and self.log.segment_list.has_base_in(
                self.watched_base + 1, high_watermark
            ):
                self.watched_base = self.log.segment_list.active.base_offset
                self.complete_all()
                return
            for operation in tuple(self.delayed_operations):
                operation.accumulate(size_bytes)

    def _advance_unstable(self, size_bytes: int, old_high_watermark: int) -> None:
        """As `_advance`, while a transaction is open below the high watermark, or was until now."""
        self.producers.acknowledge(self.high_watermark)
        if not self.delayed_operations:
            self._counted_stable_offset = None
            return
        stable_bytes = self._newly_stable_bytes(old_high_watermark)
        ends_in_new = self.log.segment_list.has_base_in(self.watched_base + 1, self.high_watermark)
        is_stable_in_new = self.log.segment_list.has_base_in(self.watched_base + 1, self.last_stable_offset)
        for operation in tuple(self.delayed_operations):
            if is_stable_in_new or (ends_in_new and not operation.read_committed):
                operation.complete()
            else:
                operation.accumulate(stable_bytes if operation.read_committed else size_bytes)
        if is_stable_in_new:
            self.watched_base = self.log.segment_list.active.base_offset

    def _newly_stable_bytes(self, old_high_watermark: int) -> int:
        """The bytes below the last stable offset that were not counted for delayed operations yet."""
        counted, stable_offset = self._counted_stable_offset, self.last_stable_offset
        self._counted_stable_offset = stable_offset if stable_offset < self.high_watermark else None
        if counted is None:
            counted = old_high_watermark
        if counted >= stable_offset:
            return 0
        try:
            size_bytes = self.log.bytes_between(counted, stable_offset)
        except KafkaError:
            return ENOUGH_BYTES  # the operation meets the error when it reads
        return ENOUGH_BYTES if size_bytes is None else size_bytes

    def when_committed(self, last_offset: int, notify: Notify) -> None:
        """Calls `notify` when all records up to `last_offset` are committed, with None, or with the error if they will
        not be. Invariant: `last_offset` is not committed yet."""
        self._delayed_acks.append((last_offset, notify))

    @property
    def written_offset(self) -> int:
        """The end of the records acknowledged with acks=1: the end of the log, with flush.messages of the fsynced
        part."""
        return self.log.flusher.ack_offset

    def when_written(self, last_offset: int, notify: Notify) -> None:
        """As `when_committed`, when this broker has written them. With one replica that is the same."""
        self.when_committed(last_offset, notify)

    def check_in_sync(self) -> None:
        """Raises KafkaError(NOT_ENOUGH_REPLICAS) if a batch with acks=-1 must be refused. A single replica is enough,
        regardless of min.insync.replicas (KAFKA-15583)."""

    def _on_ack(self, error: KafkaError | None) -> None:
        """The log has acknowledged more, or cannot, or was truncated."""
        end_offset = self.log.end_offset
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[-1][0] > end_offset:
            uncommitted.pop()
        ack_offset = self.log.flusher.ack_offset
        if ack_offset != self.high_watermark:
            # records that were appended under an earlier leader epoch may be committed in parts of unknown sizes
            is_part = ack_offset > self.high_watermark and not (uncommitted and uncommitted[0][0] <= ack_offset)
            self._advance(ack_offset, ENOUGH_BYTES if is_part else 0)
        self._delayed_acks.complete(self.high_watermark, end_offset, error)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        now_ms: int,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Ends the producer's transaction in this partition; without an open one the marker is appended as well.

        Raises KafkaError: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED for a smaller epoch than the last,
        from `transaction_version` 2 on also for the epoch of the open transaction itself; StorageError, after which the
        coordinator may try again.
        """
        self.producers.check_marker_epoch(producer_id, producer_epoch, transaction_version)
        marker = build_marker(producer_id, producer_epoch, coordinator_epoch, now_ms, commit=commit)
        return self.append(memoryview(marker), now_ms, 0, trusted=True)

    def read(self, offset: int, max_bytes: int, min_one: bool, *, read_committed: bool = False) -> FileRegion | None:
        """Committed bytes from `offset` on, None if there are none yet. Raises KafkaError(OFFSET_OUT_OF_RANGE).

        `read_committed`: only bytes below the last stable offset.
        """
        return self.log.read(
            offset, max_bytes, self.last_stable_offset if read_committed else self.high_watermark, min_one
        )

    def countable_bytes(self, offset: int, limit_offset: int, max_bytes: int) -> int:
        """Counts for the min_bytes of a fetch at `offset`, which may read up to `limit_offset`, the
        bytes in between, at most `max_bytes`; ENOUGH_BYTES if the fetch must not wait, because the limit lies before
        its offset, or in a later segment. Raises KafkaError. Source: kafka.server.DelayedFetch.tryComplete."""
        if offset >= limit_offset:
            return 0 if offset == limit_offset else ENOUGH_BYTES
        size_bytes = self.log.bytes_between(offset, limit_offset)
        return ENOUGH_BYTES if size_bytes is None else max(0, min(size_bytes, max_bytes))

    def check_epoch(self, known_by_client: int) -> None:
        """KIP-320: refuse a client that knows an older (74) or a newer (75) leader epoch; -1 skips the check."""
        if known_by_client >= 0 and known_by_client != self.leader_epoch:
            raise KafkaError(check_epoch(known_by_client, self.leader_epoch))

    def lookup_of_timestamp(self, timestamp_ms: int, *, read_committed: bool = False) -> TimeLookup:
        """Looks up the first committed record at or after `timestamp_ms`."""
        return self.log.lookup_of_timestamp(timestamp_ms, self._limit_offset(read_committed))

    def lookup_of_max_timestamp(self, *, read_committed: bool = False) -> TimeLookup:
        """Looks up the first record with the largest timestamp of the log, if it is committed."""
        return self.log.lookup_of_max_timestamp(self._limit_offset(read_committed))

    def _limit_offset(self, read_committed: bool) -> int:
        return self.last_stable_offset if read_committed else self.high_watermark

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """(epoch, end offset) for OffsetForLeaderEpoch; (-1, -1) when `epoch` is not known here."""
        if epoch == self.leader_epoch:
            return EpochEndOffset(epoch, self.log.end_offset)
        return EpochEndOffset(*self.log.epochs.end_offset_for(epoch, self.log.end_offset))

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        """The point from which on the records of a consumer are not those of this log (KIP-320); None if there is none.
        Raises KafkaError(OFFSET_OUT_OF_RANGE)."""
        end = self.end_offset_for_epoch(last_fetched_epoch)
        divergence = divergence_from(end, fetch_offset, last_fetched_epoch, self.log.start_offset)
        if isinstance(divergence, EpochEndOffset):
            return divergence
        if divergence:
            raise KafkaError(divergence)
        return None

    def delete_records_before(self, offset: int) -> int:
        """Raise the start offset to `offset` (-1: the high watermark); returns the new start.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark, POLICY_VIOLATION on a compacted-only topic.
        """
        if "delete" not in self.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of this topic does not contain 'delete'")
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target > self.log.start_offset:
            self.log.delete_records_before(target)
        return self.log.start_offset

    @property
    def low_watermark(self) -> int:
        """No live replica has records below."""
        return self.log.start_offset

    def when_deleted(self, low_watermark: int, notify: Callable[[int], None]) -> None:
        """Calls `notify` with the low watermark when it has reached `low_watermark`, or with -1 when another broker
        leads. Invariant: it has not yet."""
        raise AssertionError("with one replica the low watermark is the start of the log")

    def latest_offset(self) -> int:
        """The high watermark, for ListOffsets. Raises KafkaError(OFFSET_NOT_AVAILABLE) while a new leader does not know
        yet how far records were committed (KIP-207)."""
        return self.high_watermark

    def retire(self, error: KafkaError | None = None) -> None:
        """The partition is deleted, or led elsewhere: wakes delayed operations; waiting producers get `error`."""
        self._on_ack(error or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.wake_all()

    def take_over(self, former: Partition) -> None:
        """Takes over the operations that wait on `former`, the same partition under the same leader epoch."""
        delayed_acks, delayed_writes = former.hand_over()
        self._delayed_acks += delayed_acks
        for last_offset, notify in delayed_writes:
            self.when_written(last_offset, notify)
        former.wake_all()
        self._on_ack(None)

    def hand_over(self) -> tuple[list[tuple[int, Notify]], list[tuple[int, Notify]]]:
        """The producers that wait with acks=-1, and those with acks=1 if they wait for less. The partition is not used
        any more."""
        return self._delayed_acks.withdraw(), []

    def watch(self, operation: DelayedOperation) -> None:
        """Has the operation wait for committed bytes."""
        if not self.delayed_operations:
            self.watched_base = self.log.segment_list.active.base_offset
        operation.wait_in(self.delayed_operations)
        if operation.read_committed:  # counts bytes past the last stable offset of now
            stable_offset = self.last_stable_offset
            self._counted_stable_offset = stable_offset if stable_offset < self.high_watermark else None

    def wake_all(self) -> None:
        """Wake all delayed operations: their records may be truncated, or never arrive. Producers keep waiting."""
        for operation in tuple(self.delayed_operations):
            operation.wake()

    def complete_all(self) -> None:
        """End the waits of consumers: the log has a new segment, or the broker stops."""
        for operation in tuple(self.delayed_operations):
            operation.complete()


class OfflinePartition(Partition):
    """A partition whose data directory has failed, until the next start, or whose log could not be opened, until a
    later try succeeds. It has no log: every use of it raises StorageError with the reason, `failure`.
    Source: kafka.server.HostedPartition.Offline."""

    __slots__ = ("failure",)

    is_offline = True

    def __init__(self, topic: str, index: int, failure: str, leader_epoch: int) -> None:
        self.topic = topic
        self.index = index
        self.failure = failure
        self.leader_epoch = leader_epoch
        self.high_watermark = _NO_OFFSET
        self.delayed_operations = {}

    def __getattr__(self, name: str) -> NoReturn:
        """Called for the fields that are not set, such as `log`."""
        raise StorageError(f"{self.topic}-{self.index} is offline: {self.failure}")

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def check_epoch(self, known_by_client: int) -> None:
        self.log  # noqa: B018  raises

    def retire(self, error: KafkaError | None = None) -> None:
        """Does nothing: no operation waits on an offline partition."""


class ReplicatedPartition(Partition):
    """A partition with several replicas: the common part of leader and follower. The replicas decide what is committed,
    not the log. The high watermark survives a change of the role, and a start: the log keeps it
    (`PartitionLog.replicated_offset`), and the checkpoint file.

    Invariant: start_offset <= high_watermark <= end_offset, and `log.replicated_offset` is the high watermark.
    """

    __slots__ = ()

    def __init__(self, topic: str, index: int, log: PartitionLog, leader_epoch: int) -> None:
        high_watermark = log.replicated_offset = max(log.start_offset, min(log.committed_offset, log.end_offset))
        super().__init__(topic, index, log, leader_epoch, high_watermark)

    def replica_log(self) -> ReplicaLog:
        """The offsets of the log as they are now."""
        log = self.log
        return ReplicaLog(
            log.start_offset,
            log.end_offset,
            log.flusher.ack_offset,
            self.high_watermark,
            log.epochs,
            None if log.gap_offset >= log.end_offset else log.gap_offset,
        )

    def move_high_watermark(self, offset: int) -> None:
        """To `offset`, up, or on a follower down. The bytes count for consumers that wait here."""
        self.log.replicated_offset = offset
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
        self._uncommitted.append((self.log.end_offset, size_bytes))

    def note_truncation(self) -> None:
        """The log was truncated, perhaps below the high watermark."""
        log, uncommitted = self.log, self._uncommitted
        while uncommitted and uncommitted[-1][0] > log.end_offset:
            uncommitted.pop()
        if self.high_watermark > log.end_offset:
            self.move_high_watermark(log.end_offset)
        self.wake_all()
