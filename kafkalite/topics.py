"""The topics of this broker: what the registry says of them, their settings, and the partitions that serve them.

Reads are plain dictionary look-ups and belong on the hot path. Changes go to the registry first, then to the disk:
after a crash between the two, `load` makes the missing logs, so a topic that was promised exists.
Source: kafka.server.ReplicaManager, kafka.zk.AdminZkClient.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.errors import ErrorCode, KafkaError, StorageError
from kafkalite.names import INTERNAL_TOPICS, collides, random_uuid, topic_name_fault
from kafkalite.partition import Partition
from kafkalite.zk.registry import PartitionRecord, Registry, TopicRecord

if TYPE_CHECKING:
    from kafkalite.log.log_manager import LogManager

logger = logging.getLogger(__name__)

PARTITION_COUNT_MAX = 100_000  # of one topic: each is a directory with open files
_LOGS_PER_TURN = 32  # made before the loop gets to serve others


class Topic:
    """One topic. `overrides` are the topic's own settings as text; `config` is what follows from them."""

    __slots__ = ("config", "internal", "name", "overrides", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID, overrides: Mapping[str, str], config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.overrides = dict(overrides)
        self.config = config
        self.internal = name in INTERNAL_TOPICS
        self.partitions: dict[int, Partition] = {}


def records_of(stored: Mapping[str, tuple[uuid.UUID | None, int]], broker_id: int) -> list[TopicRecord]:
    """Records for the topics of a directory that another broker filled. Settings of their own are not in there, so the
    internal ones get theirs and the others the broker's defaults."""
    return [
        TopicRecord(
            name=name,
            topic_id=topic_id or random_uuid(),
            partitions={i: PartitionRecord((broker_id,), broker_id, 0, (broker_id,), 0) for i in range(count)},
            config={"cleanup.policy": "compact"} if name in INTERNAL_TOPICS else {},
        )
        for name, (topic_id, count) in stored.items()
    ]


class Topics:
    """All topics, by name. Invariant: whatever stands in `by_name` has its logs open and is in the registry."""

    def __init__(self, config: BrokerConfig, registry: Registry, logs: LogManager, broker_id: int) -> None:
        self._config = config
        self._registry = registry
        self._logs = logs
        self._broker_id = broker_id
        self._pending: dict[str, asyncio.Future[None]] = {}
        self.by_name: dict[str, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.by_name.get(topic)
        return found.partitions.get(index) if found is not None else None

    def require(self, topic: str, index: int) -> Partition:
        """The partition, or KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
        found = self.by_name.get(topic)
        partition = found.partitions.get(index) if found is not None else None
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def config_for(self, topic: str) -> TopicConfig:
        """The settings of a topic that the registry knows; the broker's defaults for others."""
        record = self._registry.topics.get(topic)
        return TopicConfig.build(record.config if record is not None else {}, self._config)

    async def load(self) -> None:
        """Take over what registry and disk hold at start: the registry decides.

        After an unclean stop a log may be left of a topic that was deleted; it is removed, also when there is a new
        topic of that name. A log that had to be cut gets a new leader epoch, so that a client that has read more than
        is there now finds out (KIP-320).
        """
        for record in list(self._registry.topics.values()):
            topic = self._topic_of(record)
            for index, state in record.partitions.items():
                if not self._logs.was_clean:
                    self._drop_leftover(topic, index)
                partition = self._open(topic, index, state)
                if partition.log.lost_bytes:
                    partition.leader_epoch += 1
                    await self._registry.set_leader_epoch(record.name, index, partition.leader_epoch)
            self.by_name[record.name] = topic
        for name, index in list(self._logs.logs):
            if self.partition(name, index) is None:
                logger.warning("%s-%d is not in the registry: its topic was deleted, and it goes too", name, index)
                self._logs.delete(name, index)

    def _drop_leftover(self, topic: Topic, index: int) -> None:
        log = self._logs.get(topic.name, index)
        if log is not None and log.topic_id not in (None, topic.topic_id):
            logger.warning("%s-%d is what is left of a deleted topic of that name, and goes", topic.name, index)
            self._logs.delete(topic.name, index)

    async def create(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Topic | None:
        """Make a topic whose every partition lives here; ready when this returns.

        Raises KafkaError: 17 bad name, 36 exists, 37 bad count, 40 bad setting. None if `validate_only`.
        """
        self.check_new(name, partition_count, overrides)
        if validate_only:
            return None
        ready = asyncio.get_running_loop().create_future()
        self._pending[name] = ready
        try:
            replicas = [self._broker_id]
            record = TopicRecord(
                name=name,
                topic_id=random_uuid(),
                partitions={i: self._first_state(replicas) for i in range(partition_count)},
                config=dict(overrides),
            )
            await self._registry.create_topic(record)
            topic = self._topic_of(record)
            try:
                await self._open_all(topic, record.partitions.items())
            except StorageError:
                await self._take_back(topic)
                raise
            self.by_name[name] = topic
            logger.info("topic %s created with %d partitions", name, partition_count)
            return topic
        finally:
            del self._pending[name]
            ready.set_result(None)

    async def ensure(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> Topic:
        """The topic of that name, made if need be; two callers at once make one topic."""
        while (pending := self._pending.get(name)) is not None:
            await asyncio.shield(pending)
        found = self.by_name.get(name)
        if found is None:
            found = await self.create(name, partition_count, overrides)
            assert found is not None
        return found

    def check_new(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raise the KafkaError that creating this topic would end in."""
        fault = topic_name_fault(name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name in self.by_name or name in self._pending:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if partition_count <= 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if partition_count > PARTITION_COUNT_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Number of partitions must not be larger than {PARTITION_COUNT_MAX}."
            )
        if "." in name or "_" in name:
            for other in self.by_name:
                if collides(name, other):
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                    )
        TopicConfig.build(overrides, self._config)

    async def delete(self, name: str) -> None:
        """Remove a topic: gone for clients when this returns, its files a little later."""
        topic = self.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._registry.delete_topic(name)
        self.by_name.pop(name, None)
        for partition in topic.partitions.values():
            partition.retire()
            self._logs.delete(name, partition.index)
        topic.partitions.clear()
        logger.info("topic %s deleted", name)

    async def add_partitions(self, name: str, total_count: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `total_count` partitions. Raises KafkaError: 3 unknown, 37 not more than there are."""
        topic = self.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        current = len(topic.partitions)
        if total_count == current:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partitions.")
        if total_count < current:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {name} currently has {current} partition(s); {total_count} would not be an increase.",
            )
        if total_count > PARTITION_COUNT_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Number of partitions must not be larger than {PARTITION_COUNT_MAX}."
            )
        if validate_only:
            return
        added = {i: self._first_state([self._broker_id]) for i in range(current, total_count)}
        await self._registry.add_partitions(name, added)
        await self._open_all(topic, added.items())

    async def set_overrides(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace a topic's own settings; they hold from the next append on. Raises KafkaError(INVALID_CONFIG)."""
        topic = self.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        config = TopicConfig.build(overrides, self._config)
        if validate_only:
            return
        await self._registry.set_topic_config(name, dict(overrides))
        topic.overrides = dict(overrides)
        topic.config = config
        for partition in topic.partitions.values():
            partition.log.config = config

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed, and with them the defaults of every topic."""
        self._config = config
        for topic in self:
            topic.config = TopicConfig.build(topic.overrides, config)
            for partition in topic.partitions.values():
                partition.log.config = topic.config

    async def _take_back(self, topic: Topic) -> None:
        """The disk has no room for a topic that the registry has already: nothing of it stays."""
        await self._registry.delete_topic(topic.name)
        for index in topic.partitions:
            self._logs.delete(topic.name, index)

    def _topic_of(self, record: TopicRecord) -> Topic:
        return Topic(record.name, record.topic_id, record.config, TopicConfig.build(record.config, self._config))

    def _open(self, topic: Topic, index: int, state: PartitionRecord) -> Partition:
        log = self._logs.get(topic.name, index)
        if log is None:
            log = self._logs.create(topic.name, index, topic.topic_id, topic.config)
        # an epoch never goes backwards, whichever of registry and log remembers more
        epoch = max(state.leader_epoch, log.latest_epoch, 0)
        partition = topic.partitions[index] = Partition(topic.name, index, log, epoch)
        return partition

    async def _open_all(self, topic: Topic, states: Iterable[tuple[int, PartitionRecord]]) -> None:
        for count, (index, state) in enumerate(states, start=1):
            self._open(topic, index, state)
            if count % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _first_state(self, replicas: list[int]) -> PartitionRecord:
        return PartitionRecord(tuple(replicas), self._broker_id, 0, tuple(replicas), 0)
