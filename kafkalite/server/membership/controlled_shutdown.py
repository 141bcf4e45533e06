"""The hand-over of leadership before a broker stops, so that clients notice nothing but new leaders.

The broker announces that it is about to stop. From then on the controller elects others where it can, and no leader
takes this broker into an ISR; the broker goes on to serve what it still leads. It waits for partitions that another
broker might lead: one with a replica that lives and does not stop, even if that has to catch up before. A broker whose
partitions have no other replica, or none that lives, need not wait.

Kafka's broker sends ControlledShutdown to the controller, and waits also if no other replica lives.
Source: kafka.server.KafkaServer.controlledShutdown, kafka.controller.KafkaController.doControlledShutdown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkalite.metadata.cluster_metadata import Change, RegistrationState

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.common.names import TopicPartition
    from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord

logger = logging.getLogger(__name__)

_HEARD = (Change.PARTITION_STATE, Change.TOPIC_DELETED, Change.BROKERS, Change.REGISTRATION)


async def hand_over(metadata: ClusterMetadata, broker_id: int, clock: Clock, timeout_ms: float) -> None:
    """Returns when no other broker could take over a partition from `broker_id`, or after `timeout_ms`."""
    shared = {key for key, state in _partitions(metadata) if broker_id in state.replicas and len(state.replicas) > 1}
    if not shared or not _is_member(metadata):
        return
    await metadata.begin_to_stop()
    if not _is_stopping(metadata, broker_id):
        return  # it could not be announced, so nobody would act on it
    moved = asyncio.Event()
    unlisten = metadata.listen(lambda change, name: moved.set() if change in _HEARD else None)
    is_late = False

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        moved.set()

    timer = clock.call_later(timeout_ms, give_up)
    led = shared
    try:
        while led := {key for key in led if _is_led_until_another_is(metadata, key, broker_id)}:
            if is_late or not _is_member(metadata):
                logger.warning("%d partitions are still led here, and the broker stops nevertheless", len(led))
                return
            await moved.wait()
            moved.clear()
    finally:
        timer.cancel()
        unlisten()
    logger.info("leadership of the partitions that others have as well is handed over")


def _is_led_until_another_is(metadata: ClusterMetadata, key: TopicPartition, broker_id: int) -> bool:
    topic = metadata.topics.get(key[0])
    state = topic.partitions.get(key[1]) if topic is not None else None
    if state is None or state.leader != broker_id:
        return False
    brokers = metadata.brokers
    return any(one in brokers and not brokers[one].stopping for one in state.replicas if one != broker_id)


def _is_member(metadata: ClusterMetadata) -> bool:
    return metadata.registration_state is RegistrationState.MEMBER


def _is_stopping(metadata: ClusterMetadata, broker_id: int) -> bool:
    broker = metadata.brokers.get(broker_id)
    return broker is not None and broker.stopping


def _partitions(metadata: ClusterMetadata) -> Iterator[tuple[TopicPartition, PartitionRecord]]:
    for topic in metadata.topics.values():
        for index, state in topic.partitions.items():
            yield (topic.name, index), state
