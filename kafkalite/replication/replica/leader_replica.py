"""A partition's replica as its leader: the followers as they fetch, the in-sync replicas, and the high watermark.

A decision takes values and the time (monotonic milliseconds) and returns effects. The way of a record to its commit:

    appended here -> fetched by each member of the maximal ISR, whose next fetch says so -> the high watermark passes it
                  -> producers with acks=-1 are answered, consumers may read it

A follower that lags for replica.lag.time.max.ms leaves the ISR; one that has caught up joins it. Both are written to
ZooKeeper first (`InSyncReplicas`), never merely assumed: cut off from ZooKeeper, a leader continues only with the
members that it has. An instance lives for one leader epoch.
Source: kafka.cluster.Partition; KIP-207, KIP-497, KIP-841, KIP-903, KIP-966, KAFKA-13091, KAFKA-15583.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome, effective_min_isr
from kafkalite.replication.replica.effects import (
    AdvanceHighWatermark,
    AssignEpoch,
    IsrChanged,
    LeaderEffect,
    RaiseLowWatermark,
    ReadIsr,
)
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, ReplicaLog, check_epoch, diverging_epoch
from kafkalite.replication.replica.in_sync_replicas import InSyncReplicas

UNKNOWN_OFFSET = -1
NO_REGISTRATION = -1


class ReplicaState:
    """`log_end_offset` is the offset of its last fetch: the follower has all records below. `registration` is the one
    that its fetches name, and grows. `last_caught_up_ms`: the latest time at which it had all that the leader had.
    Times are monotonic milliseconds."""

    __slots__ = (
        "_last_fetch_leader_end_offset",
        "_last_fetch_ms",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
        "refused_registration",
        "registration",
    )

    def __init__(self, last_caught_up_ms: float) -> None:
        self.registration = NO_REGISTRATION
        self.refused_registration = NO_REGISTRATION  # it is gone for good
        self.forget(last_caught_up_ms)

    def forget(self, last_caught_up_ms: float = float("-inf")) -> None:
        """Nothing is known of its log until it fetches again."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = last_caught_up_ms
        self._last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self._last_fetch_ms = float("-inf")

    def on_fetch(
        self, fetch_offset: int, log_start_offset: int, registration: int, leader_end_offset: int, now_ms: float
    ) -> None:
        """A fetch has arrived. A follower that keeps fetching up to the end that the leader had at its previous fetch
        is caught up as of then, though records keep coming."""
        self.registration = registration
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self._last_fetch_leader_end_offset = max(leader_end_offset, self._last_fetch_leader_end_offset)
        self._last_fetch_ms = now_ms

    def on_idle_fetch(self, now_ms: float) -> None:
        """As `on_fetch` of the same offset as before, which is still the end of the leader's log."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        self._last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        """Whether it has all that the leader has, or had it within replica.lag.time.max.ms."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms


class ReplicaFetch(NamedTuple):
    """A fetch of one partition by a follower. `registration` is its replica_epoch."""

    broker_id: int
    registration: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchDecision(NamedTuple):
    """With NONE and no diverging epoch: read from the fetch offset up to the end of the log."""

    error: ErrorCode
    diverging_epoch: EpochEndOffset | None
    effects: list[LeaderEffect]


class LeaderReplica:
    """`followers` are the other replicas, and members of the ISR that are no replicas any more (KAFKA-9672). `live`:
    the brokers that are registered and not stopping, each with its registration. `epoch_start_offset` is the end of the
    log at the election.

    Invariant: `high_watermark` never goes down; every member of the maximal ISR has the records below it.
    """

    __slots__ = (
        "_lag_time_max_ms",
        "_low_watermark",
        "broker_id",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "in_sync",
        "live",
        "log_end_offset",
        "log_start_offset",
        "min_insync_replicas",
        "replicas",
        "synced_offset",
    )

    def __init__(
        self,
        broker_id: int,
        replicas: Collection[int],
        state: IsrState,
        log: ReplicaLog,
        live: Mapping[int, int],
        now_ms: float,
        *,
        min_insync_replicas: int,
        lag_time_max_ms: float,
    ) -> None:
        self.broker_id = broker_id
        self.replicas = frozenset(replicas)
        self.in_sync = InSyncReplicas(state)
        self.live = live
        self.min_insync_replicas = min_insync_replicas
        self.epoch_start_offset = self.log_end_offset = log.end_offset
        self.synced_offset = log.synced_offset
        self.log_start_offset = self._low_watermark = log.start_offset
        self.high_watermark = log.high_watermark
        self.followers = {
            other: ReplicaState(now_ms if other in state.isr else float("-inf"))
            for other in (self.replicas | state.isr) - {broker_id}
        }
        self._lag_time_max_ms = lag_time_max_ms

    def begin(self, now_ms: float) -> list[LeaderEffect]:
        """Performed before the first request. The epoch gets its entry even if no record follows (KIP-279)."""
        return [AssignEpoch(self.leader_epoch, self.epoch_start_offset), *self._advance(now_ms)]

    @property
    def leader_epoch(self) -> int:
        return self.in_sync.committed.leader_epoch

    @property
    def min_isr(self) -> int:
        """The number of in-sync replicas that acks=-1 needs."""
        return effective_min_isr(self.min_insync_replicas, len(self.replicas))

    # --- followers

    def on_fetch(self, fetch: ReplicaFetch, log: ReplicaLog, now_ms: float) -> FetchDecision:
        """A fetch has arrived (not: is answered after a wait). `log` is this broker's log."""
        error = check_epoch(fetch.leader_epoch, self.leader_epoch)
        follower = self.followers.get(fetch.broker_id)
        if not error and follower is None:  # assigned a moment ago, perhaps
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        if not error and follower is not None and fetch.registration < follower.registration:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # sent before it restarted (KIP-903)
        if error or follower is None:
            return FetchDecision(error, None, [])
        divergence = diverging_epoch(fetch.fetch_offset, fetch.last_fetched_epoch, log)
        if isinstance(divergence, EpochEndOffset):
            return FetchDecision(ErrorCode.NONE, divergence, [])
        if divergence:
            return FetchDecision(divergence, None, [])
        known_start = follower.log_start_offset
        follower.on_fetch(fetch.fetch_offset, fetch.log_start_offset, fetch.registration, self.log_end_offset, now_ms)
        effects: list[LeaderEffect] = []
        if self._may_join(fetch.broker_id, follower):
            effects.append(self.in_sync.expand(fetch.broker_id, follower.registration, self.min_isr))
        if fetch.fetch_offset > self.high_watermark:
            effects += self._advance(now_ms)
        if fetch.log_start_offset != known_start:
            effects += self._raise_low_watermark()
        return FetchDecision(ErrorCode.NONE, None, effects)

    def is_idle(self, broker_id: int, registration: int, fetch_offset: int) -> bool:
        """Whether fetches that repeat the follower's latest one have no effects until something changes here: it has
        everything, and is in sync."""
        follower = self.followers.get(broker_id)
        return (
            follower is not None
            and fetch_offset == self.log_end_offset == follower.log_end_offset
            and registration == follower.registration
            and broker_id in self.in_sync.isr
        )

    def on_idle_fetch(self, broker_id: int, fetched_ms: float) -> None:
        """The latest fetch of an idle follower, which was not reported when it came."""
        self.followers[broker_id].on_idle_fetch(fetched_ms)

    def _may_join(self, broker_id: int, follower: ReplicaState) -> bool:
        """Not before it has what this leader had at its election: committed records may lie above a high watermark that
        a new leader does not know yet."""
        in_sync = self.in_sync
        return (
            broker_id not in in_sync.isr
            and in_sync.pending is None
            and broker_id in self.replicas
            and self._is_eligible(broker_id, follower)
            and follower.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)
        )

    def _is_eligible(self, broker_id: int, follower: ReplicaState) -> bool:
        """Its latest fetch was sent by the broker that is registered now (KIP-841, KIP-903). What this view does not
        know yet, the write to ZooKeeper refuses."""
        registration = follower.registration
        return registration == self.live.get(broker_id) and registration != follower.refused_registration

    def shrink(self, now_ms: float) -> list[LeaderEffect]:
        """Every half replica.lag.time.max.ms: removes followers that lag. One that has all records never lags."""
        effects = self._advance(now_ms)  # a follower outside of the ISR may hold it up no more
        if self.in_sync.pending is None:
            out_of_sync = frozenset(other for other in self.in_sync.isr - {self.broker_id} if self._lags(other, now_ms))
            if out_of_sync:
                effects.append(self.in_sync.shrink(out_of_sync, self.min_isr))
        return effects + self._end_elr()

    def _end_elr(self) -> list[LeaderEffect]:
        """No ELR is needed any more, since min.insync.replicas has been lowered. It would hold up the high
        watermark."""
        if self.in_sync.pending is None and self.in_sync.committed.elr and not self.is_under_min_isr:
            return [self.in_sync.shrink(frozenset(), self.min_isr)]
        return []

    def _lags(self, broker_id: int, now_ms: float) -> bool:
        return not self.followers[broker_id].is_caught_up(self.log_end_offset, now_ms, self._lag_time_max_ms)

    # --- this log

    def on_append(self, end_offset: int, synced_offset: int, now_ms: float) -> list[LeaderEffect]:
        """The log has grown, or has acknowledged more."""
        self.log_end_offset, self.synced_offset = end_offset, synced_offset
        return self._advance(now_ms)

    def on_restart(self, offset: int) -> list[LeaderEffect]:
        """The log was empty, and begins at `offset` now. There are no records below, so they are committed."""
        self.log_start_offset = self.log_end_offset = self.synced_offset = self.epoch_start_offset = offset
        self.high_watermark = offset
        return [AssignEpoch(self.leader_epoch, offset), AdvanceHighWatermark(offset), *self._raise_low_watermark()]

    def on_log_start(self, log_start_offset: int) -> list[LeaderEffect]:
        """Retention or DeleteRecords has deleted the records below."""
        self.log_start_offset = log_start_offset
        return self._raise_low_watermark()

    # --- the cluster

    def on_write(self, sent: WriteIsr, outcome: WriteOutcome, now_ms: float) -> list[LeaderEffect]:
        """The outcome of a `WriteIsr`."""
        before, pending = self.in_sync.committed, self.in_sync.pending
        if outcome is WriteOutcome.REFUSED:
            for broker_id in sent.registrations.keys() & self.followers.keys():
                self.followers[broker_id].refused_registration = sent.registrations[broker_id]
        return self._settled(before, pending, self.in_sync.on_write(sent, outcome), now_ms)

    def on_read(self, read: ReadIsr, state: IsrState, now_ms: float) -> list[LeaderEffect]:
        """The state node as `ReadIsr` found it."""
        before, pending = self.in_sync.committed, self.in_sync.pending
        return self._settled(before, pending, self.in_sync.on_read(read, state), now_ms)

    def on_state(self, state: IsrState, now_ms: float) -> list[LeaderEffect]:
        """The state node has changed: through this leader, whose answer may still be in flight, or through others."""
        before, sent = self.in_sync.committed, self.in_sync.pending
        self.in_sync.on_state(state)
        return self._settled(before, sent, [], now_ms)

    def _settled(
        self, before: IsrState, sent: WriteIsr | None, more: list[WriteIsr | ReadIsr], now_ms: float
    ) -> list[LeaderEffect]:
        """The high watermark may have waited for a member that is none any more (KAFKA-13091)."""
        now = self.in_sync.committed
        effects: list[LeaderEffect] = [*more]
        if now.isr != before.isr:
            effects.append(IsrChanged(now.isr))
            if sent is None or now.isr != sent.isr:  # the leader did not ask for it
                for broker_id in before.isr - now.isr - {self.broker_id}:
                    self.followers[broker_id].forget()
            for broker_id in now.isr - self.followers.keys() - {self.broker_id}:
                self.followers[broker_id] = ReplicaState(now_ms)
        return effects + self._advance(now_ms)

    def on_brokers(self, live: Mapping[int, int], now_ms: float) -> list[LeaderEffect]:
        """Brokers have come or gone: only live ones outside of the ISR are waited for."""
        self.live = live
        return [*self._advance(now_ms), *self._raise_low_watermark()]

    def on_assignment(self, replicas: Collection[int], min_insync_replicas: int, now_ms: float) -> list[LeaderEffect]:
        """The replicas are others, or the topic's min.insync.replicas is."""
        self.replicas = frozenset(replicas)
        self.min_insync_replicas = min_insync_replicas
        kept = (self.replicas | self.in_sync.maximal) - {self.broker_id}
        for broker_id in self.followers.keys() - kept:
            del self.followers[broker_id]
        for broker_id in kept - self.followers.keys():
            self.followers[broker_id] = ReplicaState(float("-inf"))
        return [*self._advance(now_ms), *self._raise_low_watermark(), *self._end_elr()]

    # --- the high watermark

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.in_sync.isr) < self.min_isr

    def _advance(self, now_ms: float) -> list[LeaderEffect]:
        """It stands still while acks=-1 is refused, or replicas outside of the ISR may be elected: those have nothing
        above it (KIP-966)."""
        if self.is_under_min_isr or self.in_sync.committed.elr:
            return []
        maximal, end_offset = self.in_sync.maximal, self.log_end_offset
        high_watermark = self.synced_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < high_watermark and (
                broker_id in maximal
                or (
                    follower.is_caught_up(end_offset, now_ms, self._lag_time_max_ms)
                    and self._is_eligible(broker_id, follower)
                )
            ):
                high_watermark = follower.log_end_offset
        if high_watermark <= self.high_watermark:
            return []
        self.high_watermark = high_watermark
        return [AdvanceHighWatermark(high_watermark)]

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of this and all live replicas; -1 while a live one has not fetched."""
        live = [state.log_start_offset for other, state in self.followers.items() if other in self.live]
        return min([self.log_start_offset, *live])

    def _raise_low_watermark(self) -> list[LeaderEffect]:
        low_watermark = self.low_watermark
        if low_watermark <= self._low_watermark:
            return []
        self._low_watermark = low_watermark
        return [RaiseLowWatermark(low_watermark)]

    # --- clients

    def check_acks_all(self) -> ErrorCode:
        """Before a produce with acks=-1 is appended."""
        return ErrorCode.NOT_ENOUGH_REPLICAS if self.is_under_min_isr else ErrorCode.NONE

    def acks_all_result(self, last_offset: int) -> ErrorCode | None:
        """The answer to a produce with acks=-1 that was appended; None: it waits. After its time it gets
        REQUEST_TIMED_OUT, when another broker leads NOT_LEADER_OR_FOLLOWER; the records stay in both cases."""
        if self.high_watermark <= last_offset:
            return None
        if len(self.in_sync.maximal) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def latest_offset(self) -> int | ErrorCode:
        """The high watermark for ListOffsets. It is not known to be the latest until everything is committed that was
        there at the election (KIP-207)."""
        if self.high_watermark < self.epoch_start_offset:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return self.high_watermark

    def preferred_read_replica(self, rack: str, fetch_offset: int, racks: Mapping[int, str | None]) -> int | None:
        """The replica that a consumer should fetch from; None: this one (KIP-392). `racks` of the live brokers.

        One in the consumer's rack, in the ISR, that has the offset; the leader if it is one, else the most advanced.
        """
        if racks.get(self.broker_id) == rack:
            return None
        near = [
            (state.log_end_offset, -other)
            for other, state in self.followers.items()
            if other in self.in_sync.isr
            and racks.get(other) == rack
            and 0 <= state.log_start_offset <= fetch_offset <= state.log_end_offset
        ]
        return -max(near)[1] if near else None
