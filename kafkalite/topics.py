"""The topics of this broker: what the registry says of them, their settings, and the partitions that serve them.

Reads are plain dictionary look-ups and belong on the hot path. Changes go to the registry first, then to the disk:
after a crash between the two, `load` makes the missing logs, so a topic that was promised exists.
Source: kafka.server.ReplicaManager, kafka.zk.AdminZkClient.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.errors import ErrorCode, KafkaError, StorageError
from kafkalite.names import INTERNAL_TOPICS, collides, format_uuid, random_uuid, topic_name_fault
from kafkalite.partition import OfflinePartition, Partition
from kafkalite.zk.registry import PartitionRecord, Registry, TopicRecord

if TYPE_CHECKING:
    from kafkalite.log.log_manager import LogManager
    from kafkalite.log.partition_log import PartitionLog

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


class Topics:
    """All topics, by name and by id. Invariant: both hold the same topics, and whatever stands in them has its logs
    open and is in the registry."""

    def __init__(self, config: BrokerConfig, registry: Registry, logs: LogManager, broker_id: int) -> None:
        self._config = config
        self._registry = registry
        self._logs = logs
        self._broker_id = broker_id
        self._turn = asyncio.Lock()  # changes come one after another: each sees what the one before it left
        self._new: Topic | None = None  # being made: nobody knows of it yet, but its first logs are there
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}

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

    def id_of(self, topic: str) -> uuid.UUID | None:
        """The id of a topic that the registry knows."""
        record = self._registry.topics.get(topic)
        return record.topic_id if record is not None else None

    def config_for(self, topic: str) -> TopicConfig:
        """The settings of a topic that the registry knows; the broker's defaults for others."""
        record = self._registry.topics.get(topic)
        return TopicConfig.build(record.config if record is not None else {}, self._config)

    async def load(self) -> None:
        """Take over what registry and disk hold at start: the registry decides.

        After an unclean stop a log may be left of a topic that was deleted; it is set aside, also when there is a new
        topic of that name. A log that had to be cut gets a new leader epoch, so that a client that has read more than
        is there now finds out (KIP-320). Epochs that only the log knew are written down: they never go back.
        """
        records = list(self._registry.topics.values())
        self._set_aside_unknown(records)
        self._tell_of_missing(records)
        for record in records:
            topic = self._topic_of(record)
            for index, state in record.partitions.items():
                partition = self._open_or_miss(topic, index, state)
                if not partition.is_offline and partition.log.lost_bytes:
                    partition.leader_epoch += 1
                if partition.leader_epoch > state.leader_epoch:
                    await self._registry.set_leader_epoch(record.name, index, partition.leader_epoch)
            self._add(topic)
        self._logs.settled()

    def _set_aside_unknown(self, records: Iterable[TopicRecord]) -> None:
        """Before any log is made, so that checkpoints are written once and not for every name that is used again."""
        known = {(record.name, index): record.topic_id for record in records for index in record.partitions}
        for key, log in list(self._logs.logs.items()):
            topic_id = known.get(key)
            if topic_id is None:
                logger.warning(
                    "%s-%d is not in the registry, and is set aside: was its topic deleted? If another broker made it "
                    "here, take the rest of its directory's name away again and start with --adopt",
                    *key,
                )
                self._logs.set_aside(*key)
            elif not self._logs.was_clean:
                self._set_aside_if_foreign(log, topic_id)

    def _tell_of_missing(self, records: Iterable[TopicRecord]) -> None:
        if self._logs.offline:  # then they may be there, and stay offline
            return
        missing = [
            f"{one.name}-{index}" for one in records for index in one.partitions if not self._logs.get(one.name, index)
        ]
        if missing:
            logger.warning(
                "%d partitions, such as %s, have no log in any directory of log.dirs, and begin empty. If they were in "
                "a directory that is not named there, or on a disk that is not mounted, stop now and give it back",
                len(missing),
                missing[0],
            )

    def _set_aside_if_foreign(self, log: PartitionLog | None, topic_id: uuid.UUID) -> None:
        """A log of the right name that belongs to another topic is not the one that is wanted."""
        if log is not None and log.topic_id not in (None, topic_id):
            logger.warning("%s-%d is left of a deleted topic of that name, and is set aside", log.topic, log.partition)
            self._logs.set_aside(log.topic, log.partition)

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
        async with self._turn:
            self._check_new(name, partition_count, overrides)
            return None if validate_only else await self._create(name, partition_count, overrides)

    async def ensure(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> Topic:
        """The topic of that name, made if need be; two callers at once make one topic."""
        async with self._turn:
            found = self.by_name.get(name)
            if found is None:
                self._check_new(name, partition_count, overrides)
                found = await self._create(name, partition_count, overrides)
            return found

    async def _create(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> Topic:
        if name in self._registry.topics:  # an earlier try found no room, not even to take it back
            await self._registry.delete_topic(name)
        states = {i: self._first_state() for i in range(partition_count)}
        record = TopicRecord(name=name, topic_id=random_uuid(), partitions=states, config=dict(overrides))
        await self._registry.create_topic(record)
        topic = self._new = self._topic_of(record)
        try:
            await self._open_all(topic, states.items())
        except BaseException:  # no room: nothing of it stays
            self._delete_logs(topic)
            await self._registry.delete_topic(name)
            raise
        finally:
            self._new = None
        self._add(topic)
        logger.info("topic %s created with %d partitions", name, partition_count)
        return topic

    def _check_new(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raise the KafkaError that creating this topic must end in."""
        fault = topic_name_fault(name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name in self.by_name:
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
        TopicConfig.check(overrides, self._config)

    async def delete(self, name_or_id: str | uuid.UUID) -> Topic:
        """Remove a topic: gone for clients when this returns, its files a little later.

        Raises KafkaError: 3 no topic of that name, 100 none of that id.
        """
        async with self._turn:
            topic = self._require_topic(name_or_id) if isinstance(name_or_id, str) else self._require_id(name_or_id)
            await self._registry.delete_topic(topic.name)
            self.by_name.pop(topic.name, None)
            self.by_id.pop(topic.topic_id, None)
            for partition in topic.partitions.values():
                partition.retire()
            self._delete_logs(topic)
            logger.info("topic %s deleted", topic.name)
            return topic

    def _delete_logs(self, topic: Topic) -> None:
        for index in topic.partitions:
            try:
                self._logs.delete(topic.name, index)
            except StorageError as error:  # the topic is gone all the same; a start sets the directory aside
                logger.error("%s", error)
        topic.partitions.clear()

    async def add_partitions(self, name: str, total_count: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `total_count` partitions. Raises KafkaError: 3 unknown, 37 not more than there are."""
        async with self._turn:
            topic = self._require_topic(name)
            states = self._registry.topics[name].partitions
            missing = {i: state for i, state in states.items() if i not in topic.partitions}
            if missing and not validate_only:  # an earlier call was promised them and ran out of disk
                await self._open_all(topic, missing.items())
                if total_count == len(states):
                    return
            self._check_more(name, len(states), total_count)
            if not validate_only:
                added = {i: self._first_state() for i in range(len(states), total_count)}
                await self._registry.add_partitions(name, added)
                await self._open_all(topic, added.items())

    def _check_more(self, name: str, current: int, total_count: int) -> None:
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

    async def change_overrides(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Make a topic's own settings what `change` makes of them; they hold from the next append on.

        Raises KafkaError: 3 unknown, 40 INVALID_CONFIG, and whatever `change` raises.
        """
        async with self._turn:
            topic = self._require_topic(name)
            overrides = change(topic.overrides)
            config = TopicConfig.check(overrides, self._config)
            if validate_only:
                return
            await self._registry.set_topic_config(name, overrides)
            topic.overrides = overrides
            topic.config = config
            for partition in topic.partitions.values():
                partition.log.config = config

    async def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed, and with them the defaults of every topic."""
        async with self._turn:
            self._config = config
            for topic in self:
                topic.config = TopicConfig.build(topic.overrides, config)
                for partition in topic.partitions.values():
                    partition.log.config = topic.config

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

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic

    def _topic_of(self, record: TopicRecord) -> Topic:
        return Topic(record.name, record.topic_id, record.config, TopicConfig.build(record.config, self._config))

    def _open_or_miss(self, topic: Topic, index: int, state: PartitionRecord) -> Partition:
        """At start. A log that is not here was never made, unless it is in a directory that has failed."""
        offline = self._logs.offline
        if offline and self._logs.get(topic.name, index) is None:
            why = str(offline[0].failure)
            topic.partitions[index] = OfflinePartition(topic.name, index, why, state.leader_epoch)
            return topic.partitions[index]
        return self._open(topic, index, state)

    def take_offline(self, keys: Iterable[tuple[str, int]], why: str) -> None:
        """The directory of these logs has failed: whoever asks for them, or waits for them, is told so."""
        new = {self._new.name: self._new} if self._new is not None else {}
        for name, index in keys:
            topic = new.get(name) or self.by_name.get(name)
            partition = topic.partitions.get(index) if topic is not None else None
            if topic is not None and partition is not None:
                topic.partitions[index] = OfflinePartition(name, index, why, partition.leader_epoch)
                partition.retire(StorageError(why))

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
            self._set_aside_if_foreign(self._logs.get(topic.name, index), topic.topic_id)
            self._open(topic, index, state)
            if count % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _first_state(self) -> PartitionRecord:
        return PartitionRecord((self._broker_id,), self._broker_id, 0, (self._broker_id,), 0)
