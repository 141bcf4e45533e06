"""The controller of a broker by itself: it leads every partition, so no election is needed and no replica can move."""

from __future__ import annotations

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

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> Sequence[KafkaError | None]:
        live = (self._broker_id,)
        return [admin_checks.election_refusal(self._partition(key), election, live) for key in partitions]

    async def reassign(
        self, targets: Sequence[tuple[TopicPartition, Sequence[int] | None]]
    ) -> Sequence[KafkaError | None]:
        live = (self._broker_id,)
        found = [(self._partition(key), target) for key, target in targets]
        return [
            admin_checks.reassignment_refusal(
                None if partition is None else partition.replicas, target, live, is_reassigned=False
            )
            for partition, target in found
        ]

    def reassignments(self) -> Mapping[TopicPartition, Reassignment]:
        return {}

    def _partition(self, key: TopicPartition) -> PartitionRecord | None:
        topic = self._metadata.topics.get(key[0])
        record = topic.partitions.get(key[1]) if topic is not None else None
        if record is None:
            return None
        alone = (self._broker_id,)  # the broker id may have changed since the topic was created
        return record._replace(replicas=alone, leader=self._broker_id, isr=alone)
