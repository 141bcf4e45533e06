"""A partition with several replicas on a follower: performs the decisions of `FollowerReplica` on the log.

A fetcher asks `next_request`, sends it to the leader, and brings the answer. Everything happens in the turn of the loop
in which the answer is brought: the log and the high watermark never show one half of it. An instance follows one leader
under one leader epoch.
Source: kafka.server.ReplicaFetcherThread (processPartitionData, truncate), kafka.cluster.Partition (makeFollower).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.replication.partition import ReplicatedPartition
from kafkalite.replication.replica.effects import (
    Append,
    Fail,
    FollowerEffect,
    RaiseLogStart,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset
from kafkalite.replication.replica.follower_replica import (
    FAILED,
    FENCED,
    AskOffset,
    Fetch,
    FetchAnswer,
    FollowerReplica,
    Request,
)

logger = logging.getLogger(__name__)


def _ignore() -> None:
    """Stands in for the fetcher of a partition that is not fetched."""


class FollowerPartition(ReplicatedPartition):
    """`lag` is the number of the leader's committed records that are not here; None until its first answer.
    `on_ready` is called when the disk has what `next_request` waited for (flush.messages). `is_being_added`: by a
    reassignment."""

    __slots__ = ("_last_fault", "is_being_added", "lag", "leader_id", "on_ready", "replica", "topic_id")

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        log: PartitionLog,
        leader_epoch: int,
        leader_id: int,
        *,
        backoff_ms: float,
    ) -> None:
        """`backoff_ms` is replica.fetch.backoff.ms."""
        super().__init__(topic, index, log, leader_epoch)
        self.topic_id = topic_id
        self.leader_id = leader_id
        self.lag: int | None = None
        self.is_being_added = False
        self._last_fault = ""
        self.on_ready: Callable[[], None] = _ignore
        self.replica = FollowerReplica(
            leader_id, leader_epoch, self.replica_log(), truncates_on_fetch=True, backoff_ms=backoff_ms
        )

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def is_failed(self) -> bool:
        return self.replica.phase in (FENCED, FAILED)

    @property
    def retry_at_ms(self) -> float:
        return self.replica.retry_at_ms

    @property
    def throttled_replicas(self) -> tuple[str, ...]:
        return self.log.config.follower_replication_throttled_replicas

    # Requests and answers of the fetcher

    def begin(self) -> None:
        """Before the first request, which waits for the disk to have what is here: a flush may have failed before."""
        self._perform(self.replica.begin(self.replica_log()), 0)
        flusher = self.log.flusher
        if flusher.ack_offset < self.log.end_offset and flusher.failure is None:
            with suppress(StorageError):  # `_on_ack` gets it
                flusher.flush_soon()

    def next_request(self, now_ms: float) -> Request | None:
        return self.replica.next_request(self.replica_log(), now_ms)

    def on_fetch(
        self, sent: Fetch, answer: FetchAnswer, records: memoryview | None, now_ms: float, wall_ms: int
    ) -> int:
        """The answer to a fetch. Returns the bytes that were appended, 0 if they were refused."""
        effects = self.replica.on_fetch(sent, answer, self.replica_log(), now_ms)
        is_done = self._perform(effects, now_ms, records, wall_ms)
        if not answer.error:
            self.lag = max(0, answer.high_watermark - self.log.end_offset)
        return len(records) if records is not None and is_done and any(type(each) is Append for each in effects) else 0

    def on_epoch_end(self, error: ErrorCode, end: EpochEndOffset, now_ms: float) -> None:
        self._perform(self.replica.on_epoch_end(error, end, self.replica_log(), now_ms), now_ms)

    def on_offset(self, sent: AskOffset, error: ErrorCode, offset: int, now_ms: float) -> None:
        self._perform(self.replica.on_offset(sent, error, offset, self.replica_log(), now_ms), now_ms)

    def on_failure(self, error: ErrorCode, now_ms: float) -> None:
        self._perform(self.replica.on_failure(error, now_ms), now_ms)

    # Effects

    def _perform(
        self, effects: Sequence[FollowerEffect], now_ms: float, records: memoryview | None = None, wall_ms: int = 0
    ) -> bool:
        """Whether all of them could be performed. An error of the own disk ends the replica; corrupt records, and those
        for which the disk had no room, are fetched again."""
        try:
            for effect in effects:
                if type(effect) is Append:
                    if records is not None:
                        self._append(records, wall_ms)
                    for follows in self.replica.on_append(effect, self.replica_log()):
                        self._perform_one(follows)
                else:
                    self._perform_one(effect)
        except KafkaError as error:
            if str(error) != self._last_fault:  # a full disk refuses again and again
                self._last_fault = str(error)
                logger.error("%s-%d, a follower of broker %d: %s", self.topic, self.index, self.leader_id, error)
            for effect in self.replica.on_failure(error.code, now_ms):
                self._perform_one(effect)
            return False
        return True

    def _append(self, records: memoryview, wall_ms: int) -> None:
        log = self.log
        end_offset = log.end_offset
        try:
            log.append_as_follower(records, wall_ms, self.leader_epoch)
            self._last_fault = ""
        except StorageError as error:
            if log.failure is not None or log.flusher.ack_offset != log.end_offset:
                raise
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{error}") from error
        finally:
            if log.end_offset != end_offset:
                self.note_append(len(records))
        if log.end_offset == end_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes from the leader hold no whole batch")

    def _perform_one(self, effect: FollowerEffect) -> None:
        log = self.log
        match effect:
            case SetHighWatermark():
                self.move_high_watermark(effect.offset)
            case RaiseLogStart():
                log.delete_records_before(effect.offset)
            case TruncateTo():
                if effect.offset < log.end_offset:
                    logger.info(
                        "%s-%d: cutting offsets %d to %d, which the leader of epoch %d has not",
                        self.topic,
                        self.index,
                        effect.offset,
                        log.end_offset - 1,
                        self.leader_epoch,
                    )
                log.truncate_to(effect.offset)
                self.note_truncation()
            case TruncateFullyAndStartAt():
                logger.warning(
                    "%s-%d: dropping all, offsets %d to %d, and starting at %d, where the leader's log starts",
                    self.topic,
                    self.index,
                    log.start_offset,
                    log.end_offset - 1,
                    effect.offset,
                )
                log.restart_at(effect.offset)
                self.note_truncation()
                self.move_high_watermark(effect.offset)
            case Fail():
                logger.error("%s-%d follows broker %d no more: %s", self.topic, self.index, self.leader_id, effect.why)

    # The log and the role

    def _on_ack(self, error: KafkaError | None) -> None:
        """The disk has more, or refuses."""
        if isinstance(error, StorageError):
            self.on_failure(ErrorCode.KAFKA_STORAGE_ERROR, 0)
        self.on_ready()

    def retire(self, error: KafkaError | None = None) -> None:
        """Followed no more: fetches of consumers that wait here end."""
        self.on_ready = _ignore
        self.wake_all()
