"""Produce requests that reach a broker before it leads their partitions.

Every broker watches the metadata for itself. So a leader in controlled shutdown may name its successor (KIP-951) to
producers before the successor knows of its election, or while it still writes its epoch. A request for a partition that
this broker is about to lead waits for that; a second refusal would let Java's producer pause for 200 ms. Meanwhile the
connection handles no other request, so batches stay in order. Requests wait at most once per state of a partition. If
the first request timed out but a later one waited and succeeded, an idempotent producer's sequence would have a gap.
Source: kafkalite's own; fetches of followers wait in the same way (`replica_fetch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.api.request.request_context import Runtime
from kafkalite.common.names import TopicPartition
from kafkalite.metadata.cluster_metadata import BrokerRecord, ClusterMetadata, PartitionRecord, RegistrationState
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.replica_manager import ReplicaManager

WAIT_MS = 100
"""Elections after an announced stop take some 10 ms, on a busy machine some tens. A later request is refused."""

_BEGUN_MAX = 100_000


def may_lead_soon(state: PartitionRecord, broker_id: int, brokers: Mapping[int, BrokerRecord]) -> bool:
    """Whether the registered `broker_id` is elected already, is the first replica of a new partition, which others may
    know to be led, or is in sync with a leader that is shutting down."""
    if state.leader == broker_id:
        return True
    if state.is_new:
        return state.replicas[:1] == (broker_id,)
    leader = brokers.get(state.leader)
    return broker_id in state.isr and leader is not None and leader.stopping


class AwaitedElections:
    """The waits of produces for elections of this broker. `woken` has the operations to wake at each election."""

    __slots__ = ("_begun", "_broker_id", "_metadata", "_replica_manager", "_runtime", "_woken")

    def __init__(
        self,
        runtime: Runtime,
        metadata: ClusterMetadata,
        replica_manager: ReplicaManager,
        broker_id: int,
        woken: dict[DelayedOperation, None],
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._broker_id = broker_id
        self._woken = woken
        # by partition: the state in which requests wait for it, and their deadline
        self._begun: dict[TopicPartition, tuple[PartitionRecord, int]] = {}

    def expected(self, request: ProduceRequest, refused: frozenset[str]) -> list[TopicPartition]:
        """The partitions of a request that this broker does not lead but may lead soon, and whose wait is not over."""
        if not self._metadata.is_shared:
            return []
        by_name = self._replica_manager.by_name
        found: list[TopicPartition] = []
        for topic_data in request.topic_data:
            topic = by_name.get(topic_data.name)
            if topic_data.name not in refused:
                led = topic.partitions if topic is not None else {}  # it is not there before its first election
                indexes = (data.index for data in topic_data.partition_data if data.index not in led)
                found += self._led_soon((topic_data.name, index) for index in indexes)
        return found if found and self._deadline_ms(found) > self._runtime.clock.monotonic_ms() else []

    def _led_soon(self, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        metadata = self._metadata
        if metadata.registration_state is not RegistrationState.MEMBER:  # it leads nothing, or learns of no election
            return []
        found: list[TopicPartition] = []
        for name, index in keys:
            record = metadata.topics.get(name)
            state = record.partitions.get(index) if record is not None else None
            if state is not None and may_lead_soon(state, self._broker_id, metadata.brokers):
                found.append((name, index))
        return found

    def _deadline_ms(self, keys: list[TopicPartition]) -> int:
        """The first end of these partitions' waits. A wait begins with the first request that comes in their present
        state."""
        topics, begun = self._metadata.topics, self._begun
        now_ms = self._runtime.clock.monotonic_ms()
        deadlines_ms: list[int] = []
        for key in keys:
            state = topics[key[0]].partitions[key[1]]
            known = begun.get(key)
            if known is None or known[0] != state:
                if len(begun) >= _BEGUN_MAX:  # of deleted topics, most of them
                    begun.clear()
                known = begun[key] = (state, now_ms + WAIT_MS)
            deadlines_ms.append(known[1])
        return min(deadlines_ms)

    async def wait(self, keys: list[TopicPartition]) -> None:
        """Return when this broker leads each of `keys` or will not soon, and at the end of their wait in any case."""
        loop, clock = self._runtime.loop, self._runtime.clock
        is_led = self._is_led
        while open_keys := self._led_soon(key for key in keys if not is_led(key)):
            left_ms = self._deadline_ms(open_keys) - clock.monotonic_ms()
            if left_ms <= 0:
                return
            woken = loop.create_future()
            operation = DelayedOperation(1, lambda woken=woken: woken.set_result(None), loop.call_soon)  # type: ignore[misc]
            operation.wait_in(self._woken)
            timer = clock.call_later(left_ms, operation.wake)
            try:
                await woken
            finally:
                timer.cancel()
                operation.withdraw()
        for key in keys:
            if is_led(key):
                self._begun.pop(key, None)

    def _is_led(self, key: TopicPartition) -> bool:
        return self._replica_manager.partition(*key) is not None
