"""The controller of a broker by itself: it leads every partition, so no election is needed and no replica can move."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.controller import admin_checks
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord
from kafkalite.metadata.partition_admin import Election, PartitionAdmin, Reassignment


class StandaloneController(PartitionAdmin):
    def __init__(self, metadata: ClusterMetadata, broker_id: int) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._live = (broker_id,)

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> Sequence[KafkaError | None]:
        refusals = []
        for at, key in enumerate(partitions, start=1):
            refusals.append(admin_checks.election_refusal(self._partition(key), election, self._live))
            if at % admin_checks.CHECKED_PER_TURN == 0:
                await asyncio.sleep(0)
        return refusals

    async def reassign(
        self, targets: Sequence[tuple[TopicPartition, Sequence[int] | None]]
    ) -> Sequence[KafkaError | None]:
        refusals = []
        for at, (key, target) in enumerate(targets, start=1):
            partition = self._partition(key)
            replicas = None if partition is None else partition.replicas
            refusals.append(admin_checks.reassignment_refusal(replicas, target, self._live, is_reassigned=False))
            if at % admin_checks.CHECKED_PER_TURN == 0:
                await asyncio.sleep(0)
        return refusals

    def reassignments(self) -> Mapping[TopicPartition, Reassignment]:
        return {}

    def _partition(self, key: TopicPartition) -> PartitionRecord | None:
        topic = self._metadata.topics.get(key[0])
        record = topic.partitions.get(key[1]) if topic is not None else None
        if record is None:
            return None
        # the broker id may have changed since the topic was created
        return record._replace(replicas=self._live, leader=self._broker_id, isr=self._live)
