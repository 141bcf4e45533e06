"""Writes the markers of ended transactions to all their partitions, until each has one.

A partition that is led here gets its marker by a function call (`MarkerAppender`), those of another broker by a request
(`SendMarkers`). A failed one is tried again after a pause that doubles, with the leaders of that moment. A partition
that was deleted needs no marker. A job ends when its partitions are done, or when its coordinator has been replaced.
Source: kafka.coordinator.transaction.{TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler},
KafkaApis.handleWriteTxnMarkersRequest (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from kafkalite.common.clock import Clock, TimerGroup
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import GROUP_METADATA_TOPIC, NO_LEADER, TopicPartition
from kafkalite.coordinator.offset_manager import OffsetManager
from kafkalite.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

RETRY_MS = 50
RETRY_MAX_MS = 1_600

# Not tried again: a partition whose message format has no transactions cannot have records of this one.
_NEEDS_NO_MARKER = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction. `coordinator_epoch`: the leader epoch of the coordinator's partition. From
    `transaction_version` 2 on the marker's epoch is above that of its transaction (KIP-1228)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0


Errors = Mapping[TopicPartition, ErrorCode]
SendMarkers = Callable[[int, TransactionMarker, Collection[TopicPartition], Callable[[Errors], None]], None]
"""Sends WriteTxnMarkers to a broker, and calls back once with an error, or NONE, for each partition. Partitions without
an answer are tried again."""


def no_other_brokers(
    broker_id: int, marker: TransactionMarker, partitions: Collection[TopicPartition], done: Callable[[Errors], None]
) -> None:
    """The `SendMarkers` of a broker that cannot reach any other."""
    done({})


class MarkerAppender:
    """Appends markers to partitions that are led here, for the coordinator of this broker and for others."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, offsets: OffsetManager) -> None:
        self._replicas = replicas
        self._clock = clock
        self._offsets = offsets

    def append(self, partition: TopicPartition, marker: TransactionMarker, done: Callable[[ErrorCode], None]) -> None:
        """Append one marker as with acks=-1; `done` gets the error when it is committed, often before this returns.

        A marker in `__consumer_offsets` also ends the transaction of the offsets committed there.
        """

        def on_commit(error: KafkaError | None) -> None:
            if error is None and partition[0] == GROUP_METADATA_TOPIC:
                self._offsets.on_transaction_end(partition[1], marker.producer_id, is_committed=marker.commit)
            done(ErrorCode.NONE if error is None else error.code)

        found = self._replicas.partition(*partition)
        if found is None:
            done(self._replicas.missing_partition_error(*partition))
            return
        try:
            found.check_in_sync()
            result = found.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.commit,
                self._clock.wall_ms(),
                marker.transaction_version,
            )
        except KafkaError as error:
            on_commit(error)
            return
        if result.last_offset < found.high_watermark:
            on_commit(None)
        else:
            found.when_committed(result.last_offset, on_commit)

    def has_open_transaction(self, partition: TopicPartition, producer_id: int) -> bool:
        found = self._replicas.partition(*partition)
        producers = found.producers.active() if found is not None else ()
        return any(each.producer_id == producer_id and each.txn_first_offset >= 0 for each in producers)


class MarkerJob:
    """The markers of one transaction. `on_written` is called once for each partition.

    `is_current` says whether this broker is still its coordinator.
    """

    __slots__ = ("failed", "is_current", "marker", "missing", "on_written", "retry_ms")

    def __init__(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        on_written: Callable[[TopicPartition], None],
        is_current: Callable[[], bool],
    ) -> None:
        self.marker = marker
        self.missing = set(partitions)
        self.failed: set[TopicPartition] = set()  # to be tried again by the timer that runs
        self.on_written = on_written
        self.is_current = is_current
        self.retry_ms = RETRY_MS


class MarkerWriter:
    """`leader_of` gives the broker that leads a partition: NO_LEADER if none does, None if it was deleted."""

    def __init__(
        self,
        broker_id: int,
        leader_of: Callable[[str, int], int | None],
        appender: MarkerAppender,
        send: SendMarkers,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._leader_of = leader_of
        self._appender = appender
        self._send = send
        self._timers = TimerGroup(clock)
        self._is_closed = False

    def write(self, job: MarkerJob) -> None:
        """Begin to write markers to the partitions of `job`."""
        self._write(job, sorted(job.missing))

    def close(self) -> None:
        """Ends all timers. The next start writes the missing markers."""
        self._is_closed = True
        self._timers.cancel()

    def _write(self, job: MarkerJob, partitions: Collection[TopicPartition]) -> None:
        elsewhere: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._leader_of(*partition)
            if leader is None:
                logger.info("%s-%d was deleted, and needs no marker", *partition)
                self._on_result(job, partition, ErrorCode.NONE)
            elif leader == self._broker_id:
                self._appender.append(partition, job.marker, partial(self._on_local_result, job, partition))
            elif leader == NO_LEADER:
                self._on_result(job, partition, ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                elsewhere.setdefault(leader, []).append(partition)
        for leader, theirs in elsewhere.items():
            self._send(leader, job.marker, theirs, partial(self._on_results, job, theirs))

    def _on_results(self, job: MarkerJob, partitions: Collection[TopicPartition], errors: Errors) -> None:
        for partition in partitions:
            self._on_result(job, partition, errors.get(partition, ErrorCode.NETWORK_EXCEPTION))

    def _on_local_result(self, job: MarkerJob, partition: TopicPartition, error: ErrorCode) -> None:
        """A later coordinator that wrote its marker, but nothing in `__transaction_state`, has left no other trace."""
        if error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            producer_id = job.marker.producer_id
            error = error if self._appender.has_open_transaction(partition, producer_id) else ErrorCode.NONE
        self._on_result(job, partition, error)

    def _on_result(self, job: MarkerJob, partition: TopicPartition, error: ErrorCode) -> None:
        if self._is_closed or partition not in job.missing or not job.is_current():
            return
        if error == ErrorCode.INVALID_PRODUCER_EPOCH:  # no retry can succeed
            producer = job.marker[:2]
            logger.error("%s-%d has a newer epoch than the marker of producer %d, epoch %d", *partition, *producer)
        elif error not in _NEEDS_NO_MARKER:
            self._try_again(job, partition, error)
            return
        job.missing.discard(partition)
        job.on_written(partition)

    def _try_again(self, job: MarkerJob, partition: TopicPartition, error: ErrorCode) -> None:
        if not job.failed:
            level = logging.INFO if job.retry_ms < RETRY_MAX_MS else logging.WARNING
            producer_id = job.marker.producer_id
            logger.log(level, "%s-%d has no marker of producer %d yet: %s", *partition, producer_id, error.name)
            self._timers.call_later(job.retry_ms, partial(self._retry, job))
            job.retry_ms = min(2 * job.retry_ms, RETRY_MAX_MS)
        job.failed.add(partition)

    def _retry(self, job: MarkerJob) -> None:
        failed, job.failed = sorted(job.failed), set()
        if job.is_current():
            self._write(job, failed)
