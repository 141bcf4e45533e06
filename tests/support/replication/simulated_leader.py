"""A simulated leader of one epoch: performs the effects of `LeaderReplica`, serves producers and followers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode
from kafkalite.metadata.partition_state import WriteIsr, WriteOutcome
from kafkalite.replication.replica.effects import AdvanceHighWatermark, AssignEpoch, LeaderEffect, ReadIsr
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, check_epoch
from kafkalite.replication.replica.follower_replica import LATEST, AskEpochEnd, Fetch, FetchAnswer
from kafkalite.replication.replica.leader_replica import LeaderReplica, ReplicaFetch
from tests.support.replication.simulated_process import Respond
from tests.support.replication.simulated_zookeeper import Lost, View

if TYPE_CHECKING:
    from tests.support.replication.simulated_broker import SimulatedBroker

MAX_WAIT_MS = 60.0
LAG_TIME_MAX_MS = 200.0
FETCH_RECORDS = 4


class SimulatedLeader:
    def __init__(self, broker: SimulatedBroker, view: View) -> None:
        cluster = broker.cluster
        self.broker = broker
        self.log = broker.log
        self.replica = LeaderReplica(
            broker.id,
            cluster.replicas,
            view.state,
            broker.log.as_seen(),
            view.live,
            broker.now,
            min_insync_replicas=cluster.min_insync_replicas,
            lag_time_max_ms=LAG_TIME_MAX_MS,
        )
        self._waiting_acks: list[tuple[int, Respond]] = []
        self._parked: list[tuple[int, Respond]] = []  # (fetch offset, answer)

    def begin(self) -> None:
        self._perform_all(self.replica.begin(self.broker.now))

    def on_view(self, view: View) -> None:
        now = self.broker.now
        self._perform_all(self.replica.on_state(view.state, now) + self.replica.on_brokers(view.live, now))

    def shrink(self) -> None:
        self._perform_all(self.replica.shrink(self.broker.now))

    def retire(self) -> None:
        """Nothing that waits may be answered from the log any more: it may get another leader's records."""
        waiting, self._waiting_acks = self._waiting_acks, []
        for _, respond in waiting:
            respond(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        parked, self._parked = self._parked, []
        for _, respond in parked:
            respond(FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # --- effects

    def _perform_all(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            self._perform(effect)
        self._answer_acks()

    def _perform(self, effect: LeaderEffect) -> None:
        broker = self.broker
        if isinstance(effect, AssignEpoch):
            self.log.epochs.assign(effect.leader_epoch, effect.start_offset)
        elif isinstance(effect, AdvanceHighWatermark):
            broker.set_high_watermark(effect.offset)
            self._wake_fetches()
        elif isinstance(effect, WriteIsr):
            zookeeper, sent = broker.zookeeper, effect
            state = self.replica.in_sync.committed._replace(
                isr=sent.isr, elr=sent.elr, partition_epoch=sent.expected_epoch
            )
            zookeeper.request(
                broker,
                lambda: zookeeper.write_state(state, sent.registrations),
                lambda result: self._on_write(sent, result),
                broker.holds_isr_writes_ms,
            )
        elif isinstance(effect, ReadIsr):
            self._read(effect)

    def _on_write(self, sent: WriteIsr, result: Any) -> None:
        if self.broker.role is self:
            outcome = WriteOutcome.UNKNOWN if isinstance(result, Lost) else result
            self._perform_all(self.replica.on_write(sent, outcome, self.broker.now))

    def _read(self, read: ReadIsr) -> None:
        zookeeper = self.broker.zookeeper
        if self.broker.role is self:
            zookeeper.request(self.broker, lambda: zookeeper.state, lambda result: self._on_read(read, result))

    def _on_read(self, read: ReadIsr, result: Any) -> None:
        if isinstance(result, Lost):
            self.broker.later(10.0, self._read, read)
        elif self.broker.role is self:
            self._perform_all(self.replica.on_read(read, result, self.broker.now))

    # --- producers

    def produce(self, values: list[int], acks_all: bool, respond: Respond) -> None:
        error = self.replica.check_acks_all() if acks_all else ErrorCode.NONE
        if error:
            respond(error)
            return
        last_offset = self.log.append_values(self.replica.leader_epoch, values)
        self.broker.after_append()
        if acks_all:
            self._waiting_acks.append((last_offset, respond))
        else:
            respond(last_offset)
        self.on_log()
        self._wake_fetches()

    def on_log(self) -> None:
        """The log has grown, or has synced more."""
        seen = self.log.as_seen()
        self._perform_all(self.replica.on_append(seen.end_offset, seen.synced_offset, self.broker.now))

    def _answer_acks(self) -> None:
        waiting, self._waiting_acks = self._waiting_acks, []
        for last_offset, respond in waiting:
            result = self.replica.acks_all_result(last_offset)
            if result is None:
                self._waiting_acks.append((last_offset, respond))
            else:
                respond(result if result else last_offset)

    def delete_records(self) -> None:
        log = self.log
        if log.high_watermark > log.start_offset:
            log.raise_start(self.broker.simulator.rng.randint(log.start_offset, log.high_watermark))
            self._perform_all(self.replica.on_log_start(log.start_offset))

    # --- followers

    def serve(self, request: Any, sender: int, registration: int, respond: Respond) -> None:
        if isinstance(request, Fetch):
            self._serve_fetch(request, sender, registration, respond)
        elif error := check_epoch(request.leader_epoch, self.replica.leader_epoch):
            respond(FetchAnswer(error))
        elif isinstance(request, AskEpochEnd):
            respond(EpochEndOffset(*self.log.epochs.end_offset_for(request.epoch, self.log.end_offset)))
        else:
            respond(self.log.end_offset if request.timestamp == LATEST else self.log.start_offset)

    def _serve_fetch(self, request: Fetch, sender: int, registration: int, respond: Respond) -> None:
        epoch = request.last_fetched_epoch if self.broker.cluster.truncates_on_fetch else -1
        fetch = ReplicaFetch(
            sender, registration, request.leader_epoch, request.fetch_offset, epoch, request.log_start_offset
        )
        before = self.replica.high_watermark
        decision = self.replica.on_fetch(fetch, self.log.as_seen(), self.broker.now)
        self._perform_all(decision.effects)
        if decision.error or decision.diverging_epoch is not None:
            respond(FetchAnswer(decision.error, diverging_epoch=decision.diverging_epoch))
        elif request.fetch_offset < self.log.end_offset or self.replica.high_watermark > before:
            self._answer_fetch(request.fetch_offset, respond)
        else:
            waiting = request.fetch_offset, respond
            self._parked.append(waiting)
            self.broker.later(MAX_WAIT_MS, self._end_wait, waiting)

    def _wake_fetches(self) -> None:
        parked, self._parked = self._parked, []
        for offset, respond in parked:
            self._answer_fetch(offset, respond)

    def _end_wait(self, waiting: tuple[int, Respond]) -> None:
        if waiting in self._parked:
            self._parked.remove(waiting)
            self._answer_fetch(*waiting)

    def _answer_fetch(self, offset: int, respond: Respond) -> None:
        log = self.log
        records = log.read(offset, FETCH_RECORDS) if offset >= log.start_offset else []
        first_offset = records[0].batch_offset if records else None
        answer = FetchAnswer(ErrorCode.NONE, log.high_watermark, log.start_offset, None, first_offset)
        respond((answer, records))
