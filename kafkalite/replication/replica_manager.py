"""The topics of the cluster on this broker: all topics by name and id, and the open partitions that this broker leads.

Look-ups are plain dictionary accesses and belong on the hot path. The metadata decides the leaders; `MetadataApplier`
applies it with the methods of the lower half. The log of a partition that another broker leads stays open: retention
and flushing continue, and it is available when this broker leads the partition again.
Source: kafka.server.ReplicaManager, kafka.server.HostedPartition.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.names import INTERNAL_TOPICS, TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.segment.segment import NEVER
from kafkalite.metadata.cluster_metadata import NO_LEADER, ClusterMetadata, PartitionRecord, TopicRecord
from kafkalite.metadata.registration_state import RegistrationState
from kafkalite.replication.partition import OfflinePartition, Partition
from kafkalite.replication.reconciliation import LocalTopic, Role
from kafkalite.replication.topic_configs import TopicConfigs

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_MAY_LEAD = (RegistrationState.MEMBER, RegistrationState.DISCONNECTED)


class Topic:
    """One topic. `states` are all of its partitions as the cluster sees them; `partitions` are the ones that this
    broker leads, or would lead if their disk had not failed. `overrides` are the topic's own settings as text; `config`
    follows from them. `admission` is kept here by the API, which makes it once per topic."""

    __slots__ = ("admission", "config", "internal", "name", "overrides", "partitions", "states", "topic_id")

    def __init__(self, record: TopicRecord, config: TopicConfig) -> None:
        self.name = record.name
        self.topic_id = record.topic_id
        self.overrides = dict(record.config)
        self.config = config
        self.internal = record.name in INTERNAL_TOPICS
        self.states: Mapping[int, PartitionRecord] = record.partitions
        self.partitions: dict[int, Partition] = {}
        self.admission: Any = None

    def local(self) -> LocalTopic:
        epochs = {index: partition.leader_epoch for index, partition in self.partitions.items()}
        return LocalTopic(self.topic_id, self.overrides, epochs)


class ReplicaManager:
    """All topics, by name and by id. Invariant: both hold the same topics; for each listed topic, the logs of all
    partitions that this broker led at its last reconciliation are open.

    `on_election` and `on_resignation` are called with each partition, `when_deleted` with a topic's name, in the turn
    of the loop in which it happens.
    """

    def __init__(self, config: BrokerConfig, metadata: ClusterMetadata, logs: LogManager, broker_id: int) -> None:
        self.configs = TopicConfigs(config, is_shared=metadata.is_shared)
        self._metadata = metadata
        self._logs = logs
        self._broker_id = broker_id
        self._opening: dict[str, Topic] = {}  # being created: hidden from clients until all logs are open
        self._offline: dict[TopicPartition, str] = {}  # logs in failed directories, with the reasons of the failures
        self._truncated: set[TopicPartition] = set()  # logs that lost bytes, until they are led under a new epoch
        self._unresolved: set[str] = set()  # topics with logs here whose settings are not in the metadata yet
        self._is_loaded = False
        self.on_election: Callable[[Partition], object] = lambda partition: None
        self.on_resignation: Callable[[Partition], object] = lambda partition: None
        self.when_deleted: Callable[[str], object] = lambda name: None
        self.on_config_change: Callable[[], object] = lambda: None  # of any topic, when it has taken effect
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    # Look-ups

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.by_name.get(topic)
        return found.partitions.get(index) if found is not None else None

    def require(self, topic: str, index: int) -> Partition:
        """The partition, or the KafkaError that says why it is not served here."""
        found = self.by_name.get(topic)
        partition = found.partitions.get(index) if found is not None else None
        if partition is None:
            raise KafkaError(self.missing_partition_error(topic, index))
        return partition

    def missing_partition_error(self, topic: str, index: int) -> ErrorCode:
        """NOT_LEADER_OR_FOLLOWER if the partition exists but is not led here, else UNKNOWN_TOPIC_OR_PARTITION."""
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.exists(topic, index) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def exists(self, topic: str, index: int) -> bool:
        """Whether the cluster has this partition, led here or elsewhere."""
        record = self._metadata.topics.get(topic)
        return record is not None and index in record.partitions

    def leader_of(self, topic: str, index: int) -> int | None:
        """The broker that leads the partition, or NO_LEADER; None if the cluster does not have this partition."""
        if self.partition(topic, index) is not None:
            return self._broker_id
        record = self._metadata.topics.get(topic)
        state = record.partitions.get(index) if record is not None else None
        if state is None:
            return NO_LEADER if self._metadata.has_unresolved_topic(topic) else None
        return state.leader

    def partition_count(self, topic: str) -> int:
        """The number of a topic's partitions in the cluster; 0 if the topic does not exist."""
        record = self._metadata.topics.get(topic)
        return len(record.partitions) if record is not None else 0

    def id_of(self, topic: str) -> uuid.UUID | None:
        """The id of a topic that the metadata knows."""
        record = self._metadata.topics.get(topic)
        return record.topic_id if record is not None else None

    def config_for(self, topic: str) -> TopicConfig:
        """The settings of a topic that the metadata knows; the broker's defaults for others."""
        record = self._metadata.topics.get(topic)
        return self.configs.build(topic, record.config if record is not None else {})

    @property
    def role(self) -> Role:
        return Role(self._broker_id, not self._metadata.is_shared, self._metadata.registration_state in _MAY_LEAD)

    # Start

    async def check_logs(self) -> None:
        """Compare the logs that were found at start with the metadata, which decides.

        After an unclean stop a log of a deleted topic may be left; it becomes a stray, also if a new topic has that
        name. The log of a topic whose id or settings are not known yet stays as it is until they are. A log that was
        cut gets a new leader epoch, so that a client that has read records beyond its end detects the loss (KIP-320).
        """
        logs = self._logs.logs.items()
        held = {key: log.topic_id for key, log in logs if self._metadata.has_unresolved_topic(key[0])}
        if held:  # loaded with the defaults: their own settings come with `add`
            self._unresolved.update(name for name, _ in held)
            await self._metadata.return_ids(held)
        topics = self._metadata.topics
        known = {(name, index): one.topic_id for name, one in topics.items() for index in one.partitions}
        self._rename_strays(known)
        self._report_missing([key for key in known if key not in self._logs.logs])
        self._truncated = {key for key, log in self._logs.logs.items() if log.lost_bytes}

    def _rename_strays(self, known: Mapping[TopicPartition, uuid.UUID]) -> None:
        """Before any log is made, so that checkpoints are written once and not for every name that is used again."""
        # others delete topics while this broker is away
        checks_ids = self._metadata.is_shared or not self._logs.was_clean
        for key, log in list(self._logs.logs.items()):
            topic_id = known.get(key)
            if topic_id is None and self._metadata.has_unresolved_topic(key[0]):
                logger.warning("%s-%d stays as it is until the metadata says more clearly what its topic is", *key)
                log.config = self.configs.keeping_all()
            elif topic_id is None:
                logger.warning(
                    "%s-%d is not in the metadata, and is renamed to -stray: was its topic deleted? If another broker "
                    "made it here, take the rest of its directory's name away again and start with --adopt",
                    *key,
                )
                self._logs.keep_as_stray(*key)
            elif checks_ids:
                self._rename_foreign(log, topic_id)

    def _report_missing(self, missing: list[TopicPartition]) -> None:
        role, topics = self.role, self._metadata.topics
        missing = [(name, index) for name, index in missing if role.keeps(topics[name].partitions[index])]
        offline = self._logs.offline
        if offline:  # then they may be there, and stay offline
            self._offline.update(dict.fromkeys(missing, str(offline[0].failure)))
        elif missing:
            logger.warning(
                "%d partitions, such as %s-%d, have no log in any directory of log.dirs, and begin empty. If they were "
                "in a directory that is not named there, or on a disk that is not mounted, stop now and give it back",
                len(missing),
                *missing[0],
            )

    def finish_load(self) -> None:
        """Every topic of the metadata is here."""
        self._logs.complete_start()
        self._is_loaded = True

    def _rename_foreign(self, log: PartitionLog | None, topic_id: uuid.UUID) -> None:
        """Renames a log of the right name that belongs to another topic."""
        if log is not None and log.topic_id not in (None, topic_id):
            logger.warning(
                "%s-%d is left of a deleted topic of that name, and is renamed to -stray", log.topic, log.partition
            )
            self._logs.keep_as_stray(log.topic, log.partition)

    # Effects of the metadata

    def begin(self, record: TopicRecord) -> Topic:
        """A topic that is seen from `add` on, when its logs are open."""
        topic = self._opening[record.name] = Topic(record, self.configs.build(record.name, record.config))
        return topic

    def add(self, topic: Topic) -> None:
        self._opening.pop(topic.name, None)
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        if topic.name in self._unresolved:
            self._unresolved.discard(topic.name)
            self._configure_logs(topic)

    def become_leader(self, topic: Topic, index: int, leader_epoch: int) -> Partition:
        """Open a partition, under a later epoch if its log knows one or was cut. It is offline if it may have a log in
        a directory that has failed. Raises StorageError if the log cannot be made."""
        topic.partitions[index] = partition = self._open(topic, index, leader_epoch)
        return partition

    def _open(self, topic: Topic, index: int, leader_epoch: int) -> Partition:
        key = topic.name, index
        if key in self._offline:
            return OfflinePartition(*key, self._offline[key], leader_epoch)
        if self._is_loaded:
            self._rename_foreign(self._logs.get(*key), topic.topic_id)
        log = self._logs.get(*key) or self._logs.create(*key, topic.topic_id, topic.config)
        if self._metadata.is_shared and log.topic_id is None:  # from before topic ids
            log.metadata.set_topic_id(topic.topic_id)
        epoch = max(leader_epoch, log.epochs.latest, 0)  # an epoch never goes back
        if key in self._truncated:
            self._truncated.discard(key)
            epoch += 1
        log.replicated_offset = NEVER  # there is no other replica to wait for
        return Partition(*key, log, epoch)

    def resign(self, topic: Topic, index: int) -> None:
        partition = topic.partitions.pop(index)
        partition.retire()
        self.on_resignation(partition)

    def configure(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        topic.overrides = dict(overrides)
        topic.config = self.configs.build(topic.name, overrides)
        self._configure_logs(topic)
        self.on_config_change()

    def _configure_logs(self, topic: Topic) -> None:
        for index in topic.states:
            log = self._logs.get(topic.name, index)
            if log is not None:
                log.config = topic.config

    def remove(self, name: str, *, keeps_logs: bool = False) -> None:
        """Remove a topic that was deleted, or whose creation failed: for clients at once, its files a little later.
        With `keeps_logs` the logs stay as strays, and the committed offsets of groups stay, too. Does nothing if the
        topic is not on this broker."""
        being_opened = self._opening.pop(name, None)
        topic = being_opened or self.by_name.get(name)
        if topic is None:
            return
        if keeps_logs:
            logger.warning("topic %s has vanished from the metadata, though nobody ordered its deletion", name)
        if being_opened is None:
            del self.by_name[name]
            del self.by_id[topic.topic_id]
        indexes = topic.states.keys() | topic.partitions.keys()
        for index in list(topic.partitions):
            self.resign(topic, index)
        for index in sorted(indexes):
            self._offline.pop((name, index), None)
            log = self._logs.get(name, index)
            if log is not None and log.topic_id not in (None, topic.topic_id):
                continue  # of another topic with that name
            try:
                (self._logs.keep_as_stray if keeps_logs else self._logs.delete)(name, index)
            except StorageError as error:  # removed nevertheless; the next start makes the directory a stray
                logger.error("%s", error)
        if being_opened is None and not keeps_logs:
            self.when_deleted(name)

    # Changes on this broker

    def take_offline(self, keys: Iterable[TopicPartition], why: str) -> None:
        """The directory of these logs has failed: requests for them, waiting or new, get StorageError."""
        for name, index in keys:
            self._offline[name, index] = why
            topic = self._opening.get(name) or self.by_name.get(name)
            partition = topic.partitions.get(index) if topic is not None else None
            if topic is not None and partition is not None:
                topic.partitions[index] = OfflinePartition(name, index, why, partition.leader_epoch)
                partition.retire(StorageError(why))

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed, and with them the defaults of every topic."""
        self.configs.reconfigure(config)
        for topic in (*self, *self._opening.values()):
            self.configure(topic, topic.overrides)
