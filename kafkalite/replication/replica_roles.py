"""The roles of this broker in partitions with several replicas: begins and ends them, and notifies them of the brokers.

The changes of the ISR that leaders decide on are carried out in tasks: writes and reads of state nodes. A write is
reported with its outcome, which may be unknown; a read is repeated until it succeeds. A partition that is not led here
any more gets no report.
Source: kafka.server.ReplicaManager (makeLeaders, makeFollowers, maybeShrinkIsr), kafka.server.metadata.ZkMetadataCache
(the brokers that are alive), kafka.server.ZkAlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.metadata.partition_state import WriteOutcome
from kafkalite.replication.follower_partition import FollowerPartition
from kafkalite.replication.leader_partition import LeaderPartition

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord
    from kafkalite.metadata.partition_state import IsrStates, WriteIsr
    from kafkalite.replication.replica.effects import ReadIsr
    from kafkalite.replication.replica_fetcher_manager import ReplicaFetcherManager

logger = logging.getLogger(__name__)

_RETRY_MS = 100  # while ZooKeeper cannot be reached


class IsrWriter:
    """The `IsrStore` of a broker's partitions. `close` ends its tasks. `shrinks`, `expands` and `failures` count the
    writes that were carried out, or refused."""

    def __init__(self, states: IsrStates, clock: Clock) -> None:
        self._states = states
        self._clock = clock
        self.shrinks = self.expands = self.failures = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, partition: LeaderPartition, change: WriteIsr) -> None:
        self._start(self._write(partition, change))

    def read(self, partition: LeaderPartition, read: ReadIsr) -> None:
        self._start(self._read(partition, read))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, partition: LeaderPartition, change: WriteIsr) -> None:
        if partition.is_retired:  # since this task was made; the next topic of that name may be there already
            return
        size_before = len(partition.replica.in_sync.isr)
        outcome = await self._states.write_isr(partition.topic, partition.index, change)
        logger.debug("%s-%d: %s: %s", partition.topic, partition.index, change, outcome.value)
        if outcome is WriteOutcome.WRITTEN:
            self.shrinks += len(change.isr) < size_before
            self.expands += len(change.isr) > size_before
        elif outcome is not WriteOutcome.UNKNOWN:
            self.failures += 1
        partition.on_write(change, outcome)

    async def _read(self, partition: LeaderPartition, read: ReadIsr) -> None:
        while not partition.is_retired:
            try:
                state = await self._states.read_isr(partition.topic, partition.index)
            except KafkaError as error:
                logger.debug("%s-%d: its state cannot be read: %s", partition.topic, partition.index, error)
                await self._pause()
                continue
            if state is not None:  # else its topic is deleted
                partition.on_read(read, state)
            return

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(_RETRY_MS, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()


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
        self._update_live()

    def _update_live(self) -> bool:
        before = self._live
        self._live = {
            broker_id: broker.registration
            for broker_id, broker in self._metadata.brokers.items()
            if not broker.stopping
        }
        return self._live != before

    def seal(self, log: PartitionLog) -> None:
        """Begins a new segment, since a replica that is added on the same disk takes over what is sealed."""
        try:
            log.roll(self._clock.wall_ms())
        except StorageError as error:
            logger.warning("%s-%d: %s", log.topic, log.partition, error)

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
        if self._update_live():
            for partition in list(self.leaders.values()):
                partition.on_brokers(self._live)

    def shrink_isrs(self) -> None:
        """Take the followers that lag out of all ISRs."""
        for partition in list(self.leaders.values()):
            partition.shrink_isr()

    async def close(self) -> None:
        await self.fetchers.close()
        await self.isr_writer.close()
