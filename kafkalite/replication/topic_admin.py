"""Topics, and the changes of them that are asked for here: made, deleted, grown, configured.

A change goes to the registry first, then to the disk: after a crash between the two, `load` makes the missing logs, so
a topic that was promised exists. In a cluster any broker may be asked; who leads the partitions is for the controller,
and this broker is done when it has what it leads of them itself.
Source: kafka.server.ZkAdminManager, kafka.zk.AdminZkClient.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.names import format_uuid, random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord, TopicRecord
from kafkalite.metadata.topic_validation import check_more_partitions, check_new_topic
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.replica_manager import Topic as Topic

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager

logger = logging.getLogger(__name__)

Assignment = Mapping[int, Sequence[int]]
"""The replicas of partitions, the preferred leader first."""

Assign = Callable[[int, Mapping[int, PartitionRecord]], Assignment]
"""Says where so many more partitions go, besides those that a topic has. Raises KafkaError."""


class TopicAdmin(ReplicaManager):
    """All topics. `assign` places new partitions; without it all of them come here."""

    def __init__(
        self,
        config: BrokerConfig,
        registry: ClusterMetadata,
        logs: LogManager,
        broker_id: int,
        assign: Assign | None = None,
    ) -> None:
        super().__init__(config, registry, logs, broker_id)
        self._assign = assign or self._all_here
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str],
        *,
        assignment: Assignment | None = None,
        validate_only: bool = False,
    ) -> Topic | None:
        """Make a topic; what this broker leads of it is ready when this returns.

        Raises KafkaError: 17 bad name, 36 exists, 37 bad count, 38 too few brokers, 40 bad setting. None if
        `validate_only`.
        """
        async with self._turn_of(name):
            self._check_new(name, partition_count, overrides)
            assignment = assignment or self._assign(partition_count, {})
            return None if validate_only else await self._create(name, assignment, overrides)

    async def ensure(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> Topic:
        """The topic of that name, made if need be; two callers at once make one topic."""
        async with self._turn_of(name):
            found = self.by_name.get(name)
            if found is not None:
                return found
            if not self._is_made_elsewhere(name):
                self._check_new(name, partition_count, overrides)
                try:
                    return await self._create(name, self._assign(partition_count, {}), overrides)
                except KafkaError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another broker was faster
                        raise
            return await self._settled(name)

    async def _create(self, name: str, assignment: Assignment, overrides: Mapping[str, str]) -> Topic:
        if not self._registry.is_shared and name in self._registry.topics:
            await self._registry.delete_topic(name)  # an earlier try found no room, not even to take it back
        record = TopicRecord(name, random_uuid(), _first_states(assignment), dict(overrides))
        await self._registry.create_topic(record)
        try:
            topic = await self._settled(name)
        except BaseException as fault:  # no room: nothing of it stays
            if self._registry.is_shared and not isinstance(fault, StorageError):
                raise  # others have made their part of it, and this broker comes to its own by and by
            if (failed := self._new.pop(name, None) or self.by_name.get(name)) is not None:
                self._forget(failed)
            await self._registry.delete_topic(name)
            raise
        logger.info("topic %s created with %d partitions", name, len(assignment))
        return topic

    async def _settled(self, name: str) -> Topic:
        await self.settle(name)
        topic = self.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"The topic '{name}' is being made or deleted elsewhere.")
        return topic

    def _is_made_elsewhere(self, name: str) -> bool:
        return self._registry.is_shared and name in self._registry.topics

    def _check_new(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raise the KafkaError that creating this topic must end in."""
        check_new_topic(name, partition_count, self._registry.topics if self._registry.is_shared else self.by_name)
        TopicConfig.check(overrides, self._config)

    async def delete(self, name_or_id: str | uuid.UUID) -> Topic:
        """Remove a topic: gone for clients when this returns, its files a little later.

        Raises KafkaError: 3 no topic of that name, 100 none of that id.
        """
        name = name_or_id if isinstance(name_or_id, str) else self._require_id(name_or_id).name
        async with self._turn_of(name):
            topic = self._require_topic(name) if isinstance(name_or_id, str) else self._require_id(name_or_id)
            await self._registry.delete_topic(topic.name)
            self._forget(topic)
            logger.info("topic %s deleted", topic.name)
            return topic

    async def add_partitions(
        self,
        name: str,
        total_count: int,
        *,
        replicas: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to `total_count` partitions; `replicas` of each new one if they are not to be chosen. Raises
        KafkaError: 3 unknown, 37 not more than there are."""
        async with self._turn_of(name):
            topic = self._require_topic(name)
            states = self._registry.topics[name].partitions
            missing = [i for i, state in states.items() if i not in topic.partitions and self._is_led_here(state)]
            if missing and not validate_only:  # an earlier call was promised them and ran out of disk
                await self.settle(name)
                if total_count == len(states):
                    return
            check_more_partitions(name, len(states), total_count)
            if replicas is not None:
                added: Assignment = dict(enumerate(replicas, start=len(states)))
            else:
                added = self._assign(total_count - len(states), states)
            if not validate_only:
                await self._registry.add_partitions(name, _first_states(added))
                await self.settle(name)

    async def change_overrides(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Make a topic's own settings what `change` makes of them; they hold from the next append on.

        Raises KafkaError: 3 unknown, 40 INVALID_CONFIG, and whatever `change` raises.
        """
        async with self._turn_of(name):
            topic = self._require_topic(name)
            overrides = change(topic.overrides)
            TopicConfig.check(overrides, self._config)
            if not validate_only:
                await self._registry.set_topic_config(name, overrides)
                self._configure(topic, overrides)

    def _turn_of(self, name: str) -> asyncio.Lock:
        """Changes of a topic come one after another, and so do those of names that could be taken for one another."""
        return self._turns.setdefault(name.replace(".", "_"), asyncio.Lock())

    def _require_topic(self, name: str) -> Topic:
        topic = self.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic

    def _require_id(self, topic_id: uuid.UUID) -> Topic:
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic of the id {format_uuid(topic_id)}.")
        return topic

    def _all_here(self, partition_count: int, states: Mapping[int, PartitionRecord]) -> Assignment:
        return dict.fromkeys(range(len(states), len(states) + partition_count), (self._broker_id,))


def _first_states(assignment: Assignment) -> dict[int, PartitionRecord]:
    return {
        index: PartitionRecord(tuple(replicas), replicas[0], 0, tuple(replicas), 0)
        for index, replicas in assignment.items()
    }
