"""A partition with several replicas on its leader: performs the decisions of `LeaderReplica` on the log.

    append -> the followers' fetches that wait -> their next fetches say that they have it -> high watermark -> acks=-1

Everything that may move the high watermark ends in `_perform`: an append, an fsync (flush.messages), a fetch of a
follower, a change of the ISR, of the brokers or of the assignment. An instance leads under one leader epoch.
Source: kafka.cluster.Partition (makeLeader, appendRecordsToLeader, fetchRecords, maybeIncrementLeaderHW).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.region import FileRegion
from kafkalite.log.partition.partition_log import AppendResult, PartitionLog
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.metadata.cluster_metadata import PartitionRecord
from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome, effective_min_isr
from kafkalite.replication.delayed_operations import DelayedAcks, DelayedOperation, Notify
from kafkalite.replication.partition import Partition, ReplicatedPartition
from kafkalite.replication.replica.effects import (
    AdvanceHighWatermark,
    AssignEpoch,
    IsrChanged,
    LeaderEffect,
    RaiseLowWatermark,
    ReadIsr,
)
from kafkalite.replication.replica.leader_replica import FetchDecision, LeaderReplica, ReplicaFetch

logger = logging.getLogger(__name__)

_NO_LOW_WATERMARK = -1  # it is another leader's to know


class FollowerSession(Protocol):
    """A fetch session with partitions that are idle: nothing is fetched until `end_idle` reports news."""

    def end_idle(self, wanted: Any, /) -> None: ...


class IsrStore(Protocol):
    """Carries out changes of the ISR, and reports to `on_write` and `on_read` of the partition if it still leads."""

    def write(self, partition: LeaderPartition, change: WriteIsr) -> None: ...
    def read(self, partition: LeaderPartition, read: ReadIsr) -> None: ...


def _min_isr(record: PartitionRecord, min_insync_replicas: int) -> int:
    """The replicas that a reassignment adds do not count: the others were enough before it."""
    return effective_min_isr(min_insync_replicas, len(set(record.replicas) - set(record.adding)))


class LeaderPartition(ReplicatedPartition):
    """`begin` comes before the first request. `replica_fetches` are the delayed fetches of followers; they end with the
    next append, and when the high watermark moves, so that an idle follower learns of it. `idle_followers` are the
    sessions that need not poll this partition until then, each with its name for it. `adding` are the replicas that a
    reassignment adds."""

    __slots__ = (
        "_clock", "_delayed_deletions", "_delayed_writes", "_is_retired", "_isr_store", "adding", "idle_followers",
        "replica", "replica_fetches",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        record: PartitionRecord,
        broker_id: int,
        live: Mapping[int, int],
        isr_store: IsrStore,
        clock: Clock,
        *,
        min_insync_replicas: int,
        lag_time_max_ms: float,
    ) -> None:
        """`record` is the partition's state with this broker as its leader, `live` the brokers that are registered and
        do not stop, each with its registration."""
        super().__init__(topic, index, log, record.leader_epoch)
        self.replica_fetches: dict[DelayedOperation, None] = {}
        self.idle_followers: dict[FollowerSession, Any] = {}
        self.adding = record.adding
        self._delayed_writes = DelayedAcks()  # of acks=1
        self._delayed_deletions: list[tuple[int, Callable[[int], None]]] = []  # (low watermark, callback)
        self._isr_store = isr_store
        self._clock = clock
        self._is_retired = False
        self.replica = LeaderReplica(
            broker_id,
            record.replicas,
            record.isr_state,
            self.replica_log(),
            live,
            clock.monotonic_ms(),
            min_insync_replicas=_min_isr(record, min_insync_replicas),
            lag_time_max_ms=lag_time_max_ms,
        )
        log.on_new_start = self._on_log_start

    def begin(self) -> None:
        """Raises StorageError if the leader epoch cannot be written; then the partition must not be led."""
        self._perform(self.replica.begin(self._clock.monotonic_ms()))

    # Producers

    def append(
        self,
        records: memoryview,
        now_ms: int,
        produce_version: int,
        trusted: bool = False,
        transactional: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        log = self.log
        end_offset, active_base = log.end_offset, log.segment_list.active.base_offset
        try:
            return log.append(records, self.leader_epoch, now_ms, produce_version, trusted, transactional, guard)
        finally:
            if log.end_offset != end_offset:
                self._on_appended(len(records), active_base)

    def _on_appended(self, size_bytes: int, active_base: int) -> None:
        self.note_append(size_bytes)
        self._end_idle()
        self._on_log()
        for operation in tuple(self.replica_fetches):
            if self.log.segment_list.active.base_offset != active_base:
                operation.complete()
            operation.accumulate(size_bytes)

    def _restart_at(self, offset: int) -> None:
        super()._restart_at(offset)
        self._perform(self.replica.on_restart(offset))

    def check_in_sync(self) -> None:
        if self.replica.check_acks_all():
            in_sync = self.replica.in_sync.isr
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(in_sync)} in-sync replicas, {sorted(in_sync)}, of the "
                f"{self.replica.min_isr} that min.insync.replicas asks for",
            )

    def when_written(self, last_offset: int, notify: Notify) -> None:
        self._delayed_writes.append((last_offset, notify))

    def _answer_acks(self) -> None:
        if self._delayed_acks:
            for last_offset, notify in self._delayed_acks.withdraw():
                code = self.replica.acks_all_result(last_offset)
                if code is None:
                    self._delayed_acks.append((last_offset, notify))
                else:
                    notify(KafkaError(code) if code else None)

    def _on_ack(self, error: KafkaError | None) -> None:
        self._on_log()
        end_offset, written_offset = self.log.end_offset, self.written_offset
        self._delayed_writes.complete(written_offset, end_offset, error)
        self._delayed_acks.complete(0, end_offset, error, min(written_offset, end_offset))

    def _on_log(self) -> None:
        """The log calls this until the partition has another role, which may be never."""
        if not self._is_retired:
            log = self.log
            self._perform(self.replica.on_append(log.end_offset, log.flusher.ack_offset, self._clock.monotonic_ms()))

    # Followers

    def on_replica_fetch(self, fetch: ReplicaFetch) -> FetchDecision:
        """A follower's fetch has arrived. Its effects are performed already."""
        decision = self.replica.on_fetch(fetch, self.replica_log(), self._clock.monotonic_ms())
        if decision.effects:
            self._perform(decision.effects)
        return decision

    def _end_idle(self) -> None:
        """Before anything changes that a follower may have to know, or that makes its fetches count."""
        if self.idle_followers:
            idle_followers, self.idle_followers = self.idle_followers, {}
            for session, wanted in idle_followers.items():
                session.end_idle(wanted)

    def read_as_replica(self, offset: int, max_bytes: int, min_one: bool) -> FileRegion | None:
        """As `read`, up to the end of the log."""
        return self.log.read(offset, max_bytes, self.log.end_offset, min_one)

    def shrink_isr(self) -> None:
        """Take followers that lag out of the ISR; called every half replica.lag.time.max.ms."""
        self._perform(self.replica.shrink(self._clock.monotonic_ms()))

    def preferred_read_replica(self, rack: str, fetch_offset: int, racks: Mapping[int, str | None]) -> int | None:
        return self.replica.preferred_read_replica(rack, fetch_offset, racks)

    # The cluster

    def on_record(self, record: PartitionRecord, min_insync_replicas: int) -> None:
        """The partition's state in the metadata, of this leader epoch, or its min.insync.replicas have changed."""
        self._end_idle()
        self.adding = record.adding
        replica, now_ms = self.replica, self._clock.monotonic_ms()
        effects: list[LeaderEffect] = []
        if record.partition_epoch > replica.in_sync.committed.partition_epoch:
            effects += replica.on_state(record.isr_state, now_ms)
        min_isr = _min_isr(record, min_insync_replicas)
        if replica.replicas != set(record.replicas) or replica.min_insync_replicas != min_isr:
            effects += replica.on_assignment(record.replicas, min_isr, now_ms)
        self._perform(effects)

    def on_brokers(self, live: Mapping[int, int]) -> None:
        self._end_idle()
        self._perform(self.replica.on_brokers(live, self._clock.monotonic_ms()))

    def on_write(self, sent: WriteIsr, outcome: WriteOutcome) -> None:
        if not self._is_retired:
            self._end_idle()
            self._perform(self.replica.on_write(sent, outcome, self._clock.monotonic_ms()))

    def on_read(self, read: ReadIsr, state: IsrState) -> None:
        if not self._is_retired:
            self._end_idle()
            self._perform(self.replica.on_read(read, state, self._clock.monotonic_ms()))

    @property
    def is_retired(self) -> bool:
        """Whether this broker leads under this epoch no more."""
        return self._is_retired

    def _perform(self, effects: Sequence[LeaderEffect]) -> None:
        """A callback of a producer that is answered may append more, so each effect reads the present state."""
        for effect in effects:
            match effect:
                case AdvanceHighWatermark():
                    if effect.offset > self.high_watermark:
                        self._end_idle()
                        self.move_high_watermark(effect.offset)
                        for operation in tuple(self.replica_fetches):
                            operation.wake()
                case WriteIsr():
                    self._isr_store.write(self, effect)
                case ReadIsr():
                    self._isr_store.read(self, effect)
                case IsrChanged():
                    logger.info("%s-%d: in sync are %s", self.topic, self.index, sorted(effect.isr))
                case AssignEpoch():
                    self.log.assign_epoch(effect.leader_epoch)
                case RaiseLowWatermark():
                    self._answer_deletions(effect.offset)
        if effects:
            self._answer_acks()

    # Clients

    def latest_offset(self) -> int:
        latest = self.replica.latest_offset()
        if isinstance(latest, ErrorCode):
            raise KafkaError(latest)
        return latest

    @property
    def low_watermark(self) -> int:
        return self.replica.low_watermark

    def when_deleted(self, low_watermark: int, notify: Callable[[int], None]) -> None:
        self._delayed_deletions.append((low_watermark, notify))

    def _answer_deletions(self, low_watermark: int) -> None:
        deletions, self._delayed_deletions = self._delayed_deletions, []
        for target, notify in deletions:
            if target <= low_watermark:
                notify(low_watermark)
            else:
                self._delayed_deletions.append((target, notify))

    def _on_log_start(self) -> None:
        self.wake_all()
        if not self._is_retired:
            self._perform(self.replica.on_log_start(self.log.start_offset))

    def wake_all(self) -> None:
        super().wake_all()
        self._end_idle()
        for operation in tuple(self.replica_fetches):
            operation.wake()

    def take_over(self, former: Partition) -> None:
        super().take_over(former)
        self._answer_acks()

    def hand_over(self) -> tuple[list[tuple[int, Notify]], list[tuple[int, Notify]]]:
        self._end_idle()
        self._is_retired = True
        self._answer_deletions(self.log.start_offset)
        return super().hand_over()[0], self._delayed_writes.withdraw()

    def retire(self, error: KafkaError | None = None) -> None:
        self._is_retired = True
        error = error or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for _, notify in (*self._delayed_writes.withdraw(), *self._delayed_acks.withdraw()):
            notify(error)
        deletions, self._delayed_deletions = self._delayed_deletions, []
        for _, notify_of_low_watermark in deletions:
            notify_of_low_watermark(_NO_LOW_WATERMARK)
        self.wake_all()
