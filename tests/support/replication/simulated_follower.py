"""A simulated follower of one epoch: performs the effects of `FollowerReplica`, one request in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode
from kafkalite.replication.replica.effects import (
    Append,
    FollowerEffect,
    RaiseLogStart,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset
from kafkalite.replication.replica.follower_replica import AskOffset, Fetch, FetchAnswer, FollowerReplica
from tests.support.replication.simulated_log import Record
from tests.support.replication.simulated_zookeeper import View

if TYPE_CHECKING:
    from tests.support.replication.simulated_broker import SimulatedBroker

BACKOFF_MS = 20.0


class SimulatedFollower:
    def __init__(self, broker: SimulatedBroker, view: View) -> None:
        self.broker = broker
        self.log = broker.log
        self.replica = FollowerReplica(
            view.state.leader,
            view.state.leader_epoch,
            broker.log.as_seen(),
            truncates_on_fetch=broker.cluster.truncates_on_fetch,
            backoff_ms=BACKOFF_MS,
        )
        self._is_asking = False

    def begin(self) -> None:
        self._perform_all(self.replica.begin(self.log.as_seen()))
        self.poll()

    def poll(self) -> None:
        """Send the next request, if there is one and none is in flight."""
        broker, replica = self.broker, self.replica
        if broker.role is not self or self._is_asking:
            return
        request = replica.next_request(self.log.as_seen(), broker.now)
        if request is not None:
            self._is_asking = True
            leader, registration = broker.cluster.brokers[replica.leader], broker.registration
            broker.cluster.call(
                broker,
                leader,
                lambda respond: leader.on_request(request, broker.id, registration, respond),
                lambda answer: self._on_answer(request, answer),
            )
        elif replica.retry_at_ms > broker.now:
            broker.later(replica.retry_at_ms - broker.now + 0.1, self.poll)

    def _on_answer(self, request: Any, answer: Any) -> None:
        self._is_asking = False
        if self.broker.role is not self:
            return
        replica, log, now = self.replica, self.log.as_seen(), self.broker.now
        records: list[Record] = []
        if isinstance(answer, ErrorCode):
            effects = replica.on_failure(answer, now)
        elif isinstance(request, Fetch):
            head, records = (answer, []) if isinstance(answer, FetchAnswer) else answer
            effects = replica.on_fetch(request, head, log, now)
        else:
            error = answer.error if isinstance(answer, FetchAnswer) else ErrorCode.NONE
            if isinstance(request, AskOffset):
                effects = replica.on_offset(request, error, -1 if error else answer, log, now)
            else:
                effects = replica.on_epoch_end(error, EpochEndOffset(-1, -1) if error else answer, log, now)
        self._perform_all(effects, records)
        self.poll()

    def _perform_all(self, effects: list[FollowerEffect], records: list[Record] | None = None) -> None:
        for effect in effects:
            self._perform(effect, records or [])

    def _perform(self, effect: FollowerEffect, records: list[Record]) -> None:
        log = self.log
        if isinstance(effect, TruncateTo):
            log.truncate_to(effect.offset)
        elif isinstance(effect, TruncateFullyAndStartAt):
            log.restart_at(effect.offset)
        elif isinstance(effect, Append):
            if records:
                assert all(each.leader_epoch <= self.replica.leader_epoch for each in records), "not from its leader"
                log.append(records)
                self.broker.after_append()
            self._perform_all(self.replica.on_append(effect, log.as_seen()))
        elif isinstance(effect, SetHighWatermark):
            self.broker.set_high_watermark(effect.offset)
        elif isinstance(effect, RaiseLogStart):
            log.raise_start(effect.offset)
        else:
            raise AssertionError(effect)
