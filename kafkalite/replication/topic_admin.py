"""Changes of topics requested by clients: creation, deletion, more partitions, settings.

A change goes to the metadata first, then to the disk. After a crash between the two, the next start creates the missing
logs, so an acknowledged topic exists. In a cluster any broker accepts the request; the controller elects the leaders,
and this broker answers when the partitions that it leads itself are open.
Source: kafka.server.ZkAdminManager, kafka.zk.AdminZkClient.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.names import format_uuid, random_uuid
from kafkalite.metadata import new_topics
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord, TopicRecord
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

Assignment = Mapping[int, Sequence[int]]
"""The replicas of partitions, the preferred leader first."""

Charge = Callable[[int], object]
"""Takes so many partitions from the quota of the client that creates or deletes them. Raises KafkaError."""


def free(partition_count: int) -> None:
    """A change counts against no quota."""


class TopicAdmin:
    """Changes the topics of `metadata`, and waits until `applier` has them in `replicas`. `default_factor` is
    default.replication.factor."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        applier: MetadataApplier,
        default_factor: Callable[[], int] = lambda: 1,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._applier = applier
        self._default_factor = default_factor
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def default_replication_factor(self) -> int:
        return self._default_factor()

    def possible_factor(self, wanted: int, *, is_explicit: bool) -> int:
        """The replicas of a new internal topic, which is created when it is needed first. An operator's setting is
        enforced in a cluster, as in Kafka; otherwise there are no more replicas than live brokers."""
        if is_explicit and self._metadata.is_shared:
            return wanted
        return min(wanted, max(len(self._metadata.brokers), 1))

    async def catch_up(self, names: Iterable[str] = ()) -> bool:
        """Take over what other brokers have changed until now, as far as that can be done soon: a client that has its
        answer from one may ask another. Of `names`, those that the cluster has are known here then. Returns whether
        topics can be expected to be created now."""
        can_create = await self._metadata.catch_up_with_others()
        for name in [each for each in names if each not in self._replicas.by_name]:
            if name in self._metadata.topics:
                with contextlib.suppress(KafkaError):  # whatever is wrong is logged, and told to those who use it
                    await self._applier.reconcile(name)
        return can_create

    def check_name(self, name: str) -> None:
        """Raises the KafkaError for which no topic with this name can be created: 17, 36."""
        new_topics.check_new_name(name, self._taken_names())

    async def create(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str],
        *,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
        validate_only: bool = False,
        charge: Charge = free,
    ) -> Topic | None:
        """Create a topic; the partitions that this broker leads are open when this returns.

        `replication_factor` None is default.replication.factor; an `assignment` says both count and replicas. `charge`
        gets the number of partitions before anything is changed, and may refuse.
        Raises KafkaError: 17 bad name, 36 exists, 37 bad count, 38 too few brokers, 40 bad setting. None if
        `validate_only`.
        """
        async with self._turn_of(name):
            self._check_new(name, partition_count, overrides)
            assignment = assignment or self._placed(partition_count, replication_factor)
            if validate_only:
                return None
            charge(len(assignment))
            return await self._create(name, assignment, overrides)

    async def ensure(
        self, name: str, partition_count: int, overrides: Mapping[str, str], replication_factor: int | None = None
    ) -> Topic:
        """The topic of that name, created if need be; two callers at once create one topic. Raises KafkaError, as
        `create`."""
        async with self._turn_of(name):
            found = self._replicas.by_name.get(name)
            if found is not None:
                return found
            if name not in self._taken_names():
                self._check_new(name, partition_count, overrides)
                try:
                    return await self._create(name, self._placed(partition_count, replication_factor), overrides)
                except KafkaError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another broker was faster
                        raise
            return await self._reconciled(name)

    async def _create(self, name: str, assignment: Assignment, overrides: Mapping[str, str]) -> Topic:
        if not self._metadata.is_shared and name in self._metadata.topics:
            await self._metadata.writes.delete_topic(name)  # an earlier try found no room, not even to take it back
        record = TopicRecord(name, random_uuid(), _first_states(assignment), dict(overrides))
        await self._metadata.writes.create_topic(record)
        try:
            topic = await self._reconciled(name)
        except BaseException as fault:  # no room: nothing of it stays
            if self._metadata.is_shared and not isinstance(fault, StorageError):
                raise  # other brokers have made their part of it, and this one will
            self._replicas.remove(name)
            await self._metadata.writes.delete_topic(name)
            raise
        logger.info("topic %s created with %d partitions", name, len(assignment))
        return topic

    async def _reconciled(self, name: str) -> Topic:
        await self._applier.reconcile(name)
        topic = self._replicas.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"The topic '{name}' is being made or deleted elsewhere.")
        return topic

    def _taken_names(self) -> Collection[str]:
        """A broker without others may have a topic in its metadata that it could not make: that name is free."""
        return self._metadata.topics if self._metadata.is_shared else self._replicas.by_name

    def _check_new(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raise the KafkaError that creating this topic must end in."""
        new_topics.check_new_topic(name, partition_count, self._taken_names())
        self._replicas.configs.check(overrides)

    async def delete(self, name_or_id: str | uuid.UUID, charge: Charge = free) -> Topic:
        """Delete a topic: gone for clients when this returns, its files a little later.

        Raises KafkaError: 3 no topic of that name, 100 none of that id.
        """
        name = name_or_id if isinstance(name_or_id, str) else self._require(name_or_id).name
        async with self._turn_of(name):
            topic = self._require(name_or_id)
            charge(len(topic.states))
            await self._metadata.writes.delete_topic(name)
            self._applier.release_leadership(name)
            logger.info("topic %s deleted", name)
            return topic

    async def add_partitions(
        self,
        name: str,
        total_count: int,
        *,
        replicas: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        charge: Charge = free,
    ) -> None:
        """Grow a topic to `total_count` partitions; `replicas` of each new one if they are not to be chosen. Raises
        KafkaError: 3 unknown, 37 not more than there are."""
        async with self._turn_of(name):
            self._require(name)
            states = self._metadata.topics[name].partitions
            if not validate_only and self._applier.has_elections(name):  # an earlier call ran out of disk space
                await self._applier.reconcile(name)
                if total_count == len(states):
                    return
            new_topics.check_more_partitions(name, len(states), total_count)
            if replicas is not None:
                added: Assignment = dict(enumerate(replicas, start=len(states)))
            else:
                existing = {index: state.replicas for index, state in states.items()}
                added = new_topics.assign_added_partitions(self._racks(), existing, total_count - len(states))
            if not validate_only:
                charge(len(added))
                await self._metadata.writes.add_partitions(name, _first_states(added))
                await self._applier.reconcile(name)

    async def change_overrides(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace a topic's own settings by the result of `change`; they hold from the next append on.

        Raises KafkaError: 3 unknown, 40 INVALID_CONFIG, and all that `change` raises.
        """
        async with self._turn_of(name):
            overrides = change(self._require(name).overrides)
            self._replicas.configs.check(overrides)
            if not validate_only:
                await self._metadata.writes.set_topic_config(name, overrides)
                self._applier.release_leadership(name)

    def _turn_of(self, name: str) -> asyncio.Lock:
        """Changes of a topic come one after another, and so do changes of names that could be taken for each other."""
        return self._turns.setdefault(name.replace(".", "_"), asyncio.Lock())

    def _require(self, name_or_id: str | uuid.UUID) -> Topic:
        if isinstance(name_or_id, str):
            topic = self._replicas.by_name.get(name_or_id)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name_or_id}' does not exist."
        else:
            topic = self._replicas.by_id.get(name_or_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic of the id {format_uuid(name_or_id)}."
        if topic is None:
            raise KafkaError(*missing)
        return topic

    def _placed(self, partition_count: int, replication_factor: int | None) -> Assignment:
        factor = self._default_factor() if replication_factor is None else replication_factor
        return new_topics.assign_replicas(self._racks(), partition_count, factor)

    def _racks(self) -> new_topics.Racks:
        return {broker.broker_id: broker.rack for broker in self._metadata.brokers.values()}


def _first_states(assignment: Assignment) -> dict[int, PartitionRecord]:
    return {
        index: PartitionRecord(tuple(replicas), replicas[0], 0, tuple(replicas), 0)
        for index, replicas in assignment.items()
    }
