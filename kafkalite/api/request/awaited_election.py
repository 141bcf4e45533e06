"""Produce requests that reach a broker before it leads their partitions.

Every broker watches the metadata for itself. So a leader that stops in order may name its successor (KIP-951) to
producers before the successor knows of its election, or while it still writes its epoch. A request for a partition that
this broker is about to lead waits for that; a second refusal would let Java's producer pause for 200 ms. Meanwhile the
connection handles no other request, so batches stay in order.
Source: kafkalite's own; fetches of followers wait in the same way (`replica_fetch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.replication.partition import DelayedOperation

if TYPE_CHECKING:
    from kafkalite.api.request.services import Services
    from kafkalite.common.names import TopicPartition
    from kafkalite.metadata.cluster_metadata import BrokerRecord, PartitionRecord
    from kafkalite.protocol.messages.produce import ProduceRequest

WAIT_MS = 100
"""Elections after an announced stop take some 10 ms, on a busy machine some tens. Whoever comes later is refused."""


def may_lead_soon(state: PartitionRecord, broker_id: int, brokers: Mapping[int, BrokerRecord]) -> bool:
    """Whether `broker_id` is elected already, or is in sync with a leader that stops or is gone."""
    if state.leader == broker_id:
        return True
    leader = brokers.get(state.leader)
    return broker_id in state.isr and (leader is None or leader.stopping)


def awaited(services: Services, request: ProduceRequest) -> list[TopicPartition]:
    """The partitions of a request that this broker does not lead, but may soon."""
    if not services.metadata.is_shared:
        return []
    found: list[TopicPartition] = []
    by_name = services.replica_manager.by_name
    for topic_data in request.topic_data:
        topic = by_name.get(topic_data.name)
        if topic is None:
            continue
        for data in topic_data.partition_data:
            if data.index not in topic.partitions and _may_lead_soon(services, topic_data.name, data.index):
                found.append((topic_data.name, data.index))
    return found


def _may_lead_soon(services: Services, topic: str, index: int) -> bool:
    record = services.metadata.topics.get(topic)
    state = record.partitions.get(index) if record is not None else None
    return state is not None and may_lead_soon(state, services.brokers.broker_id, services.metadata.brokers)


async def elections(services: Services, keys: list[TopicPartition]) -> None:
    """Return when this broker leads each of `keys` or will not soon, and after WAIT_MS in any case."""
    loop, clock, manager = services.runtime.loop, services.runtime.clock, services.replica_manager
    deadline_ms = clock.monotonic_ms() + WAIT_MS
    while any(manager.partition(*key) is None and _may_lead_soon(services, *key) for key in keys):
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0:
            return
        woken = loop.create_future()
        operation = DelayedOperation(1, lambda woken=woken: woken.set_result(None), loop.call_soon)  # type: ignore[misc]
        operation.wait_in(services.follower_fetches.ahead)
        timer = clock.call_later(left_ms, operation.wake)
        try:
            await woken
        finally:
            timer.cancel()
            operation.withdraw()
