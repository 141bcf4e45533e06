"""The share coordinators of the cluster, for this broker's leaders and its group coordinator.

A request goes to the leader of the partition of `__share_group_state` that its key hashes to: this broker itself, or
another over the wire. A coordinator that is loading, or has moved, is asked again. Requests of one key are made one
after another: a write may not overtake an earlier one.
Source: org.apache.kafka.server.share.persister.{DefaultStatePersister, PersisterStateManager} (4.3).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import SHARE_STATE_TOPIC
from kafkalite.coordinator.share.share_state import ShareSummary
from kafkalite.coordinator.share_coordinator import text_of
from kafkalite.protocol.messages import share_state as wire
from kafkalite.replication.share.durable_state import SharePartitionKey, StateRange, StateWrite, StoredState

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.coordinator.internal_topic import InternalTopic
    from kafkalite.coordinator.share_coordinator import ShareCoordinator
    from kafkalite.protocol.codec.schema import Message
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.server.membership.inter_broker_requests import InterBrokerRequests

_RETRIES = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    )
)
_RETRIES_MAX = 10
_BACKOFF_MS = 100
_BACKOFF_MAX_MS = 1_000
Done = Callable[[Any], None]


class _Request(NamedTuple):
    """One request, for this broker's own coordinator and for another's, which gets the message of `build`. `result_of`
    reads a row of the answer."""

    ask_here: Callable[[ShareCoordinator, Done], None]
    build: Callable[[], Message]
    version: int
    result_of: Callable[[Any], Any]
    done: Done


class ShareStateClient:
    """Both sides ask through it: `ShareStateStore` for leaders, `ShareStates` for groups. `requests` sends to other
    brokers; None for a broker alone."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        topic: InternalTopic,
        replica_manager: ReplicaManager,
        broker_id: int,
        clock: Clock,
        requests: InterBrokerRequests | None,
    ) -> None:
        self._coordinator = coordinator
        self._topic = topic
        self._replica_manager = replica_manager
        self._broker_id = broker_id
        self._clock = clock
        self._requests = requests
        self._waiting: dict[SharePartitionKey, deque[_Request]] = {}
        self._creations: set[asyncio.Future[None]] = set()

    # --- requests of leaders

    def read(
        self, key: SharePartitionKey, leader_epoch: int, done: Callable[[StoredState | KafkaError], None], /
    ) -> None:
        def build() -> Message:
            row = wire.ReadSharePartition(partition=key.partition, leader_epoch=leader_epoch)
            topics = [wire.ReadShareTopic(topic_id=key.topic_id, partitions=[row])]
            return wire.ReadShareGroupStateRequest(group_id=key.group_id, topics=topics)

        self._enqueue(key, _Request(lambda its, on: its.read(key, leader_epoch, on), build, 0, _stored_state, done))

    def write(self, key: SharePartitionKey, write: StateWrite, done: Callable[[KafkaError | None], None], /) -> None:
        def build() -> Message:
            row = wire.WriteSharePartition(
                partition=key.partition,
                state_epoch=write.state_epoch,
                leader_epoch=write.leader_epoch,
                start_offset=write.start_offset,
                delivery_complete_count=write.delivery_complete_count,
                state_batches=[
                    wire.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                    for first, last, state, count in write.ranges
                ],
            )
            topics = [wire.WriteShareTopic(topic_id=key.topic_id, partitions=[row])]
            return wire.WriteShareGroupStateRequest(group_id=key.group_id, topics=topics)

        self._enqueue(key, _Request(lambda its, on: its.write(key, write, on), build, 1, _nothing, done))

    # --- requests of groups

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Callable[[KafkaError | None], None], /
    ) -> None:
        def ask_here(its: ShareCoordinator, on_done: Done) -> None:
            its.initialize(key, state_epoch, start_offset, on_done)

        def build() -> Message:
            row = wire.InitializeSharePartition(
                partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
            )
            topics = [wire.InitializeShareTopic(topic_id=key.topic_id, partitions=[row])]
            return wire.InitializeShareGroupStateRequest(group_id=key.group_id, topics=topics)

        self._enqueue(key, _Request(ask_here, build, 0, _nothing, done))

    def delete(self, key: SharePartitionKey, done: Callable[[KafkaError | None], None], /) -> None:
        def build() -> Message:
            row = wire.DeleteSharePartition(partition=key.partition)
            topics = [wire.DeleteShareTopic(topic_id=key.topic_id, partitions=[row])]
            return wire.DeleteShareGroupStateRequest(group_id=key.group_id, topics=topics)

        self._enqueue(key, _Request(lambda its, on: its.delete(key, on), build, 0, _nothing, done))

    def summary(self, key: SharePartitionKey, done: Callable[[ShareSummary | KafkaError], None], /) -> None:
        def build() -> Message:
            row = wire.ReadSharePartition(partition=key.partition)
            topics = [wire.ReadShareTopic(topic_id=key.topic_id, partitions=[row])]
            return wire.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=topics)

        self._enqueue(key, _Request(lambda its, on: its.summary(key, on), build, 1, _summary, done))

    def close(self) -> None:
        for creation in self._creations:
            creation.cancel()

    # --- one after another

    def _enqueue(self, key: SharePartitionKey, request: _Request) -> None:
        waiting = self._waiting.setdefault(key, deque())
        waiting.append(request)
        if len(waiting) == 1:
            self._ask(key, request, 0)

    def _ask(self, key: SharePartitionKey, request: _Request, attempt: int) -> None:
        def on_result(result: Any) -> None:
            if isinstance(result, KafkaError) and result.code in _RETRIES and attempt < _RETRIES_MAX:
                delay_ms = min(_BACKOFF_MS << attempt, _BACKOFF_MAX_MS)
                self._clock.call_later(delay_ms, lambda: self._ask(key, request, attempt + 1))
                return
            self._finish(key, request, result)

        if SHARE_STATE_TOPIC not in self._replica_manager.by_name:
            self._create(lambda: self._send(key, request, on_result))
        else:
            self._send(key, request, on_result)

    def _finish(self, key: SharePartitionKey, request: _Request, result: Any) -> None:
        waiting = self._waiting[key]
        try:
            request.done(result)  # may ask again: that waits, since this request is still the first
        finally:
            waiting.popleft()
            if waiting:
                self._ask(key, waiting[0], 0)
            else:
                del self._waiting[key]

    def _create(self, then: Callable[[], None]) -> None:
        """Create the topic with the first request."""
        creation = asyncio.ensure_future(self._topic.ensure())
        self._creations.add(creation)

        def on_done(done: asyncio.Future[None]) -> None:
            self._creations.discard(creation)
            if not done.cancelled():
                done.exception()  # the request meets it
                then()

        creation.add_done_callback(on_done)

    def _send(self, key: SharePartitionKey, request: _Request, on_result: Done) -> None:
        leader = self._replica_manager.leader_of(SHARE_STATE_TOPIC, self._topic.partition_for(text_of(key)))
        if leader == self._broker_id:
            request.ask_here(self._coordinator, on_result)
        elif leader is None or leader < 0 or self._requests is None:
            on_result(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:

            def on_response(response: Any) -> None:
                if response is None:
                    on_result(KafkaError(ErrorCode.NETWORK_EXCEPTION))
                    return
                row = response.results[0].partitions[0]
                error = ErrorCode.of(row.error_code)
                on_result(KafkaError(error, row.error_message) if error else request.result_of(row))

            self._requests.send(leader, request.build(), request.version, on_response)


def _nothing(row: object) -> None:
    """The answer says only that it was done."""


def _stored_state(row: wire.SharePartitionState) -> StoredState:
    ranges = [
        StateRange(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in row.state_batches
    ]
    return StoredState(row.state_epoch, row.start_offset, ranges)


def _summary(row: wire.SharePartitionSummary) -> ShareSummary:
    return ShareSummary(row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count)
