"""The roles of this broker in partitions with several replicas: begins and ends them, and tells them of the brokers.

Source: kafka.server.ReplicaManager (makeLeaders, makeFollowers, maybeShrinkIsr), kafka.server.metadata.ZkMetadataCache
(the brokers that are alive).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.replication.follower_partition import FollowerPartition
from kafkalite.replication.isr_writer import IsrWriter
from kafkalite.replication.leader_partition import LeaderPartition

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord
    from kafkalite.metadata.partition_state import IsrStates
    from kafkalite.replication.fetcher.replica_fetcher_manager import ReplicaFetcherManager


class ReplicaRoles:
    """`leaders` and `followers` are the replicated partitions that have a role here."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        isr_states: IsrStates,
        broker_id: int,
        clock: Clock,
        settings: Callable[[], BrokerConfig],
        fetchers: ReplicaFetcherManager,
    ) -> None:
        self.leaders: dict[TopicPartition, LeaderPartition] = {}
        self.followers: dict[TopicPartition, FollowerPartition] = {}
        self._metadata = metadata
        self._broker_id = broker_id
        self._clock = clock
        self._settings = settings
        self.fetchers = fetchers
        self.isr_writer = IsrWriter(isr_states, clock)
        self._live: dict[int, int] = {}
        self._look_at_brokers()

    def _look_at_brokers(self) -> bool:
        before = self._live
        self._live = {
            broker_id: broker.registration
            for broker_id, broker in self._metadata.brokers.items()
            if not broker.stopping
        }
        return self._live != before

    def lead(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        record: PartitionRecord,
        min_insync_replicas: int,
    ) -> LeaderPartition:
        """Become the leader. Raises StorageError if the leader epoch cannot be written."""
        partition = LeaderPartition(
            topic,
            index,
            log,
            record,
            self._broker_id,
            self._live,
            self.isr_writer,
            self._clock,
            min_insync_replicas=min_insync_replicas,
            lag_time_max_ms=self._settings().replica_lag_time_max_ms,
        )
        partition.begin()
        self.leaders[topic, index] = partition
        return partition

    def end_leading(self, partition: LeaderPartition) -> None:
        self.leaders.pop((partition.topic, partition.index), None)

    def follow(
        self, topic: str, topic_id: uuid.UUID, index: int, log: PartitionLog, leader_epoch: int, leader: int
    ) -> FollowerPartition:
        backoff_ms = self._settings().replica_fetch_backoff_ms
        partition = FollowerPartition(topic, index, topic_id, log, leader_epoch, leader, backoff_ms=backoff_ms)
        if log.failure is not None:
            self.fail(partition)
        self.followers[topic, index] = partition
        self.fetchers.add(partition)
        return partition

    def fail(self, partition: FollowerPartition) -> None:
        """Its log takes no more records. A fetch would say that it has everything, and take it into the ISR."""
        partition.on_failure(ErrorCode.KAFKA_STORAGE_ERROR, self._clock.monotonic_ms())

    def end_following(self, partition: FollowerPartition) -> None:
        """When this returns, nothing more is appended in its name."""
        self.followers.pop((partition.topic, partition.index), None)
        self.fetchers.remove(partition)
        partition.retire()

    def on_brokers(self) -> None:
        """Brokers have come or gone, or begin to stop."""
        self.fetchers.on_brokers()
        if self._look_at_brokers():
            for partition in list(self.leaders.values()):
                partition.on_brokers(self._live)

    def shrink_isrs(self) -> None:
        """Take the followers that lag out of all ISRs."""
        for partition in list(self.leaders.values()):
            partition.shrink_isr()

    async def close(self) -> None:
        await self.fetchers.close()
        await self.isr_writer.close()
